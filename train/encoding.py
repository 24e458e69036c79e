"""How the arrays of an observation become what a trunk takes: one vector, and images beside it.

    vector   float32 [batch, size]: numbers first (normalised where the policy does that), then one-hot choices
    images   uint8 [batch, …] as the environment gives them, each under its own name; the network scales them

The same arithmetic stands here in NumPy, for acting and learning, and in `train.network` in Paddle, for the graph.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paddleport.spaces import Array, Box, Discrete, Leaf, Leaves, MultiBinary, MultiDiscrete, Space, leaf_spaces
from train.normalizer import RunningNormalizer

VECTOR = "vector"
_FLOAT32_DIGITS = 2.0**-21
SMALLEST_IMAGE = 36
"""NatureCNN's convolutions need this height and width; what is smaller goes into the vector, pixel by pixel."""


@dataclass(frozen=True)
class ImageLayout:
    """Where an image's dimensions lie."""

    height: int
    width: int
    channels: int
    order: str
    """`HWC`, `CHW` or `HW`."""


@dataclass(frozen=True)
class Encoding:
    """The parts of an observation space by what becomes of them."""

    numbers: dict[str, Box]
    """Boxes that are no image."""
    choices: dict[str, Leaf]
    """Discrete, MultiDiscrete and MultiBinary: what is one-hot, or zeros and ones."""
    images: dict[str, ImageLayout]

    @cached_property
    def numbers_size(self) -> int:
        """How many elements of the vector are numbers; they come first."""
        return sum(leaf_size(leaf) for leaf in self.numbers.values())

    @cached_property
    def vector_size(self) -> int:
        """Length of the vector; 0 where the observation is images alone."""
        return self.numbers_size + sum(leaf_size(leaf) for leaf in self.choices.values())

    def shapes(self, space: Space) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of each feature of one observation."""
        leaves = leaf_spaces(space)
        images = {name: (leaves[name].shape, leaves[name].dtype) for name in self.images}
        return ({VECTOR: ((self.vector_size,), "float32")} if self.vector_size else {}) | images

    def numbers_of(self, obs: Leaves) -> Array:
        """The numbers of observations [batch, …] → [batch, numbers_size] in their own type."""
        rows = [obs[name].reshape(len(obs[name]), -1) for name in self.numbers]
        return rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)

    def features(self, obs: Leaves, numbers: Array | None) -> dict[str, Array]:
        """What the trunk takes.

        Args:
            obs: raw observations [batch, …].
            numbers: `numbers_of` them, float32 and normalised; None where there are none.
        """
        rows = [] if numbers is None else [numbers]
        rows += [_one_hot(leaf, obs[name]) for name, leaf in self.choices.items()]
        features = {name: obs[name] for name in self.images}
        if rows:
            features[VECTOR] = rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)
        return features


def encoding_of(space: Space) -> Encoding:
    """How a space is encoded."""
    numbers: dict[str, Box] = {}
    choices: dict[str, Leaf] = {}
    images: dict[str, ImageLayout] = {}
    for name, leaf in leaf_spaces(space).items():
        if not isinstance(leaf, Box):
            choices[name] = leaf
        elif layout := image_layout(leaf):
            images[name] = layout
        else:
            numbers[name] = leaf
    return Encoding(numbers, choices, images)


def image_layout(space: Box) -> ImageLayout | None:
    """The layout of an image: uint8, [height, width], or with channels: last, unless that is larger than the first."""
    if space.dtype != "uint8" or len(space.shape) not in (2, 3):
        return None
    if len(space.shape) == 2:
        layout = ImageLayout(*space.shape, channels=1, order="HW")
    elif space.shape[2] <= space.shape[0]:
        layout = ImageLayout(space.shape[0], space.shape[1], channels=space.shape[2], order="HWC")
    else:
        layout = ImageLayout(space.shape[1], space.shape[2], channels=space.shape[0], order="CHW")
    return layout if min(layout.height, layout.width) >= SMALLEST_IMAGE else None


def leaf_size(leaf: Leaf) -> int:
    """How many elements of the vector an array takes."""
    if isinstance(leaf, Discrete):
        return leaf.n
    return sum(leaf.nvec) if isinstance(leaf, MultiDiscrete) else leaf.size


def prefixed(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays under `<prefix>.<name>`, as a batch names the features of an observation."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _one_hot(leaf: Leaf, values: Array) -> Array:
    """[batch, …] → float32 [batch, leaf_size]."""
    if isinstance(leaf, MultiBinary):
        return values.reshape(len(values), -1).astype(np.float32)
    if isinstance(leaf, Discrete):
        return np.eye(leaf.n, dtype=np.float32)[values - leaf.start]
    assert isinstance(leaf, MultiDiscrete)  # noqa: S101 - the only kind left
    columns = [np.eye(n, dtype=np.float32)[values[:, i] - leaf.starts[i]] for i, n in enumerate(leaf.nvec)]
    return np.concatenate(columns, axis=1)


class Encoder:
    """Raw observations → features, with the running normaliser where there is one.

    Args:
        space: the observation space.
        normalize: whether numbers are normalised.
    """

    def __init__(self, space: Space, *, normalize: bool) -> None:
        self.encoding = encoding_of(space)
        size = self.encoding.numbers_size
        self.shapes = self.encoding.shapes(space)
        self._warned = False
        self.normalizer = RunningNormalizer(size) if normalize and size else None

    def features(self, obs: Leaves) -> dict[str, Array]:
        """Raw observations [batch, …] → what the trunks take: what `PolicyNetwork.features` does in Paddle."""
        if not self.encoding.numbers:
            return self.encoding.features(obs, None)
        numbers = self.encoding.numbers_of(obs)
        if self.normalizer:
            return self.encoding.features(obs, self.normalizer.normalize(numbers))
        return self.encoding.features(obs, numbers.astype(np.float32, copy=False))

    def observe(self, observations: Sequence[Leaves]) -> None:
        """Let the normaliser see observations, each [batch, …]."""
        if self.normalizer:
            self.normalizer.update(np.concatenate([self.encoding.numbers_of(obs) for obs in observations]))
            self._warn_of_offsets(self.normalizer)

    def _warn_of_offsets(self, normalizer: RunningNormalizer) -> None:
        """Say once where numbers lie so far from zero that float32, in which the policy reads them, loses them."""
        if self._warned:
            return
        deviation, mean = np.sqrt(normalizer.variance), normalizer.mean
        lost = np.flatnonzero((deviation > 0) & (deviation < np.abs(mean) * _FLOAT32_DIGITS))
        if len(lost):
            self._warned = True
            where = f"element {lost[0]} of the observation's numbers lies around {mean[lost[0]]:.6g}"
            spread = f"varies by {deviation[lost[0]]:.2g}"
            print(
                f"paddleport: {where} and {spread}, which float32 cannot tell: take the offset off in the environment",
                file=sys.stderr,
            )

    def policy_tensors(self) -> dict[str, Array]:
        """The normaliser as `PolicyNetwork` takes it."""
        return {"obs_mean": self.normalizer.mean32, "obs_std": self.normalizer.std32} if self.normalizer else {}

    def trainer_tensors(self) -> dict[str, Array]:
        """The normaliser's moments."""
        if not self.normalizer:
            return {}
        return {"normalizer/mean": self.normalizer.mean, "normalizer/variance": self.normalizer.variance}

    def restore(self, count: float, trainer: dict[str, Array]) -> None:
        """Continue from saved moments."""
        if self.normalizer:
            self.normalizer.restore(count, trainer["normalizer/mean"], trainer["normalizer/variance"])
