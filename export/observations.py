"""The observations that parity is proven on: visited ones, samples around the space's bounds, and extremes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from paddleport.spaces import Array, Box, Leaf, Leaves, Space, batch_size, integer_range, joined, leaf_spaces

SMALLEST_SET = 1000
EXTREME = 1e6
_MARGIN = 0.1
_SPREAD = 3.0
_RANDOM_EXTREMES = 64
_SAMPLES = 200
_FEW = 512


@dataclass(frozen=True)
class ObservationSets:
    """Observations, each array [n, …], in the space's own types."""

    visited: Leaves
    """What the policy sees when it plays."""
    sampled: Leaves
    """Around the bounds, somewhat beyond them, and around what was visited where there is no bound."""
    extreme: Leaves
    """Zeros, the bounds, and ±1e6 in every dimension alone and in all of them together."""

    @property
    def everything(self) -> Leaves:
        """All three, in order."""
        return joined([self.visited, self.sampled, self.extreme])

    @property
    def rest(self) -> Leaves:
        """What the policy did not visit by itself."""
        return joined([self.sampled, self.extreme])


def observation_sets(space: Space, visited: Leaves, seed: int) -> ObservationSets:
    """Complete visited observations to at least `SMALLEST_SET` of all kinds.

    Args:
        space: the observation space.
        visited: each array [n, …].
        seed: of the samples.
    """
    rng = np.random.default_rng(seed)
    leaves = leaf_spaces(space)
    extreme = _side_by_side({name: _extremes(leaf, rng) for name, leaf in leaves.items()})
    count = max(_SAMPLES, SMALLEST_SET - batch_size(visited) - batch_size(extreme))
    sampled = {name: _samples(leaf, visited[name], count, rng) for name, leaf in leaves.items()}
    return ObservationSets(visited, sampled, extreme)


def plainest(space: Space) -> Leaves:
    """One observation, each array [1, …]: zeros, or the first of a range that starts elsewhere."""
    starts = {name: 0 if isinstance(leaf, Box) else integer_range(leaf)[0] for name, leaf in leaf_spaces(space).items()}
    return {
        name: np.full((1, *leaf.shape), starts[name], dtype=leaf.dtype) for name, leaf in leaf_spaces(space).items()
    }


def _side_by_side(columns: Leaves) -> Leaves:
    """Every row of every part at least once: shorter columns start over."""
    longest = max(len(column) for column in columns.values())
    return {name: column[np.arange(longest) % len(column)] for name, column in columns.items()}


def _samples(leaf: Leaf, visited: Array, count: int, rng: np.random.Generator) -> Array:
    """[count, …]: uniform over bounds widened by a tenth on each side; normal where a dimension has no bound."""
    if not _is_real(leaf):
        low, high = integer_range(leaf)
        return rng.integers(low, high, size=(count, *leaf.shape), endpoint=True).astype(leaf.dtype)
    low, high = leaf.bounds()
    bounded = np.isfinite(low) & np.isfinite(high) & (high - low < EXTREME)
    span = np.where(bounded, high - low, 0.0)
    start = np.where(bounded, low, 0.0) - _MARGIN * span
    uniform = start + rng.uniform(size=(count, *leaf.shape)) * span * (1 + 2 * _MARGIN)
    center, spread = visited.mean(axis=0, dtype=np.float64), visited.std(axis=0, dtype=np.float64)
    normal = center + _SPREAD * spread * rng.standard_normal((count, *leaf.shape))
    return np.where(bounded, uniform, normal).astype(leaf.dtype)


def _extremes(leaf: Leaf, rng: np.random.Generator) -> Array:
    """[n, …]."""
    if not _is_real(leaf):
        low, high = (np.broadcast_to(bound, leaf.shape) for bound in integer_range(leaf))
        mixed = np.where(rng.integers(2, size=(_RANDOM_EXTREMES, *leaf.shape)) == 1, high, low)
        return np.concatenate([low[np.newaxis], high[np.newaxis], mixed]).astype(leaf.dtype)
    low, high = (np.clip(bound.reshape(-1), -EXTREME, EXTREME) for bound in leaf.bounds())
    zeros = np.zeros((1, leaf.size))
    single = np.eye(leaf.size)[:_FEW]
    alone = EXTREME * np.concatenate([single, -single])
    signs = EXTREME * rng.choice([-1.0, 1.0], size=(_RANDOM_EXTREMES, leaf.size))
    corners = np.where(rng.integers(2, size=(_RANDOM_EXTREMES, leaf.size)) == 1, high, low)
    together = EXTREME * np.array([[1.0], [-1.0]]) * np.ones((1, leaf.size))
    rows = np.concatenate([zeros, low[np.newaxis], high[np.newaxis], together, alone, signs, corners])
    return rows.reshape(-1, *leaf.shape).astype(leaf.dtype)


def _is_real(leaf: Leaf) -> TypeGuard[Box]:
    return isinstance(leaf, Box) and np.dtype(leaf.dtype).kind == "f"
