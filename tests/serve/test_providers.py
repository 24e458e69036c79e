"""Which execution provider is taken, exercised on lists that ONNX Runtime could report."""

import pytest

from paddleport.errors import UsageError
from paddleport.manifest import TensorInfo
from serve.runtime.policy import Opening, usable_processors
from serve.runtime.providers import (
    CPU,
    CUDA,
    TENSORRT,
    cache_key,
    candidates,
    session_providers,
    tensorrt_file,
    tensorrt_options,
)
from serve.settings import Settings

EVERYTHING = [TENSORRT, CUDA, CPU]


@pytest.mark.parametrize(
    ("wanted", "available", "fallback", "expected"),
    [
        ("auto", EVERYTHING, False, EVERYTHING),
        ("auto", [CUDA, CPU], False, [CUDA, CPU]),
        ("auto", ["AzureExecutionProvider", CPU], False, [CPU]),
        ("tensorrt", EVERYTHING, False, [TENSORRT]),
        ("tensorrt", EVERYTHING, True, [TENSORRT, CPU]),
        ("tensorrt", [CPU], True, [CPU]),
        ("cuda", EVERYTHING, False, [CUDA]),
        ("cpu", EVERYTHING, False, [CPU]),
        ("cpu", EVERYTHING, True, [CPU]),
    ],
)
def test_providers_are_tried_in_this_order(wanted, available, fallback, expected):
    assert candidates(wanted, available, allow_fallback=fallback) == expected


@pytest.mark.parametrize("wanted", ["tensorrt", "cuda"])
def test_a_provider_that_is_required_and_not_there_stops_the_start(wanted, models, run_serve):
    with pytest.raises(UsageError, match="--allow-fallback"):
        candidates(wanted, [CPU], allow_fallback=False)
    code, said = run_serve("--models", str(models), "--port", "0", "--provider", wanted)
    assert code == 1
    assert "--allow-fallback" in said


def test_with_fallback_the_provider_in_use_is_the_one_that_is_reported(start_server, models):
    server = start_server(models, "--provider", "tensorrt", "--allow-fallback")
    assert any("CPUExecutionProvider" in line for line in server.lines)
    assert server.request("GET", "/v1/policies/cartpole")[2]["provider"] == CPU
    assert f'provider="{CPU}"' in server.pool.request("GET", "/metrics").data.decode()


def test_what_a_provider_lacks_goes_to_the_ones_behind_it():
    assert session_providers(CPU) == [CPU]
    assert session_providers(CUDA) == [CUDA, CPU]
    assert session_providers(TENSORRT, {"a": "1"}) == [(TENSORRT, {"a": "1"}), CUDA, CPU]


def test_a_cache_belongs_to_one_model_one_software_and_one_gpu(tmp_path):
    keys = {
        cache_key(b"model", ["ort 1", "trt 10", "gpu"]),
        cache_key(b"other", ["ort 1", "trt 10", "gpu"]),
        cache_key(b"model", ["ort 2", "trt 10", "gpu"]),
        cache_key(b"model", ["ort 1", "trt 10", "other gpu"]),
        cache_key(b"model", ["ort 1", "trt 10gpu"]),
    }
    assert len(keys) == 5
    assert cache_key(b"model", ["a"]) == cache_key(b"model", ["a"])


def test_tensorrt_gets_a_profile_for_every_input(tmp_path):
    inputs = (
        TensorInfo(name="obs.a", dtype="float32", shape=(4,)),
        TensorInfo(name="obs.b", dtype="uint8", shape=(2, 3)),
    )
    options = tensorrt_options(tmp_path, b"m", inputs, precision="int8", max_batch=256, versions=["x"])
    assert options["trt_profile_min_shapes"] == "obs.a:1x4,obs.b:1x2x3"
    assert options["trt_profile_opt_shapes"] == "obs.a:64x4,obs.b:64x2x3"
    assert options["trt_profile_max_shapes"] == "obs.a:256x4,obs.b:256x2x3"
    assert (options["trt_int8_enable"], options["trt_fp16_enable"]) == ("1", "0")
    assert options["trt_engine_cache_path"] == str(tmp_path / cache_key(b"m", ["x"]))


def test_tensorrt_takes_its_own_int8_file_where_there_is_one():
    files = ["policy.onnx", "policy.int8.onnx", "policy.int8-trt.onnx"]
    assert tensorrt_file(TENSORRT, "int8", "policy.int8.onnx", files) == "policy.int8-trt.onnx"
    assert tensorrt_file(TENSORRT, "int8", "policy.int8.onnx", files[:2]) == "policy.int8.onnx"
    assert tensorrt_file(CPU, "int8", "policy.int8.onnx", files) == "policy.int8.onnx"
    assert tensorrt_file(TENSORRT, "float32", "policy.onnx", files) == "policy.onnx"


def test_processors_are_shared_by_the_workers(models, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5, 6, 7})
    assert usable_processors() == 8
    assert Opening(Settings(models=models, workers=3)).threads == 2
    assert Opening(Settings(models=models, workers=16)).threads == 1
    assert Opening(Settings(models=models, workers=3, threads=5)).threads == 5
