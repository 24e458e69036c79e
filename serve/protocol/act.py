"""The policy API: an observation in, the environment's own action out; as JSON, msgpack or a NumPy file."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.lib.format

from paddleport import observation
from paddleport.errors import UsageError
from paddleport.manifest import Manifest
from paddleport.spaces import OBSERVATION, Array, Box, Leaves
from serve.protocol.messages import JSON, RequestError, Response, json_response
from serve.protocol.parsing import check_batch, parse, parse_msgpack

MSGPACK = "application/msgpack"
NPY = "application/x-npy"
_MSGPACK_NAMES = {MSGPACK, "application/x-msgpack", "application/vnd.msgpack"}
_NPY_NAMES = {NPY, "application/npy"}
npy: Any = numpy.lib.format  # its types leave most of it out
_EXPECTED = '{"observation": […]} or {"observations": [[…], …]}'
RETURNS = ("value", "logits", "q_values", "mean", "log_std", "probabilities")
_NPY_HEADER = 10_000
_JSON_NAMES = {"", JSON, "application/x-www-form-urlencoded"}  # the last is what curl -d says
_LARGEST = float(np.finfo(np.float32).max)


class ActRequest(NamedTuple):
    """Checked observations, and what to do with them.

    Attributes:
        obs: the graph's inputs by name, [batch, …].
        single: whether one observation was sent by itself, so that one action goes back.
        deterministic: whether the action is the policy's best one, or drawn.
        seed: of the draw; None for a different one each time.
        returns: what else goes back, of `RETURNS`.
        form: the Content-Type of the body and of the answer.
    """

    obs: Leaves
    single: bool
    deterministic: bool = True
    seed: int | None = None
    returns: Sequence[str] = ()
    form: str = JSON


# Unknown fields are refused: a field of a newer server, ignored by this one, would change what the action means.
class _Body(msgspec.Struct, forbid_unknown_fields=True):
    observation: Any = msgspec.UNSET
    observations: Any = msgspec.UNSET
    deterministic: bool = True
    seed: int | None = None
    returns: list[str] = msgspec.field(name="return", default_factory=list)


_DECODER = msgspec.json.Decoder(_Body)
_MSGPACK_DECODER = msgspec.msgpack.Decoder(_Body, ext_hook=lambda code, data: _no_extension(code))


def decode(body: bytes, manifest: Manifest, content_type: str = "", most: int = sys.maxsize) -> ActRequest:
    """Read the body of an act request.

    Args:
        body: decompressed.
        manifest: of the policy that is asked.
        content_type: as sent; anything but msgpack and npy is read as JSON, since many clients say nothing or
            something else.
        most: observations in one request.

    Raises:
        RequestError: the body is not of this form.
        ObservationError: an observation does not belong to the policy's space.
    """
    if content_type in _JSON_NAMES and (array := _plain_vector(body, manifest)) is not None:
        return ActRequest({OBSERVATION: array}, single=True)
    form = JSON
    if content_type and content_type != JSON:
        form = content_type.partition(";")[0].strip().lower()
        if form in _NPY_NAMES:
            return _from_npy(body, manifest)
    if form in _MSGPACK_NAMES:
        form = MSGPACK
        content = parse_msgpack(_MSGPACK_DECODER, body, _EXPECTED)
    else:
        form = JSON
        content = parse(_DECODER, body, _EXPECTED)
    if (content.observation is msgspec.UNSET) == (content.observations is msgspec.UNSET):
        got = "neither" if content.observation is msgspec.UNSET else "both"
        raise RequestError("The body has to name what to act on", expected=_EXPECTED, got=got)
    space = manifest.observation_space
    single = content.observations is msgspec.UNSET
    if single:
        given = content.observation
        obs = observation.one(space, by_names(space, given) if type(given) is dict else given)
    else:
        rows = content.observations
        if isinstance(rows, list):
            check_batch(len(rows), most)
        if isinstance(space, Box) and space.names and type(rows) is list and rows and type(rows[0]) is dict:
            rows = [by_names(space, row) for row in rows]
        obs = observation.many(space, rows)
    if content.deterministic and not content.returns and content.seed is None:
        return ActRequest(obs, single, form=form)
    _check_options(content, manifest)
    return ActRequest(obs, single, content.deterministic, content.seed, content.returns, form)


class _Vector(msgspec.Struct, forbid_unknown_fields=True):
    observation: list[float]


_VECTOR_DECODER = msgspec.json.Decoder(_Vector)


def _plain_vector(body: bytes, manifest: Manifest) -> Array | None:
    """The commonest request by far, one vector of float32 and nothing else, [1, size]; None for every other.

    What it does not take goes the long way and is taken or explained there, so this changes no answer. It takes a
    third of the time.
    """
    space = manifest.observation_space
    if not isinstance(space, Box) or space.dtype != "float32" or len(space.shape) != 1:
        return None
    try:
        numbers = _VECTOR_DECODER.decode(body).observation
    except (msgspec.DecodeError, RecursionError):
        return None
    if len(numbers) != space.shape[0] or any(not -_LARGEST <= number <= _LARGEST for number in numbers):
        return None
    return np.array([numbers], np.float32)


def by_names(space: Any, given: Any) -> Any:  # noqa: ANN401 - spaces and whatever JSON held
    """A vector's numbers in order, of an object that has them by the names of the space; anything else as it is.

    Raises:
        RequestError: a name is missing or unknown.
    """
    if not isinstance(space, Box) or not space.names or not isinstance(given, Mapping):
        return given
    if given.keys() != set(space.names):
        raise RequestError(
            "This observation has other fields than the policy",
            expected=", ".join(space.names),
            got=", ".join(map(str, list(given)[:20])) or "none",
        )
    ordered: Any = [given[name] for name in space.names]
    if any(isinstance(number, list) for number in ordered):
        raise RequestError("A field of this observation is a list", expected="one number for each name")
    return ordered if len(space.shape) == 1 else np.reshape(ordered, space.shape).tolist()


def encode(
    request: ActRequest, actions: Array, identity: dict[str, Any], extras: Mapping[str, Array] | None = None
) -> Response:
    """The answer to an act request.

    Args:
        request: what was asked.
        actions: [batch] for Discrete, [batch, …] for other spaces; finite.
        identity: `policy`, `version` and `precision` of what acted.
        extras: what else was asked for, by name, [batch, …].
    """
    if request.form == NPY:
        return _as_npy(actions, identity)
    content: dict[str, Any]
    if request.single:
        content = {"action": _first(actions), **identity}
        if extras:
            content |= {name: _first(array) for name, array in extras.items()}
    else:
        content = {"actions": actions, **identity, **(extras or {})}
    return json_response(content) if request.form == JSON else _as_msgpack(content)


def _first(array: Array) -> Any:  # noqa: ANN401 - a number or an array
    return array[0] if array.ndim > 1 else array[0].item()


def _check_options(content: _Body, manifest: Manifest) -> None:
    if content.seed is not None:
        if content.deterministic:
            raise RequestError(
                "A seed without randomness has no effect", expected='"deterministic": false beside it', got="true"
            )
        if not 0 <= content.seed < 2**64:
            raise RequestError("The seed is out of range", expected="0 to 2^64 - 1", got=content.seed)
    names = {output.name for output in manifest.outputs}
    possible = [name for name in RETURNS if name in names or (name == "probabilities" and "logits" in names)]
    if strange := [name for name in content.returns if name not in possible]:
        raise RequestError(
            f"This policy has no {strange[0]!r} to return", expected=f"of {', '.join(possible)}", got=strange[0]
        )


def _no_extension(code: int) -> Any:  # noqa: ANN401 - never returns
    raise ValueError(f"extension type {code}")


def _from_npy(body: bytes, manifest: Manifest) -> ActRequest:
    """A body that is one array: a batch of observations, or, of one dimension less, a single one."""
    space = manifest.observation_space
    if not hasattr(space, "shape"):
        raise RequestError("A NumPy body needs a policy with one input", expected="JSON or msgpack for a Dict or Tuple")
    try:
        stream = io.BytesIO(body)
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(stream, max_header_size=_NPY_HEADER)
        left = len(body) - stream.tell()
        count = 1
        for size in shape:
            count *= size
        if dtype.kind not in "biuf" or dtype.hasobject or count < 0 or count * dtype.itemsize != left:
            raise ValueError(f"{left} bytes for shape {list(shape)} of type {dtype}")
        array = np.frombuffer(body, dtype, count, stream.tell()).reshape(shape, order="F" if fortran else "C")
    except Exception as error:  # NumPy reads the header as Python, and fails in many ways
        raise RequestError(
            "The body is no NumPy file of numbers", expected="what numpy.save writes", got=error
        ) from error
    if array.ndim == len(space.shape):
        return ActRequest(observation.one(space, array), single=True, form=NPY)
    return ActRequest(observation.many(space, array), single=False, form=NPY)


def _as_npy(actions: Array, identity: dict[str, Any]) -> Response:
    stream = io.BytesIO()
    np.save(stream, actions, allow_pickle=False)
    body = stream.getvalue()
    headers = [("Content-Type", NPY), ("Content-Length", str(len(body)))]
    headers += [(f"Paddleport-{key.capitalize()}", str(value)) for key, value in identity.items()]
    return Response(200, headers, body)


def _as_msgpack(content: dict[str, Any]) -> Response:
    body = msgspec.msgpack.encode({
        key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in content.items()
    })  # fmt: skip
    return Response(200, [("Content-Type", MSGPACK), ("Content-Length", str(len(body)))], body)


def needed_outputs(request: ActRequest) -> list[str]:
    """The graph's outputs that the answer shows."""
    return ["logits" if name == "probabilities" else name for name in request.returns]


def unsampled(error: UsageError) -> RequestError:
    """A policy that has no distribution was asked for a draw."""
    return RequestError(error.what, expected=error.expected, got=error.got, todo=error.todo)
