"""Which versions work together: written here, once.

`paddleport doctor` judges a machine by them, `paddleport doctor --target` an image while it is built, and a test
compares them with the extras in pyproject.toml and with the Dockerfile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet


@dataclass(frozen=True)
class Pair:
    """Packages that fit each other in these versions."""

    name: str
    versions: dict[str, str]
    """Package to specifier, such as `<2`."""
    detail: str
    targets: tuple[str, ...] = ()
    """Targets of the Dockerfile that have to hold it."""
    excluded: bool = False
    """The packages exclude each other instead."""

    def holds(self, version: Callable[[str], str]) -> bool:
        """Whether the installed versions fit, where all the packages are installed."""
        return not self.excluded and all(
            SpecifierSet(specifier).contains(version(package), prereleases=True)
            for package, specifier in self.versions.items()
        )


CUDA_OF_TRAINING = "cu126"
"""The builds of Paddle for GPUs are in an index of its own for each CUDA; this is the one that `train-gpu` takes."""

PAIRS = (
    Pair(
        "paddle2onnx reads Paddle's model format",
        {"paddle2onnx": "==2.1.0", "paddlepaddle": ">=3.3.1,<3.4"},
        "paddle2onnx 2.1 reads what Paddle 3 saves; older ones abort the process",
        targets=("train-cpu",),
    ),
    Pair(
        "paddle2onnx reads the GPU build's model format",
        {"paddle2onnx": "==2.1.0", "paddlepaddle-gpu": ">=3.3.1,<3.4"},
        "the same Paddle 3 as on the CPU, from Paddle's own index",
        targets=("train-gpu",),
    ),
    Pair(
        "one Paddle only",
        {"paddlepaddle": "", "paddlepaddle-gpu": ""},
        "paddlepaddle and paddlepaddle-gpu overwrite each other's files: keep one",
        excluded=True,
    ),
    Pair(
        "paddle2onnx with onnx",
        {"paddle2onnx": "==2.1.0", "onnx": ">=1.17,<1.18"},
        "paddle2onnx 2.1 is built against onnx 1.17",
        targets=("train-cpu", "train-gpu"),
    ),
    Pair(
        "paddleslim with NumPy",
        {"paddleslim": "==2.6.0", "numpy": ">=1.26,<2"},
        "paddleslim 2.6 needs numpy below 2: its OpenCV has numpy 1's binary interface",
        targets=("train-cpu", "train-gpu"),
    ),
    Pair(
        "gym with NumPy",
        {"gym": "==0.26.2", "numpy": ">=1.26,<2"},
        "gym 0.26 uses names that numpy 2 removed",
        targets=("train-cpu", "train-gpu"),
    ),
    Pair(
        "one ONNX Runtime only",
        {"onnxruntime": "", "onnxruntime-gpu": ""},
        "onnxruntime and onnxruntime-gpu overwrite each other's files: keep one",
        excluded=True,
    ),
    Pair(
        "TensorRT for CUDA 13",
        {"onnxruntime-gpu": ">=1.27", "tensorrt-cu13": ">=10.13,<11"},
        "onnxruntime-gpu 1.27 and newer loads TensorRT 10 for CUDA 13; TensorRT 11 falls back to the CPU in silence",
        targets=("serve-gpu",),
    ),
    Pair(
        "TensorRT for CUDA 12",
        {"onnxruntime-gpu": "<1.27", "tensorrt-cu12": "<11"},
        "onnxruntime-gpu up to 1.26 loads TensorRT 10 for CUDA 12",
    ),
)

EXTRAS = {
    "train-cpu": ("quantize", "export", "atari"),
    "train-gpu": ("train-gpu",),
    "serve-cpu": ("serve",),
    "serve-gpu": ("serve-gpu",),
    "edge": ("edge",),
}
"""Targets of the Dockerfile, with the extras that each installs."""
NEEDED = {
    "train-cpu": ("paddlepaddle", "onnxruntime", "ale-py"),
    "train-gpu": ("paddlepaddle-gpu", "onnxruntime", "ale-py"),
    "serve-cpu": ("onnxruntime",),
    "serve-gpu": ("onnxruntime-gpu", "tensorrt-cu13"),
    "edge": ("onnx", "onnxruntime"),
}
"""What each of them cannot be without."""
