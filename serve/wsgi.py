"""Between the server's own requests and responses and WSGI, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from serve.http.request import ENVIRON_KEY, from_environ
from serve.protocol.compress import packed
from serve.protocol.messages import RequestError, Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

    from serve.front import Hot
    from serve.http.request import Request


class FastRoutes:
    """WSGI middleware under servers of others (gunicorn): answers act and infer without Flask.

    Args:
        application: what answers everything else.
        find: tells whether a request is one of the hot ones.
        answer: answers those.
        error: turns an error into its answer.
        limit: largest body.
    """

    def __init__(
        self,
        application: WSGIApplication,
        find: Callable[[Request], Hot | None],
        answer: Callable[[Hot, Request], Response],
        error: Callable[[RequestError], Response],
        limit: int,
    ) -> None:
        self._application = application
        self._find = find
        self._answer = answer
        self._error = error
        self._limit = limit

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        try:
            request = from_environ(environ, self._limit)
            environ[ENVIRON_KEY] = request
            hot = self._find(request)
            if hot is None:
                return self._application(environ, start_response)
            response = packed(self._answer(hot, request), request.headers.get("accept-encoding", ""))
        except RequestError as error:
            response = self._error(error)
        start_response(response.status_line, response.headers)
        return [response.body]


def answer_of(application: Callable[..., Any], environ: dict[str, Any]) -> Response:
    """What a WSGI application answers."""
    seen: list[Any] = []

    def start_response(
        status: str, headers: list[tuple[str, str]], exc_info: object = None
    ) -> Callable[[bytes], object]:
        seen[:] = [int(status[:3]), headers]
        return lambda data: None

    parts = application(environ, start_response)
    try:
        body = b"".join(parts)
    finally:
        close = getattr(parts, "close", None)
        if close:
            close()
    return Response(seen[0], list(seen[1]), body)
