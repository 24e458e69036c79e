"""Turning what a caller hands over into the array that the graph takes, or into a message that helps."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddleport.errors import ObservationError
from paddleport.spaces import Array, Box, Space, describe

_KINDS = {"f": "biuf", "i": "iu", "u": "iu"}


def one(space: Space, value: Any) -> Array:  # noqa: ANN401 - whatever a caller or a JSON body holds
    """A single observation as an array of shape [1, …].

    Raises:
        ObservationError: wrong shape or type, or not finite.
    """
    array = _numeric(space, value)
    if array.shape != space.shape:
        raise _refused(space, f"shape {list(array.shape)}", expected=f"shape {list(space.shape)}")
    return _checked(space, array[np.newaxis])


def many(space: Space, value: Any) -> Array:  # noqa: ANN401
    """A batch of observations as an array of shape [batch, …], batch ≥ 1.

    Raises:
        ObservationError: wrong shape or type, no observation at all, or one that is not finite.
    """
    array = _numeric(space, value)
    if array.ndim == 0 or array.shape[1:] != space.shape or not len(array):
        expected = f"shape {['batch', *space.shape]} with at least one observation".replace("'", "")
        raise _refused(space, f"shape {list(array.shape)}", expected=expected)
    return _checked(space, array)


def _numeric(space: Space, value: Any) -> Array:  # noqa: ANN401
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise _refused(space, "rows of different lengths, or a number out of range") from error
    wanted = np.dtype(space.dtype)
    if array.dtype.kind == "b" or array.dtype.kind not in _KINDS[wanted.kind]:
        raise _refused(space, f"values of type {_type_name(array)}", expected=f"numbers of type {wanted}")
    return array


def _type_name(array: Array) -> str:
    if array.dtype.kind == "O":
        return "null, a nested object, or rows of different lengths"
    return {"U": "text", "S": "bytes", "b": "true/false"}.get(array.dtype.kind, str(array.dtype))


def _checked(space: Space, array: Array) -> Array:
    wanted = np.dtype(space.dtype)
    if wanted.kind != "f":
        return _within_integers(space, array, wanted)
    with np.errstate(over="ignore"):
        converted = array.astype(wanted, copy=False)
    if not np.isfinite(converted).all():
        row, *index = np.argwhere(~np.isfinite(converted))[0].tolist()
        got = f"{array[(row, *index)]} at index {index} of observation {row}"
        raise _refused(space, got, expected="finite numbers")
    return np.ascontiguousarray(converted)


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
