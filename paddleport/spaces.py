"""Observation and action spaces as the manifest describes them, free of Gymnasium.

Bounds that are infinite are written as null, since JSON has no infinity.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from paddleport.errors import UsageError

Array: TypeAlias = npt.NDArray[Any]
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


Space: TypeAlias = Discrete | Box


def box(low: Array, high: Array, dtype: str, names: tuple[str, ...] = (), units: tuple[str, ...] = ()) -> Box:
    """Describe a Box from its bound arrays; equal bounds are written once."""
    return Box(shape=tuple(low.shape), dtype=dtype, low=_compact(low), high=_compact(high), names=names, units=units)


def describe(space: Space) -> str:
    """The space in a few words, for messages and tables."""
    if isinstance(space, Discrete):
        return f"Discrete, an integer from {space.start} to {space.start + space.n - 1}"
    return f"Box of shape {list(space.shape)} and type {space.dtype}"


def _check_length(what: str, values: object, length: int) -> None:
    if isinstance(values, tuple) and len(values) != length:
        raise UsageError(f"The {what!r} of a space do not fit its elements", expected=length, got=len(values))


def _compact(values: Array) -> Bound | tuple[Bound, ...]:
    flat = [float(value) if np.isfinite(value) else None for value in np.ravel(values)]
    return flat[0] if flat and len(set(flat)) == 1 else tuple(flat)
