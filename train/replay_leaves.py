"""How the replay memory keeps one array of the observations: slot by slot in a ring, each frame of a stack once.

Slot `row · N + environment` belongs to a row of the ring; the slots of an environment's rows before it lie N apart.
"""

from __future__ import annotations

import numpy as np

from paddleport.spaces import Array


class SparseRows:
    """Arrays for the few slots that need one, beside the ring.

    Args:
        slots: how many slots there are.

    Attributes:
        parts: names of the arrays that `saved` may give.
    """

    parts: tuple[str, ...] = ("at", "values")

    def __init__(self, slots: int) -> None:
        self._marked = np.zeros(slots, dtype=bool)
        self._kept: dict[int, Array] = {}

    def put(self, slots: Array, values: Array) -> None:
        """Keep copies of `values` [n, …] for `slots` [n]."""
        self._marked[slots] = True
        self._kept.update((slot, value.copy()) for slot, value in zip(slots.tolist(), values, strict=True))

    def drop(self, slots: Array) -> None:
        """Forget what is kept for `slots` [n]."""
        if self._kept and (marked := self._marked[slots]).any():
            for slot in slots[marked].tolist():
                del self._kept[slot]
            self._marked[slots] = False

    def fill(self, values: Array, slots: Array) -> None:
        """Overwrite those rows of `values` [n, …] for whose `slots` [n] something is kept."""
        for index in np.flatnonzero(self._marked[slots]).tolist():
            values[index] = self._kept[int(slots[index])]

    def saved(self, slots: Array) -> dict[str, Array]:
        """What is kept for `slots` [n], as arrays to save: where among them, and what; empty where nothing is."""
        at = np.flatnonzero(self._marked[slots])
        return {"at": at, "values": np.stack([self._kept[slot] for slot in slots[at].tolist()])} if len(at) else {}

    def load(self, slots: Array, saved: dict[str, Array]) -> None:
        """Put back what `saved` gave for as many slots."""
        self.drop(slots)
        if saved:
            self.put(slots[saved["at"]], saved["values"])


class WholeLeaf:
    """A leaf that is stored as it comes.

    Args:
        slots: how many there are.
        shape: of one observation's array.
        dtype: of it.

    Attributes:
        parts: names of the arrays that `saved` gives.
        bytes_per_slot: of the ring's memory.
    """

    parts: tuple[str, ...] = ("values",)

    def __init__(self, slots: int, shape: tuple[int, ...], dtype: str) -> None:
        self._values = np.zeros((slots, *shape), dtype=dtype)
        self.bytes_per_slot = self._values.nbytes // slots

    def put(self, slots: Array, values: Array, rows_before: int) -> None:
        """Store `values` [N, …] of a row whose slots are `slots` [N]; `rows_before` does not matter here."""
        self._values[slots] = values

    def get(self, slots: Array) -> Array:
        """The values of any slots, [n, …]."""
        return self._values.take(slots, axis=0)

    def saved(self, slots: Array) -> dict[str, Array]:
        """The values of slots, as arrays to save."""
        return {"values": self.get(slots)}

    def load(self, slots: Array, saved: dict[str, Array]) -> None:
        """Put back what `saved` gave."""
        self._values[slots] = saved["values"]


class StackedLeaf:
    """A leaf that is a stack of the k newest frames [k, …], oldest first, of which only the newest is stored.

    The others are the newest of the k - 1 rows before. Where they are not (an episode's first rows, whatever an
    environment fills them with), they are kept as well. That is found by comparing bits, so that what comes out is
    what went in, whatever it was.

    Args:
        slots: how many there are.
        num_envs: N.
        shape: of one observation's stack, [k, …].
        dtype: of it.

    Attributes:
        parts: names of the arrays that `saved` may give.
        bytes_per_slot: of the ring's memory; what is kept beside it is not counted.
    """

    parts: tuple[str, ...] = ("values", "older.at", "older.values")

    def __init__(self, slots: int, num_envs: int, shape: tuple[int, ...], dtype: str) -> None:
        self._newest = np.zeros((slots, *shape[1:]), dtype=dtype)
        self._older = SparseRows(slots)
        self._offsets = num_envs * np.arange(1 - shape[0], 1)
        self._slots = slots
        self.bytes_per_slot = self._newest.nbytes // slots

    def put(self, slots: Array, values: Array, rows_before: int) -> None:
        """Store `values` [N, k, …] of a row whose slots are `slots` [N], behind `rows_before` rows in the ring."""
        values = values.astype(self._newest.dtype, copy=False)
        self._newest[slots] = values[:, -1]
        self._older.drop(slots)
        older = values[:, :-1]
        odd = np.ones(len(slots), dtype=bool)
        if rows_before >= older.shape[1]:
            odd = ~_same_bits(older, self._newest.take(self._around(slots)[:, :-1], axis=0))
        if odd.any():
            self._older.put(slots[odd], older[odd])

    def get(self, slots: Array) -> Array:
        """The stacks of any slots whose k - 1 rows before are in the ring still, [n, k, …]."""
        stacks = self._newest.take(self._around(slots), axis=0)
        self._older.fill(stacks[:, :-1], slots)
        return stacks

    def saved(self, slots: Array) -> dict[str, Array]:
        """What is stored for slots, as arrays to save."""
        older = {f"older.{key}": value for key, value in self._older.saved(slots).items()}
        return {"values": self._newest.take(slots, axis=0), **older}

    def load(self, slots: Array, saved: dict[str, Array]) -> None:
        """Put back what `saved` gave."""
        self._newest[slots] = saved["values"]
        self._older.load(slots, {key: saved[f"older.{key}"] for key in SparseRows.parts if f"older.{key}" in saved})

    def _around(self, slots: Array) -> Array:
        """Slots of the frames of a stack, [n, k]."""
        around: Array = (slots[:, None] + self._offsets) % self._slots
        return around


def _same_bits(first: Array, second: Array) -> Array:
    """Whether rows [n, …] of two arrays of one type are equal to the last bit (NaN to NaN; -0 is not 0), bool [n]."""
    bits = f"u{first.dtype.itemsize}"
    same: Array = (first.view(bits) == second.view(bits)).reshape(len(first), -1).all(axis=1)
    return same
