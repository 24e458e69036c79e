"""Observation and action spaces as the manifest describes them, free of Gymnasium.

Bounds that are infinite are written as null, since JSON has no infinity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from paddleport.errors import UsageError

Array: TypeAlias = npt.NDArray[Any]
Leaves: TypeAlias = dict[str, Array]
"""An observation or a batch of them, array by array, under the names that the graph's inputs have."""
Bound: TypeAlias = float | None
_DTYPES = frozenset(
    {"float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
)


class Discrete(msgspec.Struct, frozen=True, tag="discrete", tag_field="type"):
    """The integers `start` … `start + n - 1`."""

    n: int
    start: int = 0
    names: tuple[str, ...] = ()
    """What each action means, in order; empty where nobody said."""

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UsageError("A Discrete space has no element", expected="n of 1 or more", got=self.n)
        _check_length("names", self.names or None, self.n)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element: a scalar."""
        return ()

    @property
    def dtype(self) -> str:
        """NumPy name of an element's type."""
        return "int64"


class Box(msgspec.Struct, frozen=True, tag="box", tag_field="type"):
    """Arrays of `shape` and `dtype`, bounded element by element."""

    shape: tuple[int, ...]
    dtype: str
    low: Bound | tuple[Bound, ...]
    """One bound for all elements, or one an element in row-major order; null is no bound."""
    high: Bound | tuple[Bound, ...]
    names: tuple[str, ...] = ()
    """What each element of a vector means, in order; empty where nobody said."""
    units: tuple[str, ...] = ()
    """Unit of each element; empty where nobody said."""

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise UsageError("A Box of unknown type", expected=", ".join(sorted(_DTYPES)), got=self.dtype)
        if min(self.shape, default=0) < 0:
            raise UsageError("A Box of negative shape", got=list(self.shape))
        _check_length("names", self.names or None, self.size)
        _check_length("units", self.units or None, self.size)
        _check_length("low", self.low, self.size)
        _check_length("high", self.high, self.size)

    @property
    def size(self) -> int:
        """How many numbers one element of the space holds."""
        return math.prod(self.shape)

    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds, each of `shape`, float64, infinite where there is none."""
        return self._fill(self.low, -np.inf), self._fill(self.high, np.inf)

    def _fill(self, bound: Bound | tuple[Bound, ...], missing: float) -> Array:
        values = bound if isinstance(bound, tuple) else (bound,) * self.size
        filled = [missing if value is None else value for value in values]
        return np.asarray(filled, dtype=np.float64).reshape(self.shape)


class MultiDiscrete(msgspec.Struct, frozen=True, tag="multi_discrete", tag_field="type"):
    """Several integers, the i-th one of `start[i]` … `start[i] + nvec[i] - 1`."""

    nvec: tuple[int, ...]
    start: tuple[int, ...] = ()
    """The smallest of each; empty where all are 0."""
    names: tuple[str, ...] = ()
    """What each integer means, in order; empty where nobody said."""

    def __post_init__(self) -> None:
        if min(self.nvec, default=0) < 1:
            raise UsageError("A MultiDiscrete space has no element", expected="nvec of 1 or more each", got=self.nvec)
        _check_length("start", self.start or None, len(self.nvec))
        _check_length("names", self.names or None, len(self.nvec))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element: a vector."""
        return (len(self.nvec),)

    @property
    def dtype(self) -> str:
        """NumPy name of an element's type."""
        return "int64"

    @property
    def starts(self) -> tuple[int, ...]:
        """The smallest value of each integer."""
        return self.start or (0,) * len(self.nvec)


class MultiBinary(msgspec.Struct, frozen=True, tag="multi_binary", tag_field="type"):
    """Arrays of `shape` that hold zeros and ones."""

    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    """What each element of a vector means, in order; empty where nobody said."""

    def __post_init__(self) -> None:
        if min(self.shape, default=0) < 1:
            raise UsageError("A MultiBinary space has no element", expected="sizes of 1 or more", got=self.shape)
        _check_length("names", self.names or None, self.size)

    @property
    def dtype(self) -> str:
        """NumPy name of an element's type."""
        return "int8"

    @property
    def size(self) -> int:
        """How many numbers one element of the space holds."""
        return math.prod(self.shape)


class DictSpace(msgspec.Struct, frozen=True, tag="dict", tag_field="type"):
    """Named parts."""

    spaces: dict[str, Space]

    def __post_init__(self) -> None:
        if not self.spaces:
            raise UsageError("A Dict space has no part")
        leaf_spaces(self)  # refuses parts that would have the same name


class TupleSpace(msgspec.Struct, frozen=True, tag="tuple", tag_field="type"):
    """Numbered parts."""

    spaces: tuple[Space, ...]

    def __post_init__(self) -> None:
        if not self.spaces:
            raise UsageError("A Tuple space has no part")
        leaf_spaces(self)


Leaf: TypeAlias = Discrete | MultiDiscrete | MultiBinary | Box
"""A space of single arrays: what one input of the graph takes."""
Space: TypeAlias = Leaf | DictSpace | TupleSpace
OBSERVATION = "obs"
"""Name of the graph's input where the observation is a single array."""


def leaf_spaces(space: Space, name: str = OBSERVATION) -> dict[str, Leaf]:
    """The single arrays that a space consists of, by name: `obs`, or `obs.<key>` and `obs.<index>` for parts.

    Raises:
        UsageError: two of them have the same name.
    """
    if not isinstance(space, DictSpace | TupleSpace):
        return {name: space}
    found: dict[str, Leaf] = {}
    for key, part in parts(space).items():
        for path, leaf in leaf_spaces(part, f"{name}.{key}").items():
            if path in found:
                raise UsageError("Two parts of a space have the same name", got=path, todo="Rename one of the keys")
            found[path] = leaf
    return found


def parts(space: DictSpace | TupleSpace) -> dict[str, Space]:
    """The parts of a space by key, or by index."""
    if isinstance(space, DictSpace):
        return space.spaces
    return {str(index): part for index, part in enumerate(space.spaces)}


def leaves_of(space: Space, value: Any, name: str = OBSERVATION) -> Leaves:  # noqa: ANN401 - nested as the space is
    """One observation, or a batch whose arrays are stacked already, array by array as `leaf_spaces` names them.

    Nothing is checked: this is for observations that an environment gave. `paddleport.observation` checks.
    """
    if not isinstance(space, DictSpace | TupleSpace):
        return {name: np.asarray(value)}
    keys = list(parts(space)) if isinstance(space, DictSpace) else range(len(space.spaces))
    found: Leaves = {}
    for (key, part), index in zip(parts(space).items(), keys, strict=True):
        found |= leaves_of(part, value[index], f"{name}.{key}")
    return found


def batch_size(leaves: Leaves) -> int:
    """How many observations a batch holds."""
    return len(next(iter(leaves.values())))


def rows_of(leaves: Leaves, rows: Any) -> Leaves:  # noqa: ANN401 - whatever indexes an array
    """Some of a batch's observations."""
    return {name: array[rows] for name, array in leaves.items()}


def joined(batches: Sequence[Leaves]) -> Leaves:
    """Batches, one behind the other."""
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def integer_range(space: Leaf) -> tuple[Any, Any]:
    """The smallest and the largest value of a space of integers, of all elements or of each."""
    if isinstance(space, Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, MultiDiscrete):
        return np.array(space.starts), np.array(space.starts) + np.array(space.nvec) - 1
    if isinstance(space, MultiBinary):
        return 0, 1
    info = np.iinfo(space.dtype)
    return int(info.min), int(info.max)


def box(low: Array, high: Array, dtype: str, names: tuple[str, ...] = (), units: tuple[str, ...] = ()) -> Box:
    """Describe a Box from its bound arrays; equal bounds are written once."""
    return Box(shape=tuple(low.shape), dtype=dtype, low=_compact(low), high=_compact(high), names=names, units=units)


def describe(space: Space) -> str:
    """The space in a few words, for messages and tables."""
    if isinstance(space, Discrete):
        return f"Discrete, an integer from {space.start} to {space.start + space.n - 1}"
    if isinstance(space, MultiDiscrete):
        ranges = (f"{start}…{start + n - 1}" for start, n in zip(space.starts, space.nvec, strict=True))
        return f"MultiDiscrete, integers from {', '.join(ranges)}"
    if isinstance(space, MultiBinary):
        return f"MultiBinary of shape {list(space.shape)}, zeros and ones"
    if isinstance(space, DictSpace | TupleSpace):
        kind = "Dict" if isinstance(space, DictSpace) else "Tuple"
        return f"{kind} of {', '.join(f'{key}: {describe(part)}' for key, part in parts(space).items())}"
    return f"Box of shape {list(space.shape)} and type {space.dtype}"


def _check_length(what: str, values: object, length: int) -> None:
    if isinstance(values, tuple) and len(values) != length:
        raise UsageError(f"The {what!r} of a space do not fit its elements", expected=length, got=len(values))


def _compact(values: Array) -> Bound | tuple[Bound, ...]:
    flat = [float(value) if np.isfinite(value) else None for value in np.ravel(values)]
    return flat[0] if flat and len(set(flat)) == 1 else tuple(flat)
