"""The policy API: an observation in, the environment's own action out."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from paddleport import observation
from paddleport.spaces import Array, Leaves, Space
from serve.protocol.messages import RequestError, Response, json_response
from serve.protocol.parsing import parse

_EXPECTED = '{"observation": […]} or {"observations": [[…], …]}'


class ActRequest(NamedTuple):
    """Checked observations.

    Attributes:
        obs: the graph's inputs by name, [batch, …].
        single: whether one observation was sent by itself, so that one action goes back.
    """

    obs: Leaves
    single: bool


# Unknown fields are refused: a field of a newer server, ignored by this one, would change what the action means.
class _Body(msgspec.Struct, forbid_unknown_fields=True):
    observation: Any = msgspec.UNSET
    observations: Any = msgspec.UNSET


_DECODER = msgspec.json.Decoder(_Body)


def decode(body: bytes, space: Space) -> ActRequest:
    """Read the body of an act request.

    Raises:
        RequestError: the body is not of this form.
        ObservationError: an observation does not belong to the policy's space.
    """
    content = parse(_DECODER, body, _EXPECTED)
    if (content.observation is msgspec.UNSET) == (content.observations is msgspec.UNSET):
        got = "neither" if content.observation is msgspec.UNSET else "both"
        raise RequestError("The body has to name what to act on", expected=_EXPECTED, got=got)
    if content.observations is msgspec.UNSET:
        return ActRequest(observation.one(space, content.observation), single=True)
    return ActRequest(observation.many(space, content.observations), single=False)


def encode(request: ActRequest, actions: Array, identity: dict[str, Any]) -> Response:
    """The answer to an act request.

    Args:
        request: what was asked.
        actions: [batch] for Discrete, [batch, …] for other spaces; finite.
        identity: `policy`, `version` and `precision` of what acted.
    """
    if not request.single:
        return json_response({"actions": actions, **identity})
    action = actions[0] if actions.ndim > 1 else actions[0].item()
    return json_response({"action": action, **identity})
