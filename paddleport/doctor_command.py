"""`paddleport doctor`: what this machine has, and which pairs of versions are known to work."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.table import Table

from paddleport import __version__, options
from paddleport.errors import UsageError
from paddleport.options import Flag
from paddleport.pairs import NEEDED, PAIRS, Pair

_PACKAGES = (
    *("paddlepaddle", "paddlepaddle-gpu", "paddle2onnx", "paddleslim", "onnx", "onnxruntime", "onnxruntime-gpu"),
    *("tensorrt-cu12", "tensorrt-cu13", "numpy", "gymnasium", "gym", "visualdl", "safetensors", "flask", "uvloop"),
    *("msgspec", "orjson", "tyro", "rich", "urllib3", "ale-py"),
)


class Check(msgspec.Struct, frozen=True):
    """One thing that has to fit another."""

    name: str
    verdict: str
    """`ok`, `wrong`, or `absent` where what it concerns is not installed here."""
    detail: str


class Diagnosis(msgspec.Struct, frozen=True):
    """What the machine has."""

    paddleport: str
    python: str
    platform: str
    processors: int
    packages: dict[str, str | None]
    checks: list[Check]
    paddle_devices: list[str]
    providers: list[str]
    """Execution providers that this ONNX Runtime was built with; the first session tells which one loads."""


@dataclass(frozen=True)
class Options:
    """How to report."""

    json: Flag = False
    """Print the diagnosis as JSON."""
    target: Literal["train-cpu", "train-gpu", "serve-cpu", "serve-gpu", "edge"] | None = None
    """Fail unless this machine has what that target of the Dockerfile needs, in versions that fit each other."""


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "doctor", argv, "Show versions, devices and providers on this machine.")


def run(chosen: Options) -> Diagnosis:
    """Look at this machine; what is not installed is said, and an error only where `chosen.target` needs it.

    Raises:
        UsageError: the machine is not what `chosen.target` has to be.
    """
    packages = {name: _version(name) for name in _PACKAGES}
    paddle_devices, paddle_check = _ask(packages, "paddle", ("paddlepaddle", "paddlepaddle-gpu"), _paddle_devices)
    providers, runtime_check = _ask(packages, "onnxruntime", ("onnxruntime", "onnxruntime-gpu"), _providers)
    checks = [paddle_check, runtime_check, *(_check(packages, pair) for pair in PAIRS)]
    if chosen.target:
        _refuse_unfit(chosen.target, packages, checks)
    return Diagnosis(
        paddleport=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        packages=packages,
        checks=checks,
        paddle_devices=paddle_devices,
        providers=providers,
    )


def show(diagnosis: Diagnosis) -> None:
    """Print the diagnosis as tables."""
    console = Console(markup=False, emoji=False)
    console.print(
        f"paddleport {diagnosis.paddleport}, Python {diagnosis.python}, {diagnosis.platform}, "
        f"{diagnosis.processors} processors"
    )
    packages = Table("package", "version")
    for name, version in diagnosis.packages.items():
        packages.add_row(name, version or "–")
    console.print(packages)
    checks = Table("check", "verdict", "why")
    for check in diagnosis.checks:
        checks.add_row(check.name, check.verdict, check.detail)
    console.print(checks)
    console.print(f"Paddle's devices: {', '.join(diagnosis.paddle_devices) or 'none'}")
    console.print(f"ONNX Runtime's providers: {', '.join(diagnosis.providers) or 'none'}")


def _check(packages: dict[str, str | None], pair: Pair) -> Check:
    installed = {name: version for name in pair.versions if (version := packages[name]) is not None}
    if len(installed) < len(pair.versions):
        return Check(pair.name, "absent", pair.detail)
    return Check(pair.name, "ok" if pair.holds(installed.__getitem__) else "wrong", pair.detail)


def _refuse_unfit(target: str, packages: dict[str, str | None], checks: Sequence[Check]) -> None:
    """Say what keeps this machine from being that target, if anything does."""
    must_hold = {pair.name for pair in PAIRS if target in pair.targets}
    faults = [f"{name} is not installed" for name in NEEDED[target] if packages[name] is None]
    faults += [
        f"{check.name}: {check.verdict}"
        for check in checks
        if check.verdict == "wrong" or (check.verdict == "absent" and check.name in must_hold)
    ]
    if faults:
        raise UsageError(f"This is no {target}", got="; ".join(faults))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _ask(
    packages: dict[str, str | None], module: str, distributions: Sequence[str], question: Callable[[Any], list[str]]
) -> tuple[list[str], Check]:
    """What an installed module answers, and whether it could be asked at all."""
    name = f"{module} can be imported"
    if all(packages[distribution] is None for distribution in distributions):
        return [], Check(name, "absent", f"none of {', '.join(distributions)} is installed")
    try:
        with warnings.catch_warnings(action="ignore"):
            answer = question(importlib.import_module(module))
    except Exception as error:  # noqa: BLE001 - a broken installation breaks in any way, and this is where it is told
        return [], Check(name, "wrong", f"{type(error).__name__}: {error}")
    return answer, Check(name, "ok", f"{module} loads on this machine")


def _paddle_devices(paddle: Any) -> list[str]:  # noqa: ANN401 - a module without type information
    count = paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0
    return ["cpu", *(f"gpu:{index}" for index in range(count))]


def _providers(runtime: Any) -> list[str]:  # noqa: ANN401
    return list(runtime.get_available_providers())
