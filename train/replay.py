"""Replay memory: a ring of steps, each observation stored once, n-step returns made when they are sampled.

Row t of an environment holds the observation it showed at step t and what came of the action taken there. Under
next-step autoreset the row after an episode's end holds the episode's last observation and is no transition, so that
the observation behind any transition is simply that of a later row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paddleport.spaces import Array, Leaves

_PRIORITY_EPSILON = 1e-6


@dataclass(frozen=True)
class Sample:
    """Transitions [batch, …]."""

    rows: Array
    """Where they lie, for `update_priorities`."""
    obs: Leaves
    actions: Array
    returns: Array
    """Σ γᵏ r over up to n steps, float32 [batch]."""
    next_obs: Leaves
    """The observation behind those steps."""
    discounts: Array
    """γ to the number of steps, or 0 where the episode terminated, float32 [batch]."""
    weight: Array
    """Importance weights, the largest 1, float32 [batch]."""


class Replay:
    """A ring of `capacity // num_envs` steps of `num_envs` environments.

    Args:
        capacity: transitions that it holds at most.
        num_envs: environments that step together.
        obs_shape: of one observation.
        obs_dtype: of one observation.
        n_steps: steps that a return looks ahead.
        gamma: the discount.
        exponent: of the priorities (Schaul et al. 2016, α); 0 samples uniformly.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        leaves: Mapping[str, tuple[tuple[int, ...], str]],
        n_steps: int,
        gamma: float,
        exponent: float = 0.0,
    ) -> None:
        self.length = max(capacity // num_envs, n_steps + 2)
        self.num_envs, self.n_steps, self.gamma, self.exponent = num_envs, n_steps, gamma, exponent
        shape = (self.length, num_envs)
        self.arrays = {
            **{name: np.zeros((*shape, *one), dtype=kind) for name, (one, kind) in leaves.items()},
            "action": np.zeros(shape, dtype=np.int64),
            "reward": np.zeros(shape, dtype=np.float32),
            "terminated": np.zeros(shape, dtype=bool),
            "done": np.zeros(shape, dtype=bool),
            "valid": np.zeros(shape, dtype=bool),
        }
        self.names = list(leaves)
        self.count = 0
        self.largest = 1.0
        self._tree = SumTree(self.length * num_envs) if exponent else None

    def append(self, obs: Leaves, final_obs: Leaves | None = None, **step: Array) -> None:
        """Add a step of every environment: `obs`, `action`, `reward`, `terminated`, `done`, `valid`, each [N, …]."""
        row = self.count % self.length
        for name, array in self.arrays.items():
            array[row] = obs[name] if name in obs else step[name]
        self.count += 1
        if self._tree:
            self._set(np.arange(row * self.num_envs, (row + 1) * self.num_envs), np.zeros(self.num_envs))
            if self.count > self.n_steps:
                self._enter((self.count - 1 - self.n_steps) % self.length)

    def cut(self, obs: Leaves) -> None:
        """End every episode here without its terminating: `obs` [N, …] is what the last steps led to."""
        if not self.count:
            return
        last = (self.count - 1) % self.length
        self.arrays["done"][last] |= self.arrays["valid"][last]
        nothing = np.zeros(self.num_envs)
        for _ in range(self.n_steps + 1):  # so that the rows before become whole
            self.append(
                obs=obs,
                action=nothing,
                reward=nothing,
                terminated=nothing.astype(bool),
                done=nothing.astype(bool),
                valid=nothing.astype(bool),
            )

    def __len__(self) -> int:
        """How many transitions can be sampled."""
        newest = min(self.count, self.length) - self.n_steps
        return max(0, newest) * self.num_envs

    def sample(self, size: int, rng: np.random.Generator, beta: float = 1.0) -> Sample:
        """Draw transitions, with replacement.

        Args:
            size: how many.
            rng: the run's generator.
            beta: how far importance weights undo the priorities.
        """
        rows = _draw_by_priority(self._tree, size, rng) if self._tree else self._draw_uniformly(size, rng)
        weight = self._weights(rows, beta)
        steps, envs = rows // self.num_envs, rows % self.num_envs
        returns = np.zeros(size, dtype=np.float32)
        discounts = np.ones(size, dtype=np.float32)
        ahead = steps.copy()
        going = np.ones(size, dtype=bool)
        for _ in range(self.n_steps):
            returns += going * discounts * self.arrays["reward"][ahead, envs]
            ended = going & self.arrays["done"][ahead, envs]
            terminated = going & self.arrays["terminated"][ahead, envs]
            discounts = np.where(going, discounts * np.float32(self.gamma), discounts)
            discounts[terminated] = 0.0
            ahead = np.where(going, (ahead + 1) % self.length, ahead)
            going &= ~ended
        obs = {name: self.arrays[name][steps, envs] for name in self.names}
        next_obs = {name: self.arrays[name][ahead, envs] for name in self.names}
        return Sample(rows, obs, self.arrays["action"][steps, envs], returns, next_obs, discounts, weight)

    def update_priorities(self, rows: Array, errors: Array) -> None:
        """Set priorities to |TD error|^α (proportional prioritisation, Schaul et al. 2016, section 3.3)."""
        if not self._tree:
            return
        priorities = np.abs(errors).astype(np.float64) + _PRIORITY_EPSILON
        self.largest = max(self.largest, float(priorities.max()))
        self._set(rows, priorities**self.exponent)

    def state(self) -> dict[str, Array]:
        """Everything that sampling depends on, as arrays; only what is filled."""
        filled = min(self.count, self.length)
        state = {name: array[:filled].copy() for name, array in self.arrays.items()}
        state["count"] = np.array([self.count], dtype=np.int64)
        if self._tree:
            state["priority"] = self._tree.leaves(filled * self.num_envs)
            state["largest"] = np.array([self.largest])
        return state

    def restore(self, state: dict[str, Array]) -> None:
        """Continue from `state`."""
        self.count = int(state["count"][0])
        filled = min(self.count, self.length)
        for name, array in self.arrays.items():
            array[:filled] = state[name]
        if self._tree:
            self.largest = float(state["largest"][0])
            self._set(np.arange(filled * self.num_envs), state["priority"])

    def _enter(self, row: int) -> None:
        """Let a row be sampled, now that what it looks ahead to is here, with the largest priority so far."""
        slots = np.arange(row * self.num_envs, (row + 1) * self.num_envs)
        self._set(slots, self.arrays["valid"][row] * self.largest**self.exponent)

    def _set(self, slots: Array, priorities: Array) -> None:
        if self._tree:
            self._tree.set(slots, priorities)

    def _draw_uniformly(self, size: int, rng: np.random.Generator) -> Array:
        """Uniform over the transitions: draw among all rows that are whole, and again where it was none."""
        whole = min(self.count, self.length) - self.n_steps
        first = (self.count - min(self.count, self.length)) % self.length
        chosen = np.zeros(0, dtype=np.int64)
        while len(chosen) < size:
            steps = (first + rng.integers(whole, size=size)) % self.length
            envs = rng.integers(self.num_envs, size=size)
            kept = self.arrays["valid"][steps, envs]
            chosen = np.concatenate([chosen, (steps * self.num_envs + envs)[kept]])
        return chosen[:size]

    def _weights(self, rows: Array, beta: float) -> Array:
        if not self._tree:
            return np.ones(len(rows), dtype=np.float32)
        weights = self._tree.get(rows) ** -beta
        return (weights / weights.max()).astype(np.float32)


def _draw_by_priority(tree: SumTree, size: int, rng: np.random.Generator) -> Array:
    """One draw from each of `size` equal slices of the total priority."""
    return tree.find((np.arange(size) + rng.random(size)) / size * tree.total)


class SumTree:
    """A complete binary tree whose nodes hold the sum of their leaves.

    Args:
        size: number of leaves.
    """

    def __init__(self, size: int) -> None:
        self._first = 1 << max(size - 1, 1).bit_length()
        self._nodes = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        return float(self._nodes[1])

    def get(self, leaves: Array) -> Array:
        """Values of leaves."""
        values: Array = self._nodes[self._first + leaves]
        return values

    def leaves(self, count: int) -> Array:
        """The first `count` leaves."""
        return self._nodes[self._first : self._first + count].copy()

    def set(self, leaves: Array, values: Array) -> None:
        """Set leaves; of a leaf that is named twice the last value counts."""
        nodes = self._first + leaves
        self._nodes[nodes] = values
        while nodes[0] > 1:
            nodes = np.unique(nodes // 2)
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, sums: Array) -> Array:
        """The leaves in whose part of the running total `sums` lie."""
        nodes = np.ones(len(sums), dtype=np.int64)
        left_over = sums.copy()
        while nodes[0] < self._first:
            left = 2 * nodes
            go_right = (left_over >= self._nodes[left]) & (self._nodes[left + 1] > 0)
            left_over = np.where(go_right, left_over - self._nodes[left], left_over)
            nodes = left + go_right
        return nodes - self._first
