"""What a bundle says of itself: the schema of `manifest.json`.

Unknown fields are errors, since a newer schema says that it is newer.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

import msgspec

from paddleport.errors import UsageError
from paddleport.features import FeatureStatistics
from paddleport.spaces import Space

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
GOLDEN = "golden.npz"
Precision: TypeAlias = Literal["float32", "int8", "int8-trt", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "int8", "int8-trt", "fp16")
"""`int8` is for CPUs, `int8-trt` the same scales in the form that TensorRT takes."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class TensorInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One input or output of the graph; the first dimension, `batch`, is left out of `shape`."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class FileInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file of the bundle, beside the manifest."""

    sha256: str
    size: int


class ReturnStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Undiscounted returns of whole episodes under the deterministic policy; episode k was seeded `seed + k`."""

    mean: float
    std: float
    min: float
    max: float
    episodes: int
    seed: int


class PrecisionInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One ONNX file of the policy."""

    file: str
    tolerance: float
    """How far an output may lie from the golden one, times the largest magnitude in its row (at least 1)."""
    measured_return: ReturnStatistics | None = None
    action_agreement: float | None = None
    """How alike it and the trainer's float32 policy act on observations that the policy visits. Discrete: the share of
    equal actions. Box: 1 - mean |difference| over the range of each dimension."""


class EnvironmentInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The environment that the policy was trained in."""

    id: str
    max_episode_steps: int | None = None
    preprocessing: tuple[str, ...] = ()
    """What wrappers did before the policy saw an observation; the caller has to do the same."""


class ActionTransform(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the graph's distribution becomes an action, so that a caller can sample.

    `argmax`: the action is `start + argmax(logits)`; MultiDiscrete: of each part of `logits`, `splits` wide.
    `threshold`: 1 where `logits` > 0. `affine`: clip `mean` to [-1, 1], then map that interval to the bounds;
    dimensions without two finite bounds pass through and are clipped to what bound they have. `tanh`: the same with
    tanh in the clip's place. `clip`: `mean` is in the action's own units, clipped to the bounds.
    """

    kind: Literal["argmax", "threshold", "affine", "tanh", "clip"]
    splits: tuple[int, ...] = ()
    """Widths of the parts that `logits` consists of; empty where it is one."""


class Provenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the policy comes from."""

    run_id: str
    checkpoint_sha256: str
    step: int
    seed: int
    config: dict[str, Any]
    versions: dict[str, str]
    created: str
    """UTC, ISO 8601."""


class Parity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was compared before the bundle was published."""

    observations: int
    worst_visited: float
    """Largest |trainer - ONNX| over max(1, largest magnitude in the row), on observations the policy visits."""
    worst_extreme: float
    """The same at the bounds, zeros and ±1e6."""
    tolerance: float


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A bundle's description; every other file in the bundle is listed in `files`."""

    schema_version: int = SCHEMA_VERSION
    name: str
    version: int
    algorithm: str
    environment: EnvironmentInfo
    observation_space: Space
    action_space: Space
    action_transform: ActionTransform
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    opset: int
    ir_version: int
    precisions: dict[str, PrecisionInfo]
    files: dict[str, FileInfo]
    provenance: Provenance
    parity: Parity | None = None
    """None where there was no trainer to compare with: the policy was adopted."""
    not_checked: tuple[str, ...] = ()
    """What could not be proven when the bundle was made, in sentences; empty for a policy that was exported."""
    quantization: dict[str, Any] | None = None
    observation_statistics: FeatureStatistics | None = None
    """Of the observations that the policy visited when it was exported; a server measures live ones by them."""


def check_name(name: str) -> str:
    """Return `name` if it can name a policy, in a path and in a URL.

    Raises:
        UsageError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            "This is no name for a policy",
            expected="up to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
            got=repr(name),
        )
    return name
