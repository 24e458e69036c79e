"""Turning what a caller hands over into the array that the graph takes, or into a message that helps."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddleport.errors import ObservationError
from paddleport.spaces import Array, Box, Space, describe

_KINDS = {"f": "biuf", "i": "iu", "u": "iu"}
_NUMBERS = {int, float}
_NO_NUMBERS = {
    str: "text",
    bytes: "bytes",
    bool: "true/false",
    np.bool_: "true/false",
    type(None): "null",
    dict: "a nested object",
}
_DEEPEST = 32  # NumPy's own limit
_FEW = 64


def _largest(name: str) -> float:
    """The largest float64 that is still finite once it is rounded to the type."""
    info = np.finfo(name)
    largest, step = float(info.max), float(info.max) - float(np.nextafter(info.max, info.min))
    return largest if name == "float64" else float(np.nextafter(largest + step / 2, 0.0))


_LARGEST = {np.dtype(name): _largest(name) for name in ("float16", "float32", "float64")}


def one(space: Space, value: Any) -> Array:  # noqa: ANN401 - whatever a caller or a JSON body holds
    """A single observation as an array of shape [1, …].

    Raises:
        ObservationError: wrong shape or type, or not finite.
    """
    array = as_numbers(space, value)
    if array.shape != space.shape:
        raise _refused(space, f"shape {list(array.shape)}", expected=f"shape {list(space.shape)}")
    return _checked(space, array[np.newaxis])


def many(space: Space, value: Any) -> Array:  # noqa: ANN401
    """A batch of observations as an array of shape [batch, …], batch ≥ 1.

    Raises:
        ObservationError: wrong shape or type, no observation at all, or one that is not finite.
    """
    array = as_numbers(space, value)
    if array.ndim == 0 or array.shape[1:] != space.shape or not len(array):
        expected = f"shape {['batch', *space.shape]} with at least one observation".replace("'", "")
        raise _refused(space, f"shape {list(array.shape)}", expected=expected)
    return _checked(space, array)


def as_numbers(space: Space, value: Any) -> Array:  # noqa: ANN401
    """`value` as an array of numbers that the space's type can hold, of whatever shape it has.

    Raises:
        ObservationError: it is no array of such numbers.
    """
    wanted = np.dtype(space.dtype)
    if isinstance(value, list | tuple) and (word := _no_numbers(value)):
        raise _refused(space, f"values of type {word}", expected=f"numbers of type {wanted}")
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise _refused(space, "rows of different lengths, or a number out of range") from error
    if array.dtype.kind == "b" or array.dtype.kind not in _KINDS[wanted.kind]:
        raise _refused(space, f"values of type {_type_name(array)}", expected=f"numbers of type {wanted}")
    return array


def _no_numbers(value: list[Any] | tuple[Any, ...], depth: int = 1) -> str | None:
    """What a nested list holds beside numbers, where NumPy must not see it.

    NumPy would give every element the room of the longest text (one long string among many short ones takes
    the machine's memory), and take true for 1 where it stands among numbers.
    """
    kinds = set(map(type, value))
    if kinds <= _NUMBERS:
        return None
    if word := next((word for kind, word in _NO_NUMBERS.items() if kind in kinds), None):
        return word
    if not kinds & {list, tuple}:
        return None
    if depth == _DEEPEST:
        return f"lists nested deeper than {_DEEPEST}"
    rows = (row for row in value if isinstance(row, list | tuple))
    return next((word for row in rows if (word := _no_numbers(row, depth + 1))), None)


def is_finite(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether every element is a finite number of the floating-point type `dtype`, or becomes one by rounding."""
    largest = _LARGEST[dtype]
    if array.size <= _FEW:  # five times as fast as NumPy for a vector
        return all(-largest <= number <= largest for number in array.ravel().tolist())
    return bool(-largest <= array.min() and array.max() <= largest)


def _type_name(array: Array) -> str:
    if array.dtype.kind == "O":
        return "null, a nested object, or a number too large"
    return {"U": "text", "S": "bytes", "b": "true/false"}.get(array.dtype.kind, str(array.dtype))


def _checked(space: Space, array: Array) -> Array:
    wanted = np.dtype(space.dtype)
    if wanted.kind != "f":
        return _within_integers(space, array, wanted)
    if not is_finite(array, wanted):
        with np.errstate(over="ignore"):
            row, *index = np.argwhere(~np.isfinite(array.astype(wanted)))[0].tolist()
        got = f"{array[(row, *index)]} at index {index} of observation {row}"
        raise _refused(space, got, expected="finite numbers")
    return np.ascontiguousarray(array, dtype=wanted)


def _within_integers(space: Space, array: Array, wanted: np.dtype[Any]) -> Array:
    if isinstance(space, Box):
        info = np.iinfo(wanted)
        low, high = int(info.min), int(info.max)
    else:
        low, high = space.start, space.start + space.n - 1
    if array.size and (array.min() < low or array.max() > high):
        raise _refused(space, f"from {array.min()} to {array.max()}", expected=f"integers {low} to {high}")
    return np.ascontiguousarray(array.astype(wanted, copy=False))


def _refused(space: Space, got: str, expected: str | None = None) -> ObservationError:
    suffix = f" ({describe(space)})" if expected else ""
    return ObservationError(
        "This observation does not fit the policy",
        expected=f"{expected or describe(space)}{suffix}",
        got=got,
    )
