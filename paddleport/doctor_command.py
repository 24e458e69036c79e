"""`paddleport doctor`: what this machine has, and which pairs of versions are known to work."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from packaging.version import Version
from rich.console import Console
from rich.table import Table

from paddleport import __version__, options
from paddleport.options import Flag

_PACKAGES = (
    *("paddlepaddle", "paddlepaddle-gpu", "paddle2onnx", "paddleslim", "onnx", "onnxruntime", "onnxruntime-gpu"),
    *("tensorrt-cu12", "tensorrt-cu13", "numpy", "gymnasium", "gym", "visualdl", "safetensors", "flask", "uvloop"),
    *("msgspec", "orjson", "tyro", "rich", "urllib3"),
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


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "doctor", argv, "Show versions, devices and providers on this machine.")


def run(_: Options) -> Diagnosis:
    """Look at this machine; what is not installed is said, never an error."""
    packages = {name: _version(name) for name in _PACKAGES}
    paddle_devices, paddle_check = _ask(packages, "paddle", ("paddlepaddle", "paddlepaddle-gpu"), _paddle_devices)
    providers, runtime_check = _ask(packages, "onnxruntime", ("onnxruntime", "onnxruntime-gpu"), _providers)
    return Diagnosis(
        paddleport=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        packages=packages,
        checks=[paddle_check, runtime_check, *(_check(packages, *pair) for pair in _PAIRS)],
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


def _paddle2onnx_pair(version: Callable[[str], Version]) -> bool:
    return version("paddle2onnx") >= Version("2.1") and version("paddlepaddle") >= Version("3.0")


_PAIRS: tuple[tuple[str, tuple[str, ...], Callable[[Callable[[str], Version]], bool], str], ...] = (
    (
        "paddle2onnx reads Paddle's model format",
        ("paddle2onnx", "paddlepaddle"),
        _paddle2onnx_pair,
        "paddle2onnx 2.1 reads what Paddle 3 saves; older ones abort the process",
    ),
    (
        "paddle2onnx with onnx",
        ("paddle2onnx", "onnx"),
        lambda version: version("onnx") < Version("1.18"),
        "paddle2onnx 2.1 is built against onnx 1.17",
    ),
    (
        "paddleslim with NumPy",
        ("paddleslim", "numpy"),
        lambda version: version("numpy") < Version("2"),
        "paddleslim 2.6 needs numpy below 2: its OpenCV has numpy 1's binary interface",
    ),
    (
        "gym with NumPy",
        ("gym", "numpy"),
        lambda version: version("numpy") < Version("2"),
        "gym 0.26 uses names that numpy 2 removed",
    ),
    (
        "one ONNX Runtime only",
        ("onnxruntime", "onnxruntime-gpu"),
        lambda version: False,
        "onnxruntime and onnxruntime-gpu overwrite each other's files: keep one",
    ),
    (
        "TensorRT for CUDA 13",
        ("onnxruntime-gpu", "tensorrt-cu13"),
        lambda version: version("onnxruntime-gpu") >= Version("1.27") and version("tensorrt-cu13") < Version("11"),
        "onnxruntime-gpu 1.27 and newer loads TensorRT 10 for CUDA 13; TensorRT 11 falls back to the CPU in silence",
    ),
    (
        "TensorRT for CUDA 12",
        ("onnxruntime-gpu", "tensorrt-cu12"),
        lambda version: version("onnxruntime-gpu") < Version("1.27") and version("tensorrt-cu12") < Version("11"),
        "onnxruntime-gpu up to 1.26 loads TensorRT 10 for CUDA 12",
    ),
)


def _check(
    packages: dict[str, str | None],
    name: str,
    needs: tuple[str, ...],
    holds: Callable[[Callable[[str], Version]], bool],
    detail: str,
) -> Check:
    if any(packages[package] is None for package in needs):
        return Check(name, "absent", detail)
    return Check(name, "ok" if holds(lambda package: Version(str(packages[package]))) else "wrong", detail)


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
