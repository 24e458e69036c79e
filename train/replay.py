"""Replay memory: a ring of steps, each observation stored once, n-step returns made when they are sampled.

Row t of an environment holds the observation it showed at step t and what came of the action taken there, so that the
observation behind a transition is that of a later row. At an episode's end that depends on the autoreset mode. Under
next-step autoreset the row after the end holds the episode's last observation and is no transition. Under same-step
autoreset it is the next episode's first already; the last observation is kept beside the ring, where the episode was
truncated and a return bootstraps from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from paddleport.errors import ArtifactError, UsageError
from paddleport.spaces import Array, Leaves
from train.replay_leaves import SparseRows, StackedLeaf, WholeLeaf
from train.sum_tree import SumTree

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
    """The observation behind those steps; behind a termination it is any observation."""
    discounts: Array
    """γ to the number of steps, or 0 where the episode terminated, float32 [batch]."""
    weight: Array
    """Importance weights, the largest 1, float32 [batch]."""


class Replay:
    """A ring of `capacity // num_envs` rows, each a step of `num_envs` environments; memory is taken as it fills.

    Args:
        capacity: rows times environments that it holds at most.
        num_envs: environments that step together, N.
        leaves: shape and type of each array of one observation.
        n_steps: steps that a return looks ahead.
        gamma: the discount.
        exponent: of the priorities (Schaul et al. 2016, α); 0 samples uniformly.
        stacks: k of each leaf that is a stack of k frames along its first axis, oldest first.

    Attributes:
        count: rows appended so far; a row's number is how many came before it.

    Raises:
        UsageError: a leaf named in `stacks` has another number of frames.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        leaves: Mapping[str, tuple[tuple[int, ...], str]],
        n_steps: int,
        gamma: float,
        exponent: float = 0.0,
        stacks: Mapping[str, int] | None = None,
    ) -> None:
        stacks = stacks or {}
        self._history = max(stacks.values(), default=1) - 1
        self.length = max(capacity // num_envs, n_steps + 2 + self._history)
        self.num_envs, self.n_steps, self.exponent = num_envs, n_steps, exponent
        self._slots = self.length * num_envs
        self._leaves = {name: self._leaf(name, *leaves[name], stacks.get(name)) for name in leaves}
        self._final = {name: SparseRows(self._slots) for name in leaves}
        self._columns: dict[str, Array] = {
            "action": np.zeros(self._slots, dtype=np.int64),
            "reward": np.zeros(self._slots, dtype=np.float32),
            **{flag: np.zeros(self._slots, dtype=bool) for flag in ("terminated", "done", "valid")},
        }
        self._powers = np.power(gamma, np.arange(n_steps + 1)).astype(np.float32)
        self._ahead = num_envs * np.arange(n_steps)
        self.count = 0
        self._transitions = 0
        self._largest = 1.0
        self._tree = SumTree(self._slots) if exponent else None

    def append(
        self,
        obs: Leaves,
        action: Array,
        reward: Array,
        terminated: Array,
        done: Array,
        valid: Array,
        final_obs: Leaves | None = None,
    ) -> None:
        """Add a row: a step of every environment.

        Args:
            obs: what they showed before it, [N, …].
            action: int64 [N].
            reward: [N].
            terminated: bool [N].
            done: terminated or truncated, bool [N].
            valid: False where the step was autoreset's and is no transition, bool [N].
            final_obs: under same-step autoreset, the last observation of the episodes that ended, [N, …], where `done`;
                None under next-step autoreset.
        """
        slots = self._slots_of(self.count, self.count + 1)
        (low, high), (new_low, new_high) = self._whole(self.count), self._whole(self.count + 1)
        self._leave(low, new_low)
        for name, leaf in self._leaves.items():
            leaf.put(slots, obs[name], self.count)
        row = {"action": action, "reward": reward, "terminated": terminated, "done": done, "valid": valid}
        for name, column in self._columns.items():
            column[slots[0] : slots[0] + self.num_envs] = row[name]
        for name, final in self._final.items():
            final.drop(slots)
            if final_obs is not None and (truncated := done & ~terminated).any():
                final.put(slots[truncated], final_obs[name][truncated])
        self.count += 1
        self._enter(high, new_high)

    def cut(self, obs: Leaves) -> None:
        """End every episode here without its terminating: `obs` [N, …] is what the last steps led to.

        This changes `done` of the last row. All rows count as whole then and later ones change nothing in them.
        """
        if not self.count:
            return
        last = self._slots_of(self.count - 1, self.count)
        self._columns["done"][last[self._columns["valid"][last]]] = True
        nothing = np.zeros(self.num_envs, dtype=bool)
        for _ in range(self.n_steps):  # so that the rows before become whole
            self.append(obs, nothing, nothing, nothing, nothing, nothing)

    def __len__(self) -> int:
        """How many transitions can be sampled: those whose return and observations are all in the ring."""
        return self._transitions

    @property
    def oldest(self) -> int:
        """Number of the oldest row in the ring."""
        return max(0, self.count - self.length)

    def sample(self, size: int, rng: np.random.Generator, beta: float = 1.0) -> Sample:
        """Draw transitions, with replacement; there has to be one.

        Args:
            size: how many.
            rng: the run's generator.
            beta: how far importance weights undo the priorities.
        """
        slots = _draw_by_priority(self._tree, size, rng) if self._tree else self._draw_uniformly(size, rng)
        columns = self._columns
        ahead = (slots[:, None] + self._ahead) % self._slots  # [batch, n]
        returns, steps = n_step_returns(columns["reward"][ahead], columns["done"][ahead], self._powers[:-1])
        last = (slots + self.num_envs * (steps - 1)) % self._slots
        discounts = np.where(columns["terminated"][last], np.float32(0), self._powers[steps])
        following = (last + self.num_envs) % self._slots
        next_obs = {name: leaf.get(following) for name, leaf in self._leaves.items()}
        for name, final in self._final.items():
            final.fill(next_obs[name], last)
        obs = {name: leaf.get(slots) for name, leaf in self._leaves.items()}
        return Sample(slots, obs, columns["action"][slots], returns, next_obs, discounts, self._weights(slots, beta))

    def update_priorities(self, rows: Array, errors: Array) -> None:
        """Set priorities to |TD error|^α (proportional prioritisation, Schaul et al. 2016, section 3.3)."""
        if not self._tree:
            return
        priorities = np.abs(errors).astype(np.float64) + _PRIORITY_EPSILON
        self._largest = max(self._largest, float(priorities.max()))
        still_there = self._tree.get(rows) > 0
        self._tree.set(rows, priorities**self.exponent * still_there)

    def state(self) -> dict[str, Array]:
        """What sampling depends on beside the rows, as arrays: small, and different after every step."""
        state = {"count": np.array([self.count], dtype=np.int64)}
        if self._tree:
            state["priority"] = self._tree.leaves(min(self._slots, self.count * self.num_envs))
            state["largest"] = np.array([self._largest])
        return state

    def rows(self, first: int, end: int) -> dict[str, Array]:
        """Rows number `first` to `end` with all that belongs to them, as arrays to save."""
        slots = self._slots_of(first, end)
        saved: dict[str, Array] = {"first": np.array([first], dtype=np.int64)}
        saved |= {name: column[slots] for name, column in self._columns.items()}
        for prefix, name, kept in self._kept():
            saved |= {f"{prefix}.{key}.{name}": value for key, value in kept.saved(slots).items()}
        return saved

    @property
    def row_bytes(self) -> int:
        """Size of a row that needs nothing kept beside the ring."""
        stored = [column.itemsize for column in self._columns.values()]
        return self.num_envs * sum([*stored, *(leaf.bytes_per_slot for leaf in self._leaves.values())])

    def restore(self, state: dict[str, Array], pieces: Iterable[dict[str, Array]]) -> None:
        """Continue from `state` and from `rows`, piece by piece in order; older rows than the ring holds do no harm.

        Raises:
            ArtifactError: the pieces leave out a row.
        """
        self.count = int(state["count"][0])
        reached = self.oldest
        for piece in pieces:
            first = int(piece["first"][0])
            end = first + len(piece["action"]) // self.num_envs
            reached = end if first <= reached else reached
            self._load(self._slots_of(first, end), piece)
        if reached != self.count:
            todo = "Use another checkpoint, or train again in another --run-dir"
            raise ArtifactError("The replay is not whole", expected=f"rows to {self.count}", got=reached, todo=todo)
        self._transitions = int(self._columns["valid"][self._slots_of(*self._whole(self.count))].sum())
        if self._tree:
            self._largest = float(state["largest"][0])
            self._tree.set(np.arange(len(state["priority"])), state["priority"])

    def _leaf(self, name: str, shape: tuple[int, ...], dtype: str, frames: int | None) -> WholeLeaf | StackedLeaf:
        if frames is None:
            return WholeLeaf(self._slots, shape, dtype)
        if shape[:1] != (frames,):
            raise UsageError(f"{name!r} is no stack of {frames} frames", expected=f"{frames} × …", got=shape)
        return StackedLeaf(self._slots, self.num_envs, shape, dtype)

    def _slots_of(self, first: int, end: int) -> Array:
        """Slots of rows number `first` to `end`, row by row."""
        return np.arange(first * self.num_envs, end * self.num_envs) % self._slots

    def _whole(self, count: int) -> tuple[int, int]:
        """First and end of the rows that can be sampled once `count` were appended.

        The newest wait for the steps that their returns look ahead to; once the ring has wrapped, the oldest lack the
        frames that their stacks begin with.
        """
        low = count - self.length + self._history if count > self.length else 0
        return low, max(low, count - self.n_steps)

    def _leave(self, first: int, end: int) -> None:
        """Let rows be sampled no more."""
        if first < end:
            slots = self._slots_of(first, end)
            self._transitions -= np.count_nonzero(self._columns["valid"][slots])
            if self._tree:
                self._tree.set(slots, np.zeros(len(slots)))

    def _enter(self, first: int, end: int) -> None:
        """Let rows be sampled, with the largest priority so far: each is to be learnt from soon."""
        if first < end:
            slots = self._slots_of(first, end)
            valid = self._columns["valid"][slots]
            self._transitions += np.count_nonzero(valid)
            if self._tree:
                self._tree.set(slots, valid * self._largest**self.exponent)

    def _load(self, slots: Array, piece: dict[str, Array]) -> None:
        for name, column in self._columns.items():
            column[slots] = piece[name]
        for prefix, name, kept in self._kept():
            names = {key: f"{prefix}.{key}.{name}" for key in kept.parts}
            kept.load(slots, {key: piece[saved] for key, saved in names.items() if saved in piece})

    def _kept(self) -> Iterator[tuple[str, str, WholeLeaf | StackedLeaf | SparseRows]]:
        """What holds observations, each with the name of the leaf and a prefix for its arrays in a file."""
        for name in self._leaves:
            yield "obs", name, self._leaves[name]
            yield "final", name, self._final[name]

    def _draw_uniformly(self, size: int, rng: np.random.Generator) -> Array:
        """Uniform over the transitions: draw among all rows that are whole, and again where it was none."""
        if not self._transitions:
            raise UsageError("The replay holds no transition yet", todo="Append more steps before sampling")
        low, high = self._whole(self.count)
        first, end = low * self.num_envs, high * self.num_envs
        slots = rng.integers(first, end, size=size) % self._slots
        while len(again := np.flatnonzero(~self._columns["valid"][slots])):
            slots[again] = rng.integers(first, end, size=len(again)) % self._slots
        return slots

    def _weights(self, slots: Array, beta: float) -> Array:
        if not self._tree:
            return np.ones(len(slots), dtype=np.float32)
        weights = self._tree.get(slots) ** -beta
        return (weights / weights.max()).astype(np.float32)


def n_step_returns(rewards: Array, done: Array, powers: Array) -> tuple[Array, Array]:
    """Returns that stop behind an episode's end.

    Args:
        rewards: of n steps, float32 [batch, n].
        done: whether an episode ended in each, bool [batch, n].
        powers: γ⁰ … γⁿ⁻¹, float32 [n].

    Returns:
        Σ γᵏ r up to the first end, float32 [batch], and over how many steps that is, int [batch].
    """
    if rewards.shape[1] == 1:
        return rewards[:, 0], np.ones(len(rewards), dtype=np.int64)
    going = np.ones(rewards.shape, dtype=bool)
    np.logical_not(np.logical_or.accumulate(done[:, :-1], axis=1), out=going[:, 1:])
    returns: Array = (rewards * (going * powers)).sum(axis=1)
    return returns, going.sum(axis=1)


def _draw_by_priority(tree: SumTree, size: int, rng: np.random.Generator) -> Array:
    """One draw from each of `size` equal slices of the total priority."""
    return tree.find((np.arange(size) + rng.random(size)) / size * tree.total)
