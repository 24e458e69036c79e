"""The Open Inference Protocol's infer request: from the body's bytes to checked arrays.

A body is JSON, or JSON followed by raw tensors (its length in `Inference-Header-Content-Length`), or, where
that length is 0, one raw tensor for a policy with one input.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import msgspec
import numpy as np

from paddleport import observation
from paddleport.manifest import Manifest, TensorInfo
from paddleport.spaces import OBSERVATION, Array, Box, Leaf, leaf_spaces
from serve.protocol import tensors
from serve.protocol.messages import RequestError
from serve.protocol.parsing import check_batch, parse

_EXPECTED = '{"inputs": [{"name", "shape", "datatype", "data"}], "outputs": [{"name"}]}, outputs optional'
_FEW = 64
_LARGEST = float(np.finfo(np.float32).max)
_UNSUPPORTED = {
    "shared_memory_region": "tensors in shared memory",
    "classification": "classification of an output",
}


class Output(NamedTuple):
    """One output that the client wants, as JSON or as raw bytes after the JSON."""

    name: str
    binary: bool


class InferRequest(NamedTuple):
    """A checked request.

    Attributes:
        id: the client's own word for it, echoed; empty where it has none.
        feeds: the policy's inputs by name, [batch, …].
        outputs: what goes back, in order.
    """

    id: str
    feeds: dict[str, Array]
    outputs: list[Output]


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: Any = msgspec.UNSET
    parameters: dict[str, Any] = {}


class _Output(msgspec.Struct):
    name: str
    parameters: dict[str, Any] = {}


class _Body(msgspec.Struct):
    inputs: list[_Input]
    outputs: list[_Output] = []
    id: str = ""
    parameters: dict[str, Any] = {}


_DECODER = msgspec.json.Decoder(_Body)


def decode(body: bytes, header_length: str | None, manifest: Manifest, most: int = sys.maxsize) -> InferRequest:
    """Read an infer request.

    Args:
        body: the decompressed body.
        header_length: `Inference-Header-Content-Length` as sent, or None.
        manifest: of the policy that is asked.
        most: observations in one request.

    Raises:
        RequestError: the request is not of this form.
        ObservationError: an input does not belong to the policy's observation space.
    """
    length = len(body) if header_length is None else _header_length(header_length, len(body))
    if length == 0 and header_length is not None:
        return _decode_raw(body, manifest)
    plain = _plain(body[:length], body[length:], manifest)
    if plain is not None:
        return plain
    content = parse(_DECODER, body[:length], _EXPECTED)
    check_batch(max((given.shape[0] for given in content.inputs if given.shape), default=0), most)
    feeds = _feeds(content.inputs, memoryview(body)[length:], manifest)
    return InferRequest(content.id, feeds, _outputs(content, manifest))


class _PlainSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    binary_data_size: int = -1


class _PlainFlag(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    binary_data: bool = False


class _PlainInput(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    shape: list[int]
    datatype: str
    data: list[float] | None = None
    parameters: _PlainSize = _PlainSize()


class _PlainOutput(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    parameters: _PlainFlag = _PlainFlag()


class _PlainBody(msgspec.Struct, forbid_unknown_fields=True):
    inputs: list[_PlainInput]
    outputs: list[_PlainOutput]
    id: str = ""


_PLAIN_DECODER = msgspec.json.Decoder(_PlainBody)


def _plain(text: bytes, raw: bytes, manifest: Manifest) -> InferRequest | None:
    """The commonest requests, a few vectors of float32 for a policy that takes nothing else; None for every other.

    What it does not take goes the long way and is taken or explained there, so this changes no answer. It takes a
    fifth of the time.
    """
    space = manifest.observation_space
    if not isinstance(space, Box) or space.dtype != "float32" or len(space.shape) != 1:
        return None
    try:
        content = _PLAIN_DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if len(content.inputs) != 1 or not content.outputs:
        return None
    given = content.inputs[0]
    array = _plain_array(given, raw, space.shape[0])
    if array is None or given.name != OBSERVATION:
        return None
    known = [output.name for output in manifest.outputs]
    wanted = [output.name for output in content.outputs]
    if len(set(wanted)) < len(wanted) or any(name not in known for name in wanted):
        return None
    return InferRequest(
        content.id,
        {OBSERVATION: array},
        [Output(output.name, output.parameters.binary_data) for output in content.outputs],
    )


def _plain_array(given: _PlainInput, raw: bytes, width: int) -> Array | None:
    """[rows, width] of what is given as JSON or as raw bytes, where it is a few rows that are whole and finite."""
    if given.datatype != "FP32" or len(given.shape) != 2 or given.shape[1] != width or not 0 < given.shape[0] <= _FEW:
        return None
    count, size = given.shape[0] * width, given.parameters.binary_data_size
    if size < 0:
        data = given.data
        if raw or data is None or len(data) != count or any(not -_LARGEST <= number <= _LARGEST for number in data):
            return None
        return np.array(data, np.float32).reshape(given.shape)
    if given.data is not None or size != len(raw) or size != 4 * count:
        return None
    array = np.frombuffer(raw, "<f4").astype(np.float32, copy=False).reshape(given.shape)
    return array if observation.is_finite(array, array.dtype) else None


def _header_length(text: str, available: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise RequestError(
            "Inference-Header-Content-Length is no length", expected="the number of bytes of the JSON", got=repr(text)
        )
    if int(text) > available:
        raise RequestError(
            "Inference-Header-Content-Length reaches beyond the body",
            expected=f"at most {available}, the body's length",
            got=text,
        )
    return int(text)


def _decode_raw(body: bytes, manifest: Manifest) -> InferRequest:
    if len(manifest.inputs) != 1:
        names = ", ".join(given.name for given in manifest.inputs)
        raise RequestError("A raw body needs a policy with one input", expected="a JSON request", got=f"inputs {names}")
    given = manifest.inputs[0]
    row = math.prod(given.shape) * np.dtype(given.dtype).itemsize
    if not body or not row or len(body) % row:
        raise RequestError(
            f"The raw body is no whole number of observations for input {given.name!r}",
            expected=f"a multiple of {row} bytes",
            got=f"{len(body)} bytes",
        )
    array = tensors.from_bytes(given.name, [len(body) // row, *given.shape], given.dtype, memoryview(body))
    feeds = {given.name: observation.array_of_many(_leaf(manifest, given.name), array, given.name)}
    return InferRequest("", feeds, [Output(output.name, binary=True) for output in manifest.outputs])


def _feeds(inputs: list[_Input], raw: memoryview, manifest: Manifest) -> dict[str, Array]:
    known = {given.name: given for given in manifest.inputs}
    feeds: dict[str, Array] = {}
    for tensor in inputs:
        if tensor.name not in known or tensor.name in feeds:
            raise RequestError(
                f"Input {tensor.name!r} is {'given twice' if tensor.name in feeds else 'unknown'}",
                expected=f"each once: {', '.join(known)}",
                got=", ".join(other.name for other in inputs),
            )
        array, raw = _array(tensor, known[tensor.name], raw, manifest)
        feeds[tensor.name] = observation.array_of_many(_leaf(manifest, tensor.name), array, tensor.name)
    if missing := known.keys() - feeds.keys():
        raise RequestError("An input is missing", expected=", ".join(known), got=f"none named {', '.join(missing)}")
    if len(raw):
        raise RequestError(
            "The body is longer than its binary tensors",
            expected="binary_data_size of the inputs to add up to it",
            got=f"{len(raw)} bytes more",
        )
    sizes = {name: len(array) for name, array in feeds.items()}
    if len(set(sizes.values())) > 1:
        raise RequestError("The inputs are batches of different sizes", expected="one batch size", got=sizes)
    return feeds


def _leaf(manifest: Manifest, name: str) -> Leaf:
    """The space of one input."""
    return leaf_spaces(manifest.observation_space)[name]


def _array(tensor: _Input, given: TensorInfo, raw: memoryview, manifest: Manifest) -> tuple[Array, memoryview]:
    """The tensor's array, and what of the raw bytes is left after it."""
    _refuse_unsupported(tensor.parameters)
    wanted = tensors.datatype_of(given.dtype)
    if tensor.datatype != wanted:
        raise RequestError(f"Input {tensor.name!r} has the wrong datatype", expected=wanted, got=repr(tensor.datatype))
    size = tensor.parameters.get("binary_data_size")
    if (size is None) == (tensor.data is msgspec.UNSET):
        raise RequestError(
            f"Input {tensor.name!r} has {'no data' if size is None else 'its data twice'}",
            expected="either data, or binary_data_size among its parameters",
            got="neither" if size is None else "both",
        )
    if size is None:
        return tensors.from_json(tensor.name, tensor.shape, _leaf(manifest, tensor.name), tensor.data), raw
    if type(size) is not int or not 0 <= size <= len(raw):
        raise RequestError(
            f"binary_data_size of input {tensor.name!r} does not fit the body",
            expected=f"an integer from 0 to {len(raw)}, the bytes left after the JSON",
            got=size,
        )
    return tensors.from_bytes(tensor.name, tensor.shape, given.dtype, raw[:size]), raw[size:]


def _outputs(content: _Body, manifest: Manifest) -> list[Output]:
    default = _flag(content.parameters, "binary_data_output", default=False)
    known = [output.name for output in manifest.outputs]
    if not content.outputs:
        return [Output(name, default) for name in known]
    wanted = [output.name for output in content.outputs]
    if strange := [name for name in wanted if name not in known or wanted.count(name) > 1]:
        raise RequestError(
            f"Output {strange[0]!r} is {'asked for twice' if strange[0] in known else 'unknown'}",
            expected=f"each at most once: {', '.join(known)}",
            got=", ".join(wanted),
        )
    for output in content.outputs:
        _refuse_unsupported(output.parameters)
    return [Output(asked.name, _flag(asked.parameters, "binary_data", default)) for asked in content.outputs]


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(f"Parameter {name} is no truth value", expected="true or false", got=repr(value))
    return value


def _refuse_unsupported(parameters: dict[str, Any]) -> None:
    for name in _UNSUPPORTED.keys() & parameters.keys():
        raise RequestError(
            f"This server does not do {_UNSUPPORTED[name]}",
            status=501,
            todo=f"Leave the parameter {name} out",
        )
