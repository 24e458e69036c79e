"""A look into an ONNX file without the onnx package: does it keep weights in other files.

ONNX Runtime would read those from wherever the file says. A bundle's files are whole in themselves, so none may.
Protobuf's wire format: https://protobuf.dev/programming-guides/encoding; field numbers: onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_DEEPEST = 64


def keeps_data_elsewhere(model: bytes) -> bool:
    """Whether a tensor anywhere in an ONNX file has its numbers in another file.

    Raises:
        ValueError: the bytes are no protobuf message, or nested too deeply.
    """
    return _looks_elsewhere(memoryview(model), "model", 0)


def _looks_elsewhere(message: memoryview, kind: str, depth: int) -> bool:
    if depth > _DEEPEST:
        raise ValueError("graphs are nested too deeply")
    inside = _INSIDE[kind]
    for number, content in _fields(message):
        if kind == "tensor":
            if number == _EXTERNAL_DATA or (number == _DATA_LOCATION and content != 0):
                return True
        elif (
            isinstance(content, memoryview)
            and number in inside
            and _looks_elsewhere(content, inside[number], depth + 1)
        ):
            return True
    return False


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Each field's number, and its bytes or, of a number, its value."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        wire = tag & 7
        if wire == _VARINT:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            size, position = _varint(message, position)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire} at byte {position}")
        if position + size > len(message):
            raise ValueError(f"a field of {size} bytes at byte {position} of {len(message)}")
        yield tag >> 3, message[position : position + size]
        position += size


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"a number without an end before byte {position}")
