"""What goes out: a response, and the error that becomes one."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

import orjson

from paddleport.errors import PaddleportError

JSON = "application/json"
ERROR_KIND_HEADER = "Paddleport-Error"


class Response(NamedTuple):
    """An HTTP response before any transport has it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def status_line(self) -> str:
        """Status and phrase, as WSGI wants them."""
        return _STATUS_LINES[self.status]


class Pending(Protocol):
    """A response that comes later; an `asyncio.Future` is one."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> object:
        """Call this with me once the response is there."""

    def cancelled(self) -> bool:
        """Whether there will be none."""

    def result(self) -> Response:
        """The response, once it is there."""


class RequestError(PaddleportError):
    """A request that cannot be answered as it stands; `status` is the HTTP status that says so."""

    def __init__(
        self, what: str, *, status: int = 400, expected: object = None, got: object = None, todo: str | None = None
    ) -> None:
        self.status = status
        super().__init__(what, expected=expected, got=got, todo=todo)


def json_response(content: Any, status: int = 200) -> Response:  # noqa: ANN401 - anything JSON can hold
    """A JSON response; NumPy arrays (contiguous, finite) are written as lists."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(status, [("Content-Type", JSON), ("Content-Length", str(len(body)))], body)


def error_response(status: int, message: str, kind: str | None = None) -> Response:
    """The answer to every failure: `{"error": message}`.

    Args:
        status: the HTTP status.
        message: what went wrong, what was expected, what came and what to do.
        kind: the error's class, for clients that raise it again; it travels in a header.
    """
    # A message may quote what a client sent, lone surrogates included, which JSON cannot carry.
    response = json_response({"error": message.encode("utf-8", "replace").decode()}, status)
    if kind:
        response.headers.append((ERROR_KIND_HEADER, kind))
    return response


def busy(why: str) -> Response:
    """The answer where too much is under way already: 503, to be tried again soon."""
    response = error_response(503, f"{why}. Try again soon.")
    response.headers.append(("Retry-After", "1"))
    return response


_STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}
