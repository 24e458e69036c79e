"""Which execution provider runs a policy: what was asked for, and what this machine has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddleport.errors import UsageError
from paddleport.manifest import TensorInfo

TENSORRT, CUDA, CPU = "TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"
_NAMES = {"tensorrt": TENSORRT, "cuda": CUDA, "cpu": CPU}
_TYPICAL_BATCH = 64

Choice = list[str | tuple[str, dict[str, Any]]]


def candidates(wanted: str, available: Sequence[str], *, allow_fallback: bool) -> list[str]:
    """The providers to try, in order; the first that works is the one in use.

    Args:
        wanted: `auto`, `tensorrt`, `cuda` or `cpu`.
        available: what ONNX Runtime says that it was built with.
        allow_fallback: whether the CPU may stand in for what was asked for by name.

    Raises:
        UsageError: what was asked for is not there.
    """
    if wanted == "auto":
        return [provider for provider in (TENSORRT, CUDA, CPU) if provider in available]
    provider = _NAMES[wanted]
    if provider not in available and not allow_fallback:
        raise UsageError(
            f"ONNX Runtime has no {wanted} here",
            expected=provider,
            got=", ".join(available),
            todo="Install the extra serve-gpu, or permit the CPU with --allow-fallback",
        )
    wanted_first = [provider] if provider in available else []
    return [*wanted_first, CPU] if allow_fallback and provider != CPU else wanted_first


def session_providers(provider: str, options: Mapping[str, Any] | None = None) -> Choice:
    """What ONNX Runtime is asked for: `provider`, and behind it who takes the operators that it lacks."""
    chain = {TENSORRT: [CUDA, CPU], CUDA: [CPU], CPU: []}[provider]
    first: str | tuple[str, dict[str, Any]] = (provider, dict(options)) if options else provider
    return [first, *chain]


def tensorrt_options(
    cache: Path, model: bytes, inputs: Sequence[TensorInfo], *, precision: str, max_batch: int, versions: Sequence[str]
) -> dict[str, str]:
    """TensorRT's options: engines and timings in a folder of their own for this model, this software and this GPU.

    Args:
        cache: the folder of all caches.
        model: the ONNX file's bytes.
        inputs: of the graph, without their batch dimension.
        precision: of the file.
        max_batch: the largest batch an engine takes.
        versions: ONNX Runtime's, TensorRT's, and the GPU's name.
    """
    folder = str(cache.expanduser() / cache_key(model, versions))

    def shapes(batch: int) -> str:
        return ",".join(f"{given.name}:{'x'.join(map(str, (batch, *given.shape)))}" for given in inputs)

    return {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": folder,
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": folder,
        "trt_fp16_enable": "1" if precision == "fp16" else "0",
        "trt_int8_enable": "1" if precision == "int8" else "0",
        "trt_profile_min_shapes": shapes(1),
        "trt_profile_opt_shapes": shapes(min(_TYPICAL_BATCH, max_batch)),
        "trt_profile_max_shapes": shapes(max_batch),
    }


def cache_key(model: bytes, versions: Sequence[str]) -> str:
    """A folder's name that changes with the model and with everything that an engine was built for."""
    digest = hashlib.sha256(model)
    for version in versions:
        digest.update(b"\0" + version.encode())
    return digest.hexdigest()[:32]


def tensorrt_file(provider: str, precision: str, file: str, files: Sequence[str]) -> str:
    """The bundle's file that a provider takes: TensorRT has one of its own for int8, where the bundle has it."""
    special = file.removesuffix(".onnx") + "-trt.onnx"
    return special if provider == TENSORRT and precision == "int8" and special in files else file
