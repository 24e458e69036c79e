"""A whole HTTP request, wherever it came from."""

from __future__ import annotations

import io
import sys
import urllib.parse
from typing import TYPE_CHECKING, Any

from serve.protocol.body import decompressed, read_wsgi_body

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_UNPREFIXED = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}
ENVIRON_KEY = "paddleport.request"


class Request:
    """One request.

    Attributes:
        method: such as `POST`.
        target: the path as it was sent, percent-encoded.
        query: what stood behind `?`, as it was sent.
        headers: values by lower-case name; one that was repeated is joined by commas.
        body: as it was sent, whole.
        peer: the client's address.
        id: the client's `X-Request-Id`, or one of ours; empty until somebody needs it.
        connection: a number that the requests of one open connection share; 0 where it is not known.
    """

    __slots__ = ("body", "connection", "headers", "id", "keep_alive", "method", "peer", "query", "target")

    def __init__(
        self,
        method: str,
        target: str,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        peer: str = "",
    ) -> None:
        self.method = method
        self.target = target
        self.query = query
        self.headers = {} if headers is None else headers
        self.body = body
        self.peer = peer
        self.id = ""
        self.connection = 0
        self.keep_alive = False

    def segments(self) -> list[str]:
        """The path's parts between its slashes, each decoded by itself, so that an encoded slash stays in its part."""
        parts = self.target.split("/")
        return parts if "%" not in self.target else [urllib.parse.unquote(part, errors="replace") for part in parts]

    def content(self, limit: int) -> bytes:
        """The body, decompressed where `Content-Encoding` says so.

        Raises:
            RequestError: it is too large, or not compressed as it says.
        """
        encoding = self.headers.get("content-encoding")
        return self.body if encoding is None else decompressed(self.body, encoding, limit)


def to_environ(request: Request) -> dict[str, Any]:
    """The request for a WSGI application."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        # WSGI wants the bytes of the path, each as one character.
        "PATH_INFO": urllib.parse.unquote_to_bytes(request.target).decode("latin-1"),
        "QUERY_STRING": request.query,
        "SERVER_NAME": "paddleport",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": request.peer,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        ENVIRON_KEY: request,
    }
    for name, value in request.headers.items():
        environ[_UNPREFIXED.get(name) or "HTTP_" + name.upper().replace("-", "_")] = value
    environ["CONTENT_LENGTH"] = str(len(request.body))
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    return environ


def from_environ(environ: WSGIEnvironment, limit: int) -> Request:
    """The request behind a WSGI environment, our own or another server's.

    Raises:
        RequestError: its body is too large, or was cut short.
    """
    known = environ.get(ENVIRON_KEY)
    if isinstance(known, Request):
        return known
    headers = {key[5:].replace("_", "-").lower(): value for key, value in environ.items() if key.startswith("HTTP_")}
    for name, key in _UNPREFIXED.items():
        if environ.get(key):
            headers[name] = environ[key]
    path = environ.get("PATH_INFO", "/").encode("latin-1", "replace")
    return Request(
        environ["REQUEST_METHOD"],
        urllib.parse.quote_from_bytes(path),
        environ.get("QUERY_STRING", ""),
        headers,
        read_wsgi_body(environ, limit),
        environ.get("REMOTE_ADDR", ""),
    )
