"""Which device and which engine: chosen once, said plainly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import paddle

from paddleport.errors import UsageError
from train.config import RunOptions
from train.engines.amp import Amp
from train.engines.base import Engine, Problem
from train.engines.compiled import CompiledEngine
from train.engines.eager import EagerEngine

_CAPABILITY = {"float16": 7, "bfloat16": 8}
"""The compute capability from which on Paddle's auto_cast takes a type; on an older GPU it stays in float32."""


@dataclass(frozen=True)
class Device:
    """Where and how updates run."""

    name: Literal["cpu", "gpu"]
    engine: Literal["compiled", "eager"]
    reason: str
    """What was taken and why, for the person who watches."""
    amp: Amp | None = None
    """Mixed precision; None is float32 throughout."""
    recompute: bool = False
    """Whether the trunks' activations are computed again in the backward pass."""


def choose_device(options: RunOptions) -> Device:
    """Resolve `auto`, and tell Paddle which device it is.

    Raises:
        UsageError: a GPU is asked for and Paddle sees none, or what is asked for does not go together.
    """
    gpus = gpu_count()
    if options.device == "gpu" and not gpus:
        why = "sees none" if paddle.is_compiled_with_cuda() else "is built for the CPU only"
        raise UsageError(
            f"--device gpu needs a GPU, and this Paddle {why}",
            todo="Install paddlepaddle-gpu from Paddle's own wheel index, or use --device cpu",
        )
    name: Literal["cpu", "gpu"] = "gpu" if options.device != "cpu" and gpus else "cpu"
    engine, why = choose_engine(options, name)
    amp = None if options.amp == "off" else Amp(options.amp, options.amp_dtype)
    paddle.set_device(name)
    label = "cpu"
    if name == "gpu":
        label = f"gpu, {paddle.device.cuda.get_device_name()}"
        check_capability(amp, paddle.device.cuda.get_device_capability()[0])
    asked = "as asked" if options.device != "auto" else "Paddle sees a GPU" if gpus else "Paddle sees no GPU"
    reason = f"Device: {label} ({asked}). Engine: {engine} ({why}).{amp_sentence(amp, name)}"
    return Device(name, engine, reason, amp, options.recompute)


def gpu_count() -> int:
    """How many GPUs Paddle sees; 0 where it is built for the CPU only."""
    return int(paddle.device.cuda.device_count()) if paddle.is_compiled_with_cuda() else 0


def choose_engine(options: RunOptions, device: Literal["cpu", "gpu"]) -> tuple[Literal["compiled", "eager"], str]:
    """The engine for a device, and why.

    Raises:
        UsageError: the compiled engine is asked for something that only the eager one does.
    """
    eager_only = [f"--amp {options.amp}"] * (options.amp != "off") + ["--recompute"] * options.recompute
    both, needs = " and ".join(eager_only), "need" if len(eager_only) > 1 else "needs"
    if options.engine == "compiled" and eager_only:
        raise UsageError(
            f"{both} {needs} the eager engine",
            got="--engine compiled",
            todo="Use --engine eager, or leave --engine out",
        )
    if options.engine != "auto":
        return options.engine, "as asked"
    if eager_only:
        return "eager", f"{both} {needs} it"
    return "eager" if device == "gpu" else "compiled", f"the default on the {device.upper()}"


def check_capability(amp: Amp | None, major: int) -> None:
    """Refuse a type that this GPU cannot do: Paddle would go on in float32 with no more than a warning.

    Args:
        amp: what is asked for.
        major: the first number of the GPU's compute capability.

    Raises:
        UsageError: the GPU is too old for it.
    """
    if amp and major < _CAPABILITY[amp.dtype]:
        raise UsageError(
            f"--amp-dtype {amp.dtype} is more than this GPU can do",
            expected=f"compute capability {_CAPABILITY[amp.dtype]} or higher",
            got=major,
            todo="Use --amp off" + (", or --amp-dtype float16" if major >= _CAPABILITY["float16"] else ""),
        )


def amp_sentence(amp: Amp | None, device: Literal["cpu", "gpu"]) -> str:
    """What mixed precision comes to on a device; empty without it."""
    if amp is None:
        return ""
    but = "" if device == "gpu" else " is asked for; on the CPU Paddle computes in float32 all the same"
    return f" AMP: {amp.level} in {amp.dtype}{but}."


def make_engine(device: Device, problem: Problem) -> Engine:
    """The engine for a problem."""
    if device.engine == "eager":
        return EagerEngine(problem, device.amp, recompute=device.recompute)
    return CompiledEngine(problem, paddle.CUDAPlace(0) if device.name == "gpu" else paddle.CPUPlace())
