import json
import sys
from importlib.metadata import version
from types import SimpleNamespace

import msgspec
import pytest

import paddleport
from paddleport import cli, doctor_command
from paddleport.doctor_command import Diagnosis, Options


@pytest.fixture(autouse=True)
def stand_ins(own_path, monkeypatch):
    """Paddle takes seconds to load; what doctor asks of it is little."""
    cuda = SimpleNamespace(device_count=lambda: 2)
    paddle = SimpleNamespace(is_compiled_with_cuda=lambda: False, device=SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "paddle", paddle)
    return paddle


@pytest.fixture
def installed(monkeypatch):
    """Pretend that these versions, and nothing else, are installed."""

    def pretend(**versions):
        known = {name.replace("_", "-"): number for name, number in versions.items()}
        monkeypatch.setattr(doctor_command, "_version", known.get)

    return pretend


def _verdict(name):
    return next(check for check in doctor_command.run(Options()).checks if check.name == name).verdict


def test_json_has_versions_checks_devices_and_providers(capfd):
    assert cli.main(["doctor", "--json"]) == 0
    diagnosis = msgspec.json.decode(capfd.readouterr().out, type=Diagnosis)
    assert diagnosis.paddleport == paddleport.__version__
    assert diagnosis.python == ".".join(map(str, sys.version_info[:3]))
    assert diagnosis.processors >= 1
    assert diagnosis.packages["numpy"] == version("numpy")
    assert diagnosis.packages["tensorrt-cu12"] is None
    assert {check.verdict for check in diagnosis.checks} <= {"ok", "wrong", "absent"}
    assert all(check.name and check.detail for check in diagnosis.checks)
    assert "CPUExecutionProvider" in diagnosis.providers


def test_the_table_shows_the_same(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["doctor"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    for words in (
        f"paddleport {paddleport.__version__}",
        version("numpy"),
        "paddleslim with NumPy",
        "CPUExecutionProvider",
    ):
        assert words in out


def test_nothing_installed_is_no_error(capfd, installed):
    installed()
    assert cli.main(["doctor", "--json"]) == 0
    diagnosis = json.loads(capfd.readouterr().out)
    assert set(diagnosis["packages"].values()) == {None}
    assert {check["verdict"] for check in diagnosis["checks"]} == {"absent"}
    assert diagnosis["paddle_devices"] == diagnosis["providers"] == []
    assert cli.main(["doctor"]) == 0


def test_a_namesake_of_paddle_is_not_asked_where_paddle_is_not_installed(installed):
    installed(numpy="1.26.4")
    assert doctor_command.run(Options()).paddle_devices == []


@pytest.mark.parametrize(("cuda", "devices"), [(False, ["cpu"]), (True, ["cpu", "gpu:0", "gpu:1"])])
def test_paddle_names_its_devices(stand_ins, cuda, devices):
    stand_ins.is_compiled_with_cuda = lambda: cuda
    assert doctor_command.run(Options()).paddle_devices == devices


@pytest.mark.parametrize("error", [OSError("libcudart.so.13: cannot open"), AttributeError("np.bool8"), RuntimeError()])
def test_a_broken_installation_is_told_not_met(stand_ins, error):
    def fail():
        raise error

    stand_ins.is_compiled_with_cuda = fail
    diagnosis = doctor_command.run(Options())
    assert diagnosis.paddle_devices == []
    check = diagnosis.checks[0]
    assert (check.name, check.verdict) == ("paddle can be imported", "wrong")
    assert check.detail == f"{type(error).__name__}: {error}"


def test_a_package_that_cannot_be_imported_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert _verdict("onnxruntime can be imported") == "wrong"
    assert doctor_command.run(Options()).providers == []


@pytest.mark.parametrize(
    ("name", "versions", "verdict"),
    [
        ("paddle2onnx reads Paddle's model format", {"paddle2onnx": "2.1.0", "paddlepaddle": "3.3.1"}, "ok"),
        ("paddle2onnx reads Paddle's model format", {"paddle2onnx": "2.0.1", "paddlepaddle": "3.3.1"}, "wrong"),
        ("paddle2onnx reads Paddle's model format", {"paddle2onnx": "2.1.0"}, "absent"),
        ("paddle2onnx with onnx", {"paddle2onnx": "2.1.0", "onnx": "1.17.0"}, "ok"),
        ("paddle2onnx with onnx", {"paddle2onnx": "2.1.0", "onnx": "1.18.0"}, "wrong"),
        ("paddleslim with NumPy", {"paddleslim": "2.6.0", "numpy": "1.26.4"}, "ok"),
        ("paddleslim with NumPy", {"paddleslim": "2.6.0", "numpy": "2.0.0"}, "wrong"),
        ("gym with NumPy", {"gym": "0.26.2", "numpy": "2.1.0"}, "wrong"),
        ("one ONNX Runtime only", {"onnxruntime": "1.27.0"}, "absent"),
        ("one ONNX Runtime only", {"onnxruntime": "1.27.0", "onnxruntime_gpu": "1.27.0"}, "wrong"),
        ("TensorRT for CUDA 13", {"onnxruntime_gpu": "1.27.0", "tensorrt_cu13": "10.13.0"}, "ok"),
        ("TensorRT for CUDA 13", {"onnxruntime_gpu": "1.27.0", "tensorrt_cu13": "11.0.0"}, "wrong"),
        ("TensorRT for CUDA 12", {"onnxruntime_gpu": "1.26.0", "tensorrt_cu12": "10.9.0.34"}, "ok"),
        ("TensorRT for CUDA 12", {"onnxruntime_gpu": "1.27.0", "tensorrt_cu12": "10.9.0"}, "wrong"),
    ],
)
def test_known_pairs_are_judged(installed, name, versions, verdict):
    installed(**versions)
    assert _verdict(name) == verdict
