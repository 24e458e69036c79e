"""What an administrator may do while the server runs: one function a route, each a wish that is granted everywhere."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from serve.control import Control
from serve.http.request import Request
from serve.messages import Denied, Gathered, Granted, Load, RollBack, SetSplit, Unload, Wish
from serve.protocol.messages import RequestError, Response, error_response, json_response
from serve.protocol.parsing import parse
from serve.runtime.table import Split

_Version = Annotated[int, msgspec.Meta(ge=1, lt=10**9)]


class _RollBack(msgspec.Struct, forbid_unknown_fields=True):
    version: _Version | None = None


class _Split(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    version: _Version
    share: float


_ROLL_BACK = msgspec.json.Decoder(_RollBack)
_SPLIT = msgspec.json.Decoder(_Split)


class Admin:
    """The administrator's routes.

    Args:
        control: who grants wishes.
    """

    def __init__(self, control: Control) -> None:
        self._control = control

    def load(self, request: Request, name: str) -> Response:
        """`POST /v2/repository/models/{name}/load`; what Triton's clients send as parameters is passed over."""
        return self._grant(Load(name))

    def unload(self, request: Request, name: str) -> Response:
        """`POST /v2/repository/models/{name}/unload`."""
        return self._grant(Unload(name))

    def roll_back(self, request: Request, name: str) -> Response:
        """`POST /v1/policies/{name}/rollback`, to the version before or to the one that the body names."""
        expected = '{"version": 2}, or nothing'
        version = parse(_ROLL_BACK, request.body, expected).version if request.body else None
        return self._grant(RollBack(name, version))

    def split(self, request: Request, name: str) -> Response:
        """`PUT /v1/policies/{name}/split`: begin or change a canary or a shadow."""
        expected = '{"kind": "canary" or "shadow", "version": 3, "share": 0.1}'
        body = parse(_SPLIT, request.body, expected)
        if body.kind not in ("canary", "shadow"):
            raise RequestError("There is no such kind of split", expected="canary or shadow", got=repr(body.kind))
        if not 0.0 < body.share <= 1.0:
            raise RequestError("This is no share", expected="above 0, at most 1", got=body.share)
        kind: Literal["canary", "shadow"] = "canary" if body.kind == "canary" else "shadow"
        return self._grant(SetSplit(name, Split(kind, body.version, body.share)))

    def unsplit(self, request: Request, name: str) -> Response:
        """`DELETE /v1/policies/{name}/split`: end it."""
        return self._grant(SetSplit(name, None))

    def _grant(self, wish: Wish) -> Response:
        match self._control.ask(wish):
            case Denied(status=status, message=message):
                return error_response(status, message)
            case Granted(version=version):
                return json_response({"done": True, **({"version": version} if version else {})})
            case Gathered():
                raise RuntimeError("counts are no answer to a wish")
