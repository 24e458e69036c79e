"""`RUN/quantized/<method>/`: the scales that a method decided, the weights they belong to, and what they cost.

`quantization.json` is sealed and lists the weights file by its hash, so that a later stage on another machine can
trust both. It names its source by the checkpoint's hash: scales serve the policy that they were made from, no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from paddleport import files, sealed
from paddleport.checkpoint import POLICY, QUANTIZATION, Checkpoint, load_tensors
from paddleport.errors import ArtifactError
from paddleport.manifest import FileInfo
from paddleport.spaces import Array
from quantize.gate import ReturnComparison, Tolerance

SCHEMA_VERSION = 2
_TENSOR_LIMIT = 8 * 2**30
_AGAIN = "Quantize the run again with: paddleport quantize RUN_DIR"
METHODS = ("ptq", "qat")
_Positive = Annotated[float, msgspec.Meta(gt=0)]


class LayerScales(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Scales of one layer, as largest magnitudes in the units of what is quantized."""

    activation_abs_max: _Positive
    """Of the layer's input."""
    activation_digits: Literal[1, 2] = 1
    """How many int8 numbers stand for one number of the input: the second holds what rounding to the first leaves."""
    activation_unsigned: bool = False
    """Whether the input was never negative, as behind a Relu: its grid then starts at zero."""
    weight_abs_max: tuple[_Positive, ...]
    """Of each output channel's weights."""
    weight_axis: int
    """The weight's dimension that counts the output channels: 1 for Linear, whose weight is [inputs, outputs], and 0
    for Conv2D, whose weight is [outputs, inputs, height, width]."""

    @property
    def reads_image(self) -> bool:
        """Whether the input is an image over 255: its grid is the one of a byte, and nothing is rounded."""
        return self.weight_axis == 0 and self.activation_unsigned and self.activation_abs_max == 1.0


class LayerError(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one layer costs: the policy with this layer alone on its grids, the others float."""

    error: float
    """Root mean square of what it changes in an output, over that output's standard deviation; the worst output's."""
    agreement: float


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the scales cost, measured in Paddle: the fake-quantized policy against the float one."""

    agreement: float
    """Discrete: share of equal actions. Box: 1 - mean |difference| over the action's range."""
    agreement_observations: int
    returns: ReturnComparison
    layer_errors: dict[str, LayerError] = {}
    """Of every layer that could be quantized, also of those kept in float, by structural path."""
    tried: dict[str, float] = {}
    """Agreement by observer, where several were tried."""


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the weights were trained on, by quantization-aware training."""

    rounds: int
    updates: int
    """In all rounds together."""
    learning_rate: float
    observations: int
    """That the student visited."""
    loss: float
    """Mean over the last round."""


class Quantization(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`quantization.json`."""

    schema_version: int = SCHEMA_VERSION
    method: str
    observer: str
    checkpoint_sha256: str
    """`Checkpoint.sha256` of the policy that the scales were made from."""
    step: int
    seed: int
    calibration_episodes: int
    calibration_observations: int
    calibration_file: str = ""
    """Where the observations were given instead of played, the file's name."""
    kept_float: tuple[str, ...] = ()
    """Structural paths of layers that were left in float."""
    training: Training | None = None
    tolerance: Tolerance = Tolerance()
    """What the gate went by, for its other half, in `export`, to go by too."""
    layers: dict[str, LayerScales]
    """By structural path, such as `policy_trunk.layers.0`."""
    report: Report
    versions: dict[str, str]
    created: str
    """UTC, ISO 8601."""
    files: dict[str, FileInfo]


class Quantized:
    """One verified `quantized/<method>/` folder.

    Attributes:
        path: the folder.
        document: its `quantization.json`.
    """

    def __init__(self, path: Path, document: Quantization) -> None:
        self.path = path
        self.document = document

    @classmethod
    def open(cls, path: Path) -> Quantized:
        """Read `quantization.json` and check the weights file against it.

        Raises:
            ArtifactError: something is missing or damaged.
        """
        document = sealed.unseal(path / QUANTIZATION, Quantization, SCHEMA_VERSION)
        if POLICY not in document.files:
            raise ArtifactError(f"{path / QUANTIZATION} does not list {POLICY}", todo=_AGAIN)
        for name, listed in document.files.items():
            sealed.read_listed(path, name, listed, _TENSOR_LIMIT, _AGAIN)
        return cls(path, document)

    def check_source(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint that these scales were not made from.

        Raises:
            ArtifactError: it is another policy.
        """
        document = self.document
        if document.checkpoint_sha256 == checkpoint.sha256:
            return
        raise ArtifactError(
            f"{self.path} was made from another checkpoint",
            expected=f"step {checkpoint.state.step} ({checkpoint.sha256[:12]}…)",
            got=f"step {document.step} ({document.checkpoint_sha256[:12]}…)",
            todo=f"Quantize again with: paddleport quantize RUN_DIR --method {document.method} "
            f"--checkpoint step-{checkpoint.state.step}; or export without int8: --quantized none",
        )

    def tensors(self) -> dict[str, Array]:
        """The quantized policy's own float weights, by structural path."""
        return load_tensors(self.path / POLICY)


def folder_of(run: Path, method: str) -> Path:
    """Where a method's result lies in a run."""
    return run / "quantized" / method


def publish(run: Path, document: Quantization, tensors: Mapping[str, Array]) -> Path:
    """Write a method's result in one step; an earlier one gives way only then.

    Args:
        run: the run directory.
        document: everything but `files`, which is filled in here.
        tensors: the quantized policy's float weights.

    Returns:
        The folder.
    """
    from safetensors.numpy import save

    data = save(dict(tensors))
    listed = {POLICY: FileInfo(sha256=files.sha256_bytes(data), size=len(data))}
    target = folder_of(run, document.method)
    with files.publish_directory(target, replace=True) as folder:
        (folder / POLICY).write_bytes(data)
        (folder / QUANTIZATION).write_bytes(sealed.seal(msgspec.structs.replace(document, files=listed)))
    return target
