"""The observations that parity is proven on: visited ones, samples around the space's bounds, and extremes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paddleport.spaces import Array, Box

SMALLEST_SET = 1000
EXTREME = 1e6
_MARGIN = 0.1
_SPREAD = 3.0
_RANDOM_EXTREMES = 64
_SAMPLES = 200


@dataclass(frozen=True)
class ObservationSets:
    """Observations [n, …] in the space's own type."""

    visited: Array
    """What the policy sees when it plays."""
    sampled: Array
    """Around the bounds, somewhat beyond them, and around what was visited where there is no bound."""
    extreme: Array
    """Zeros, the bounds, and ±1e6 in every dimension alone and in all of them together."""

    @property
    def everything(self) -> Array:
        """All three, in order."""
        return np.concatenate([self.visited, self.sampled, self.extreme])

    @property
    def rest(self) -> Array:
        """What the policy did not visit by itself."""
        return np.concatenate([self.sampled, self.extreme])


def observation_sets(space: Box, visited: Array, seed: int) -> ObservationSets:
    """Complete visited observations to at least `SMALLEST_SET` of all kinds.

    Args:
        space: the observation space, a Box of floats.
        visited: [n, …].
        seed: of the samples.
    """
    rng = np.random.default_rng(seed)
    extreme = _extremes(space, rng)
    count = max(_SAMPLES, SMALLEST_SET - len(visited) - len(extreme))
    return ObservationSets(visited, _samples(space, visited, count, rng), extreme)


def _samples(space: Box, visited: Array, count: int, rng: np.random.Generator) -> Array:
    """[count, …]: uniform over bounds widened by a tenth on each side; normal where a dimension has no bound."""
    low, high = space.bounds()
    bounded = np.isfinite(low) & np.isfinite(high) & (high - low < EXTREME)
    span = np.where(bounded, high - low, 0.0)
    start = np.where(bounded, low, 0.0) - _MARGIN * span
    uniform = start + rng.uniform(size=(count, *space.shape)) * span * (1 + 2 * _MARGIN)
    center, spread = visited.mean(axis=0, dtype=np.float64), visited.std(axis=0, dtype=np.float64)
    normal = center + _SPREAD * spread * rng.standard_normal((count, *space.shape))
    return np.where(bounded, uniform, normal).astype(space.dtype)


def _extremes(space: Box, rng: np.random.Generator) -> Array:
    """[n, …]."""
    low, high = (np.clip(bound.reshape(-1), -EXTREME, EXTREME) for bound in space.bounds())
    zeros = np.zeros((1, space.size))
    alone = EXTREME * np.concatenate([np.eye(space.size), -np.eye(space.size)])
    signs = EXTREME * rng.choice([-1.0, 1.0], size=(_RANDOM_EXTREMES, space.size))
    corners = np.where(rng.integers(2, size=(_RANDOM_EXTREMES, space.size)) == 1, high, low)
    together = EXTREME * np.array([[1.0], [-1.0]]) * np.ones((1, space.size))
    rows = np.concatenate([zeros, low[np.newaxis], high[np.newaxis], together, alone, signs, corners])
    return rows.reshape(-1, *space.shape).astype(space.dtype)
