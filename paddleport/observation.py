"""Turning what a caller hands over into the array that the graph takes, or into a message that helps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paddleport.errors import ObservationError
from paddleport.spaces import (
    OBSERVATION,
    Array,
    Box,
    DictSpace,
    Leaf,
    Leaves,
    Space,
    TupleSpace,
    describe,
    integer_range,
    parts,
)

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
_FEW_KEYS = 8


def _largest(name: str) -> float:
    """The largest float64 that is still finite once it is rounded to the type."""
    info = np.finfo(name)
    largest, step = float(info.max), float(info.max) - float(np.nextafter(info.max, info.min))
    return largest if name == "float64" else float(np.nextafter(largest + step / 2, 0.0))


_LARGEST = {np.dtype(name): _largest(name) for name in ("float16", "float32", "float64")}


def one(space: Space, value: Any) -> Leaves:  # noqa: ANN401 - whatever a caller or a JSON body holds
    """A single observation as arrays of shape [1, …], by the names of the graph's inputs.

    Args:
        space: the observation space.
        value: an array or nested list; for a Dict an object, for a Tuple a list, of these.

    Raises:
        ObservationError: wrong shape or type, or not finite, or a part is missing or unknown.
    """
    return _each(space, value, OBSERVATION, _one_array)


def many(space: Space, value: Any) -> Leaves:  # noqa: ANN401
    """A batch of observations as arrays of shape [batch, …], batch ≥ 1, by the names of the graph's inputs.

    Args:
        space: the observation space.
        value: an array or nested list. For a Dict or Tuple either a list of observations, or one observation whose
            arrays hold the whole batch, as Gymnasium's vector environments give it.

    Raises:
        ObservationError: wrong shape or type, no observation at all, or one that is not finite, or parts that are not
            equally many.
    """
    if isinstance(space, DictSpace) and isinstance(value, list | tuple):
        value = _turned(space, value, OBSERVATION)
    if isinstance(space, TupleSpace) and isinstance(value, list):
        value = _turned(space, value, OBSERVATION)
    leaves = _each(space, value, OBSERVATION, array_of_many)
    sizes = {name: len(array) for name, array in leaves.items()}
    if len(set(sizes.values())) > 1:
        raise ObservationError(
            "The parts of these observations are not equally many",
            expected="the same number of each",
            got=", ".join(f"{size} of {name}" for name, size in sizes.items()),
        )
    return leaves


def _each(space: Space, value: Any, name: str, read: Callable[[Leaf, Any, str], Array]) -> Leaves:  # noqa: ANN401
    """Read every single array of a nested observation."""
    if not isinstance(space, DictSpace | TupleSpace):
        return {name: read(space, value, name)}
    leaves: Leaves = {}
    for key, part in _parts_of(space, value, name).items():
        leaves |= _each(parts(space)[key], part, f"{name}.{key}", read)
    return leaves


def _parts_of(space: DictSpace | TupleSpace, value: Any, name: str) -> dict[str, Any]:  # noqa: ANN401
    """The parts of one observation by key, exactly those of the space."""
    keys = list(parts(space))
    if isinstance(space, DictSpace) and isinstance(value, Mapping):
        given = {str(key): part for key, part in value.items()}
    elif isinstance(space, TupleSpace) and isinstance(value, list | tuple):
        given = {str(index): part for index, part in enumerate(value)}
    else:
        kind = "an object with" if isinstance(space, DictSpace) else "a list of"
        raise _refused(space, f"{name} of type {type(value).__name__}", expected=f"{kind} {', '.join(keys)}")
    if given.keys() != set(keys):
        few = ", ".join(sorted(given)[:_FEW_KEYS]) or "nothing"
        raise _refused(space, f"{name} with {few}", expected=f"{name} with exactly {', '.join(keys)}")
    return given


def _turned(space: DictSpace | TupleSpace, rows: Sequence[Any], name: str) -> Any:  # noqa: ANN401
    """A list of observations as one observation whose parts are lists."""
    split = [_parts_of(space, row, name) for row in rows]
    columns: dict[str, Any] = {}
    for key, part in parts(space).items():
        column = [row[key] for row in split]
        columns[key] = _turned(part, column, f"{name}.{key}") if isinstance(part, DictSpace | TupleSpace) else column
    return columns if isinstance(space, DictSpace) else tuple(columns.values())


def _one_array(space: Leaf, value: Any, name: str) -> Array:  # noqa: ANN401
    array = as_numbers(space, value, name)
    if array.shape != space.shape:
        raise _refused(space, f"shape {list(array.shape)}", expected=f"shape {list(space.shape)}", name=name)
    return _checked(space, array[np.newaxis], name)


def array_of_many(space: Leaf, value: Any, name: str = OBSERVATION) -> Array:  # noqa: ANN401
    """A batch of a single array, [batch, …], batch ≥ 1.

    Raises:
        ObservationError: wrong shape or type, no observation at all, or one that is not finite.
    """
    array = as_numbers(space, value, name)
    if array.ndim == 0 or array.shape[1:] != space.shape or not len(array):
        expected = f"shape {['batch', *space.shape]} with at least one observation".replace("'", "")
        raise _refused(space, f"shape {list(array.shape)}", expected=expected, name=name)
    return _checked(space, array, name)


def as_numbers(space: Leaf, value: Any, name: str = OBSERVATION) -> Array:  # noqa: ANN401
    """`value` as an array of numbers that the space's type can hold, of whatever shape it has.

    Raises:
        ObservationError: it is no array of such numbers.
    """
    wanted = np.dtype(space.dtype)
    if wanted == np.uint8 and type(value) is list and (image := _image(value)) is not None:
        return image
    if isinstance(value, list | tuple) and (word := _no_numbers(value)):
        raise _refused(space, f"values of type {word}", expected=f"numbers of type {wanted}", name=name)
    try:
        array = np.asarray(value)
        if isinstance(value, list | tuple) and not array.size:
            array = array.astype(wanted)  # NumPy takes an empty list for one of fractions
    except (ValueError, OverflowError) as error:
        raise _refused(space, "rows of different lengths, or a number out of range", name=name) from error
    if array.dtype.kind == "b" or array.dtype.kind not in _KINDS[wanted.kind]:
        got = f"values of type {_type_name(array)}"
        raise _refused(space, got, expected=f"numbers of type {wanted}", name=name)
    return array


def _image(value: list[Any]) -> Array | None:
    """Nested lists of whole numbers from 0 to 255, in half of the time that NumPy takes; None for all else."""
    shape, flat = [len(value)], value
    while flat and type(flat[0]) is list:
        size = len(flat[0])
        if len(shape) == _DEEPEST or any(type(row) is not list or len(row) != size for row in flat):
            return None
        shape.append(size)
        flat = list(itertools.chain.from_iterable(flat))
    if set(map(type, flat)) != {int}:
        return None
    try:
        return np.frombuffer(bytes(flat), np.uint8).reshape(shape)
    except ValueError:  # one is out of range
        return None


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
    if array.dtype == dtype and is_plainly_finite(array):
        return True
    largest = _LARGEST[dtype]
    if array.size <= _FEW:  # five times as fast as NumPy for a vector
        return all(-largest <= number <= largest for number in array.ravel().tolist())
    return bool(-largest <= array.min() and array.max() <= largest)


def is_plainly_finite(array: Array) -> bool:
    """Whether a sum over an array of floating-point numbers is finite, and so every one; False may be an overflow."""
    flat = array.ravel()
    # Right after a run of ONNX Runtime NumPy's product takes 2 µs until its code is in the cache again.
    return math.isfinite(sum(flat.tolist()) if flat.size <= _FEW else flat.dot(flat))


def _type_name(array: Array) -> str:
    if array.dtype.kind == "O":
        return "null, a nested object, or a number too large"
    return {"U": "text", "S": "bytes", "b": "true/false"}.get(array.dtype.kind, str(array.dtype))


def _checked(space: Leaf, array: Array, name: str) -> Array:
    wanted = np.dtype(space.dtype)
    if wanted.kind != "f":
        return _within_integers(space, array, wanted, name)
    if not is_finite(array, wanted):
        with np.errstate(over="ignore"):
            row, *index = np.argwhere(~np.isfinite(array.astype(wanted)))[0].tolist()
        got = f"{array[(row, *index)]} at index {index} of observation {row}"
        raise _refused(space, got, expected="finite numbers", name=name)
    return np.ascontiguousarray(array, dtype=wanted)


def _within_integers(space: Leaf, array: Array, wanted: np.dtype[Any], name: str) -> Array:
    if isinstance(space, Box) and array.dtype == wanted:
        return np.ascontiguousarray(array)  # a Box of integers takes all that its type can hold
    low, high = integer_range(space)
    if array.size and ((array < low).any() or (array > high).any()):
        bounds = f"integers {np.min(low)} to {np.max(high)}"
        if np.ndim(low):
            bounds = f"integers {np.asarray(low).tolist()} to {np.asarray(high).tolist()}"
        raise _refused(space, f"from {array.min()} to {array.max()}", expected=bounds, name=name)
    return np.ascontiguousarray(array.astype(wanted, copy=False))


def _refused(space: Space, got: str, expected: str | None = None, name: str = OBSERVATION) -> ObservationError:
    suffix = f" ({describe(space)})" if expected else ""
    part = "This observation" if name == OBSERVATION else f"Part {name!r} of this observation"
    return ObservationError(
        f"{part} does not fit the policy",
        expected=f"{expected or describe(space)}{suffix}",
        got=got,
    )
