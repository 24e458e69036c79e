"""`paddleport quantize` from a run to its scales, and what it refuses."""

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

import runs
from paddleport import sealed
from paddleport.checkpoint import QUANTIZATION, Run
from paddleport.errors import ArtifactError, GateError, UsageError
from paddleport.progress import stage
from policies import change_policy
from quantize import command, pipeline
from quantize.gate import Tolerance
from quantize.scales import SCHEMA_VERSION, Quantization, Quantized, folder_of, publish

FEW = ["--calibration-episodes", "3", "--episodes", "4"]


def quantize(run: Path, *options: str) -> command.Result:
    return command.run(command.parse([str(run), *FEW, *options]))


@pytest.fixture(scope="module")
def quantized(tmp_path_factory) -> tuple[Path, command.Result]:
    run = tmp_path_factory.mktemp("runs") / "pendulum"
    runs.untrained_run(run, "Pendulum-v1", hidden_sizes=(32, 32))
    return run, quantize(run, "--observer", "mse", "--seed", "3")


@pytest.fixture
def run(quantized, tmp_path) -> Path:
    return Path(shutil.copytree(quantized[0], tmp_path / "run"))


def test_the_result_says_what_was_measured(quantized):
    run, result = quantized
    plain = msgspec.json.decode(msgspec.json.encode(result))
    assert plain["path"] == str(run / "quantized" / "ptq")
    assert (plain["method"], plain["observer"], plain["layers"]) == ("ptq", "mse", 6)
    assert (plain["calibration_episodes"], plain["calibration_observations"]) == (3, 600)
    assert plain["agreement"] >= 0.99
    assert plain["float32"]["episodes"] == plain["int8"]["episodes"] == 4
    assert plain["float32"]["seed"] == 3
    assert plain["return_drop"] == pytest.approx(plain["float32"]["mean"] - plain["int8"]["mean"])
    command.show(result)


def test_the_document_names_its_source_and_its_scales(quantized):
    run, result = quantized
    checkpoint = Run(run).checkpoint()
    found = Quantized.open(folder_of(run, "ptq"))
    found.check_source(checkpoint)
    document = found.document
    assert document.checkpoint_sha256 == result.checkpoint_sha256 == checkpoint.sha256
    assert document.step == 1000
    assert set(document.layers) == {
        *(f"{side}_trunk.layers.{layer}" for side in ("policy", "value") for layer in (0, 1)),
        "policy_head",
        "value_head",
    }
    assert document.report.agreement == result.agreement
    assert all(np.array_equal(tensor, found.tensors()[name]) for name, tensor in checkpoint.policy_tensors().items())


def test_the_same_seed_decides_the_same_scales(quantized, run):
    before = Quantized.open(folder_of(run, "ptq")).document
    quantize(run, "--observer", "mse", "--seed", "3")
    after = Quantized.open(folder_of(run, "ptq")).document
    assert after.layers == before.layers
    assert after.report == before.report


def test_another_checkpoint_is_quantized_by_name(run):
    change_policy(run, 2000, lambda tensors: {**tensors, "value_head.bias": tensors["value_head.bias"] + 1})
    assert quantize(run, "--checkpoint", "step-1000").step == 1000
    assert quantize(run).step == 2000


def test_a_policy_that_int8_ruins_is_refused_and_earlier_scales_stay(run):
    def ruin(tensors):
        """One weight is ten thousand times the others; a hidden unit that is always 1 and the bias cancel it."""
        changed = {name: tensor.copy() for name, tensor in tensors.items()}
        changed["policy_trunk.layers.1.bias"][0] = 30
        changed["policy_head.weight"][0, 0] = 1e4
        changed["policy_head.bias"][0] -= 1e4
        return changed

    change_policy(run, 2000, ruin)
    before = {path.name: path.read_bytes() for path in folder_of(run, "ptq").iterdir()}
    with pytest.raises(GateError) as caught:
        quantize(run)
    said = str(caught.value)
    assert "agreement of at least 0.98" in said
    assert "--method qat" in said
    assert "--observer" in said
    assert "--keep-float policy_head" in said
    assert {path.name: path.read_bytes() for path in folder_of(run, "ptq").iterdir()} == before
    assert [path.name for path in (run / "quantized").iterdir()] == ["ptq"]


def test_weights_that_are_no_numbers_are_refused_before_anything_is_played(run, capsys):
    def ruin(tensors):
        return {name: tensor * np.nan if name == "policy_head.weight" else tensor for name, tensor in tensors.items()}

    change_policy(run, 2000, ruin)
    with pytest.raises(ArtifactError, match=r"no finite numbers.*policy_head\.weight"):
        quantize(run)
    assert "Calibrating" not in capsys.readouterr().err


def test_a_value_that_int8_loses_is_said_though_the_policy_acts_as_before(run, capsys):
    quantize(run)
    assert "its value is off" not in capsys.readouterr().err

    def lose(tensors):
        """One hidden unit's output is a thousand times the others'; another weight of the head takes it back."""
        changed = {name: tensor.copy() for name, tensor in tensors.items()}
        changed["value_trunk.layers.1.bias"][:2] = 30
        changed["value_head.weight"][0, 0], changed["value_head.weight"][1, 0] = 1e4, -1e4
        return changed

    change_policy(run, 2000, lose)
    quantize(run)
    assert "its value is off by" in capsys.readouterr().err


def test_a_tolerance_that_nothing_meets_refuses_everything(run):
    tolerance = Tolerance(agreement=1.1)
    request = pipeline.Request(run, Run(run).checkpoint(), "ptq", "absmax", 2, 2, 7, tolerance=tolerance)
    with pytest.raises(GateError, match="fake-quantized policy"):
        pipeline.quantize_run(request)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("name", [QUANTIZATION, "policy.safetensors"])
@pytest.mark.parametrize(
    "damage", [flip, lambda path: path.write_bytes(path.read_bytes()[:-30]), Path.unlink], ids=["flip", "cut", "unlink"]
)
def test_damaged_scales_do_not_open(run, name, damage):
    damage(folder_of(run, "ptq") / name)
    with pytest.raises(ArtifactError, match=name.replace(".", r"\.")):
        Quantized.open(folder_of(run, "ptq"))


def reseal(run: Path, **changes) -> None:
    path = folder_of(run, "ptq") / QUANTIZATION
    document = sealed.unseal(path, Quantization, SCHEMA_VERSION)
    path.write_bytes(sealed.seal(msgspec.structs.replace(document, **changes)))


def test_scales_that_are_no_scales_do_not_open(run):
    document = Quantized.open(folder_of(run, "ptq")).document
    broken = msgspec.structs.replace(document.layers["value_head"], activation_abs_max=-1.0)
    reseal(run, layers={**document.layers, "value_head": broken})
    with pytest.raises(ArtifactError, match="damaged"):
        Quantized.open(folder_of(run, "ptq"))
    reseal_newer = folder_of(run, "ptq") / QUANTIZATION
    reseal_newer.write_bytes(sealed.seal(msgspec.structs.replace(document, schema_version=99)))
    with pytest.raises(ArtifactError, match="newer Paddleport"):
        Quantized.open(folder_of(run, "ptq"))
    reseal_newer.write_bytes(sealed.seal(msgspec.structs.replace(document, files={})))
    with pytest.raises(ArtifactError, match="does not list"):
        Quantized.open(folder_of(run, "ptq"))


def test_scales_that_cannot_be_written_leave_the_earlier_ones(run):
    document = Quantized.open(folder_of(run, "ptq")).document
    report = msgspec.structs.replace(document.report, agreement=float("nan"))
    with pytest.raises(ArtifactError, match="cannot be written"):
        publish(run, msgspec.structs.replace(document, report=report), {"weight": np.zeros(1, np.float32)})
    assert Quantized.open(folder_of(run, "ptq")).document == document
    assert [path.name for path in (run / "quantized").iterdir()] == ["ptq"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--calibration-episodes", "0"], "1 or more"),
        (["--qat-rounds", "0"], "1 to 1000"),
        (["--qat-learning-rate", "nan"], "--qat-learning-rate is out of range"),
        (["--min-agreement", "98"], "0 to 1"),
        (["--resume"], "Only qat is resumed"),
        (["--method", "qat", "--resume"], "no unfinished QAT"),
        (["--keep-float", "auto", "policy_head"], "auto alone"),
        (["--keep-float", "policy_hat"], "Did you mean policy_head"),
        (["--keep-float", "policy_trunk", "policy_head", "value_trunk", "value_head"], "Nothing is left"),
        (["--episodes", "1"], "at least 2"),
        (["--seed", "-1"], "0 or more"),
        (["--checkpoint", "first"], "best, last or step-N"),
    ],
)
def test_options_that_make_no_sense_are_refused(run, options, said, capsys):
    with pytest.raises(UsageError, match=said):
        quantize(run, *options)
    assert "Playing" not in capsys.readouterr().err


def test_no_run_no_checkpoint_and_a_damaged_one_are_refused(run, tmp_path):
    with pytest.raises(ArtifactError, match="no run directory"):
        quantize(tmp_path / "nowhere")
    flip(Run(run).checkpoint("last").path / "policy.safetensors")
    with pytest.raises(ArtifactError, match="damaged"):
        quantize(run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(ArtifactError, match="no checkpoint yet"):
        quantize(run)


@pytest.mark.parametrize("arguments", [["--method", "lsq"], ["--observer", "best"], ["--calibration-rows", "x"], []])
def test_unknown_options_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        command.parse(arguments if not arguments else ["run", *arguments])
    assert stop.value.code == 2
    assert capsys.readouterr().err


def test_progress_is_plain_lines_without_a_terminal(capsys):
    with stage("Counting", 3) as advance:
        for _ in range(3):
            advance()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "Counting\n"


def test_progress_is_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with stage("Counting", 3) as advance:
        for _ in range(3):
            advance()
    assert "3/3" in capsys.readouterr().err


def test_without_paddleslim_it_says_what_to_install_and_export_still_works(run):
    blocked = "import sys; sys.modules['paddleslim'] = None; "
    quantizing = blocked + f"from paddleport.cli import main; sys.exit(main(['quantize', {str(run)!r}]))"
    exporting = blocked + "from train.runtime import load_paddle; load_paddle(); import export.pipeline"
    first, second = (
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        for code in (quantizing, exporting)
    )
    said = first.communicate(timeout=60)[1].splitlines()[-1]
    assert first.returncode == 1
    assert "needs the package 'paddleslim" in said
    assert "pip install '.[quantize]'" in said
    assert second.communicate(timeout=60)[1].find("Error") == -1
    assert second.returncode == 0
