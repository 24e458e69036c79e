"""Observations as a row of numbers that can be watched: how far does a live one lie from those of the training?

Every number of a Box is a feature, as it is. A Box of many numbers, an image above all, is watched as one, by their
mean; whole-number choices are not watched, since they are checked against their range.
"""

from __future__ import annotations

import msgspec
import numpy as np

from paddleport.spaces import OBSERVATION, Array, Box, Leaves, Space, leaf_spaces

MOST_NUMBERS = 64
"""A Box of more numbers is one feature."""


class FeatureStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of the observations that the policy visited when it was exported, feature by feature."""

    names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def statistics_of(space: Space, obs: Leaves) -> FeatureStatistics | None:
    """The statistics of observations [batch, …]; None where the space has no feature."""
    names = feature_names(space)
    if not names:
        return None
    rows = features(space, obs)
    return FeatureStatistics(names=names, mean=tuple(rows.mean(axis=0).tolist()), std=tuple(rows.std(axis=0).tolist()))


def features(space: Space, obs: Leaves) -> Array:
    """The features of observations, float64 [batch, features]."""
    return np.concatenate([_columns(obs[name], box) for name, box in _boxes(space).items()], axis=1)


def feature_names(space: Space) -> tuple[str, ...]:
    """Their names: those that the space gives, else their places."""
    return tuple(name for leaf, box in _boxes(space).items() for name in _names(leaf, box))


def _boxes(space: Space) -> dict[str, Box]:
    return {name: leaf for name, leaf in leaf_spaces(space).items() if isinstance(leaf, Box) and leaf.size}


def _names(leaf: str, box: Box) -> list[str]:
    prefix = "" if leaf == OBSERVATION else leaf.removeprefix(OBSERVATION + ".") + "."
    if box.size > MOST_NUMBERS:
        return [f"{prefix}mean of {box.size}"]
    return [prefix + (box.names[i] if box.names else str(i)) for i in range(box.size)]


def _columns(array: Array, box: Box) -> Array:
    rows: Array = array.reshape(len(array), -1)
    if box.size > MOST_NUMBERS:
        means: Array = rows.mean(axis=1, keepdims=True, dtype=np.float64)
        return means
    return rows.astype(np.float64)
