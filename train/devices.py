"""Which device and which engine: chosen once, said plainly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import paddle

from paddleport.errors import UsageError
from train.engines.base import Engine, Problem
from train.engines.compiled import CompiledEngine
from train.engines.eager import EagerEngine


@dataclass(frozen=True)
class Device:
    """Where updates run."""

    name: Literal["cpu", "gpu"]
    engine: Literal["compiled", "eager"]
    reason: str
    """What was taken and why, for the person who watches."""


def choose_device(device: Literal["auto", "cpu", "gpu"], engine: Literal["auto", "compiled", "eager"]) -> Device:
    """Resolve `auto`.

    Raises:
        UsageError: a GPU is asked for and Paddle sees none.
    """
    count = paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0
    if device == "gpu" and not count:
        why = "sees none" if paddle.is_compiled_with_cuda() else "is built for the CPU only"
        raise UsageError(
            f"--device gpu needs a GPU, and this Paddle {why}",
            todo="Install paddlepaddle-gpu from Paddle's own wheel index, or use --device cpu",
        )
    name: Literal["cpu", "gpu"] = "gpu" if device == "gpu" or (device == "auto" and count) else "cpu"
    chosen: Literal["compiled", "eager"] = ("eager" if name == "gpu" else "compiled") if engine == "auto" else engine
    paddle.set_device(name)
    asked = "as asked" if device != "auto" else "Paddle sees a GPU" if count else "Paddle sees no GPU"
    why = "as asked" if engine != "auto" else f"the default on the {name.upper()}"
    return Device(name, chosen, f"Device: {name} ({asked}). Engine: {chosen} ({why}).")


def make_engine(device: Device, problem: Problem) -> Engine:
    """The engine for a problem."""
    if device.engine == "eager":
        return EagerEngine(problem)
    return CompiledEngine(problem, paddle.CUDAPlace(0) if device.name == "gpu" else paddle.CPUPlace())
