"""`paddleport doctor`: what this machine has, and which pairs of versions are known to work."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from packaging.version import Version
from rich.console import Console
from rich.table import Table

from paddleport import __version__, options

_PACKAGES = (
    *("paddlepaddle", "paddlepaddle-gpu", "paddle2onnx", "paddleslim", "onnx", "onnxruntime", "onnxruntime-gpu"),
    *("tensorrt-cu12", "tensorrt-cu13", "numpy", "gymnasium", "gym", "visualdl", "safetensors", "flask", "granian"),
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

    json: bool = False
    """Print the diagnosis as JSON."""


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "doctor", argv, "Show versions, devices and providers on this machine.")


def run(_: Options) -> Diagnosis:
    """Look at this machine; what is not installed is said, never an error."""
    packages = {name: _version(name) for name in _PACKAGES}
    return Diagnosis(
        paddleport=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        packages=packages,
        checks=[_check(packages, *pair) for pair in _PAIRS],
        paddle_devices=_paddle_devices(),
        providers=_providers(),
    )


def show(diagnosis: Diagnosis) -> None:
    """Print the diagnosis as tables."""
    console = Console()
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
    console.print(f"Paddle's devices: {', '.join(diagnosis.paddle_devices) or 'none (no Paddle here)'}")
    console.print(f"ONNX Runtime's providers: {', '.join(diagnosis.providers) or 'none (no ONNX Runtime here)'}")


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


def _paddle_devices() -> list[str]:
    try:
        paddle = importlib.import_module("paddle")
    except ImportError:
        return []
    count = paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0
    return ["cpu", *(f"gpu:{index}" for index in range(count))]


def _providers() -> list[str]:
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        return []
    return list(runtime.get_available_providers())
