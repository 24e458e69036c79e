"""One tensor of the Open Inference Protocol ⇄ one NumPy array."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddleport import observation
from paddleport.spaces import Array, Leaf
from serve.protocol.messages import RequestError

# BYTES is in the protocol too; no observation or action is made of it, so it meets "wrong datatype".
_DATATYPES = {
    "bool": "BOOL",
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
}
DATATYPE_OF = {np.dtype(name): datatype for name, datatype in _DATATYPES.items()}
"""The protocol's name of a NumPy type; to ask the type for its own name takes ten times as long."""
_ELEMENT_LIMIT = 2**40
_MOST_DIMENSIONS = 32  # NumPy's own limit


def datatype_of(dtype: str) -> str:
    """The protocol's name of a NumPy type."""
    return _DATATYPES[dtype]


def element_count(name: str, shape: list[int]) -> int:
    """How many elements a declared shape holds.

    Raises:
        RequestError: a dimension is negative, or there are absurdly many, or of elements.
    """
    if len(shape) > _MOST_DIMENSIONS:
        raise RequestError(
            f"Input {name!r} has too many dimensions", expected=f"at most {_MOST_DIMENSIONS}", got=len(shape)
        )
    if any(dimension < 0 for dimension in shape):
        raise RequestError(f"Input {name!r} has a negative dimension", expected="dimensions of 0 or more", got=shape)
    count = 1
    for dimension in shape:
        count *= dimension or 1  # beside a 0 the others have to be possible too, for NumPy
        if count > _ELEMENT_LIMIT:
            raise RequestError(f"Input {name!r} is too large", expected=f"at most {_ELEMENT_LIMIT} elements", got=shape)
    return 0 if 0 in shape else count


def from_json(name: str, shape: list[int], space: Leaf, data: Any) -> Array:  # noqa: ANN401 - whatever JSON held
    """An array from JSON `data`, flat or nested, row-major.

    Raises:
        RequestError: the data does not fill the shape.
        ObservationError: it holds something else than numbers of the space's kind.
    """
    if space.dtype == "float16":
        raise RequestError(f"Input {name!r} of datatype FP16 has JSON data", expected="binary data for FP16")
    count = element_count(name, shape)
    array = observation.as_numbers(space, data, name)
    if array.ndim == 1 and array.size == count:
        return array.reshape(shape)
    if list(array.shape) != shape:
        raise RequestError(
            f"The data of input {name!r} does not fill its shape",
            expected=f"{count} numbers in a flat list, or nested as {shape}",
            got=f"data of shape {list(array.shape)}",
        )
    return array


def from_bytes(name: str, shape: list[int], dtype_name: str, data: memoryview) -> Array:
    """An array from raw bytes: little-endian, row-major, without padding.

    Raises:
        RequestError: the bytes do not fill the shape.
    """
    dtype = np.dtype(dtype_name).newbyteorder("<")
    count = element_count(name, shape)
    if len(data) != count * dtype.itemsize:
        raise RequestError(
            f"The binary data of input {name!r} does not fill its shape",
            expected=f"{count * dtype.itemsize} bytes for shape {shape} of {datatype_of(dtype_name)}",
            got=f"{len(data)} bytes",
        )
    # The copy is aligned, wherever in the body the tensor began.
    return np.frombuffer(data, dtype=dtype).reshape(shape).copy()


def to_bytes(array: Array) -> bytes:
    """The raw bytes of an array: little-endian, row-major, without padding."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
