"""One client's connection: bytes in, whole requests to the application, answers out in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import httptools

from serve.http.request import Request
from serve.protocol.compress import packed
from serve.protocol.messages import Pending, Response, busy, error_response

if TYPE_CHECKING:
    from serve.http.listener import Listener

_MOST_WAITING = 16  # requests that a client sends without waiting for answers, before its bytes are left in the socket
_MOST_HEADERS = 100
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINGER_SECONDS = 5.0
_FOREVER = float("inf")
_OFFER = ("connection", "upgrade", "http2-settings", "expect")
_STRANGERS_BYTES = 64 * 1024  # of a body, from whom the door does not know
_USUAL_NAMES = {
    name.encode(): name.lower()
    for name in ("Host", "host", "Content-Type", "content-type", "Content-Length", "content-length", "Accept", "accept",
                 "Accept-Encoding", "accept-encoding", "User-Agent", "user-agent", "Connection", "connection",
                 "Authorization", "authorization", "Inference-Header-Content-Length", "Paddleport-Caller")
}  # fmt: skip


class Connection(asyncio.Protocol):
    """Reads requests with llhttp and hands each whole one to the listener's application.

    Every phase has a time by which it has to end (`deadline`), which the listener looks at a few times a second:
    a head that is being read, a body, an answer that the client does not take, and silence between two requests.
    While the application works on a request there is none; its own deadline is the application's.
    """

    __slots__ = (
        "_body", "_busy", "_closing", "_discarding", "_fields", "_head_size", "_headers", "_held", "_known",
        "_listener", "_loop", "_number", "_parser", "_peer", "_reading", "_target", "_transport", "_unfinished",
        "_waiting",
        "deadline",
    )  # fmt: skip

    def __init__(self, listener: Listener) -> None:
        self.deadline = _FOREVER
        self._listener = listener
        self._loop = listener.loop
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request | Response] = deque()
        self._busy = False  # the application works on a request of ours
        self._reading = ""  # what of a request is being read: "", "head" or "body"
        self._closing = False  # close once everything is answered
        self._discarding = False  # nothing that still comes is read as a request
        self._held = 0  # bytes of bodies, from the first that came until they are answered
        self._number = 0  # of requests that began
        self._reset()

    def _reset(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: bytes | bytearray = b""
        self._head_size = 0
        self._known = False  # whether the door was asked, and knows the client
        self._fields = 0
        self._unfinished = 0  # bytes that came since the last whole piece of the head or the body

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""
        self.deadline = self._loop.time() + self._listener.limits.head_seconds
        self._listener.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone; whatever is still worked on finds nobody."""
        self._listener.connections.discard(self)
        self._discarding = True
        self._waiting.clear()
        self._release(self._held)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._discarding:
            return
        before = self._progress()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
            return
        except httptools.HttpParserError as error:
            # A callback of ours that fails is a defect; everything else is the client's.
            got = str(error)
            self._refuse(_bad(400, f"This is no HTTP/1.1 request: {got}." if got else "This is no HTTP/1.1 request."))
        if self._reading:
            self._unfinished = self._unfinished + len(data) if before == self._progress() else 0
            if self._unfinished > self._listener.limits.head_bytes:
                self._refuse_head()

    def eof_received(self) -> bool:
        """The client sends nothing more; it may still read."""
        if self._reading and not self._discarding:
            what = "body" if self._reading == "body" else "request"
            self._refuse(_bad(400, f"The {what} was cut short."))
            return True
        self._closing = True
        return self._busy or bool(self._waiting)

    def pause_writing(self) -> None:
        """The client does not take its answers: read no further requests of it."""
        self._transport.pause_reading()
        self.deadline = self._loop.time() + self._listener.limits.idle_seconds

    def resume_writing(self) -> None:
        """It has caught up."""
        if not self._transport.is_closing():
            self._transport.resume_reading()
        self._set_idle()

    # What llhttp calls.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._reading = "head"
        self._number += 1
        if not self._busy:
            self.deadline = self._loop.time() + self._listener.limits.head_seconds

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        self._target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; what is sent behind a body as one is no header, for it may not change how the request is read."""
        if self._reading == "body" or self._discarding:
            return
        self._fields += 1
        self._count_head(len(name) + len(value))
        key = _USUAL_NAMES.get(name) or name.decode("latin-1").lower()
        text = value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        """The head is whole; the body follows."""
        self._reading = "body"
        self.deadline = self._loop.time() + self._listener.limits.body_seconds
        announced = self._headers.get("content-length", "")
        if announced.isdigit():
            self._check_body(int(announced[:20]), f"{announced} bytes")
        coding = self._headers.get("transfer-encoding", "chunked")
        if coding.strip().lower() != "chunked":
            self._refuse(_bad(400, f"The Transfer-Encoding is unknown: expected chunked, got {coding!r}."))
        if "expect" in self._headers and not self._discarding and not self._busy:
            self._transport.write(_CONTINUE)

    def on_body(self, piece: bytes) -> None:
        """A piece of the body."""
        if self._discarding:
            return
        if not self._body:
            self._body = piece
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += piece
        self._held += len(piece)
        self._listener.held += len(piece)
        self._check_body(len(self._body), "more")

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._parser.should_upgrade():
            return  # it comes again without the offer: `_decline`
        self._reading = ""
        if self._discarding:
            return
        target, _, query = self._target.decode("latin-1").partition("?")
        method, body = self._parser.get_method().decode("ascii"), bytes(self._body)
        request = Request(method, target, query, self._headers, body, self._peer)
        request.keep_alive = self._parser.should_keep_alive()
        request.connection = id(self)
        self._reset()
        if self._busy or self._waiting:
            self._waiting.append(request)
            if len(self._waiting) >= _MOST_WAITING:
                self._transport.pause_reading()
        else:
            self._serve(request)

    def _decline(self, rest: bytes) -> None:
        """Read a request that offers to go on in another protocol again, as if it had not: llhttp leaves its body out.

        Args:
            rest: what came behind its head.
        """
        method, version = self._parser.get_method().decode("ascii"), self._parser.get_http_version()
        if self._discarding or method == "CONNECT":
            self._refuse(_bad(405, "This server is no proxy: expected GET, POST or PUT, got CONNECT."))
            return
        lines = [f"{method} {self._target.decode('latin-1')} HTTP/{version}"]
        lines += [f"{name}: {value}" for name, value in self._headers.items() if name not in _OFFER]
        if "close" in self._headers.get("connection", "").lower():
            lines.append("connection: close")
        self._parser = httptools.HttpRequestParser(self)
        self._reset()
        self.data_received("\r\n".join([*lines, "", ""]).encode("latin-1") + rest)

    # From requests to answers.

    def _serve(self, request: Request) -> None:
        self.deadline = _FOREVER
        answer = self._listener.application(request)
        if isinstance(answer, Response):
            self._write(request, answer)
        else:
            self._busy = True
            answer.add_done_callback(lambda done: self._finish(request, done))

    def _finish(self, request: Request, done: Pending) -> None:
        self._busy = False
        if self._transport.is_closing():
            return
        self._write(request, done.result())
        while self._waiting and not self._busy and not self._transport.is_closing():
            following = self._waiting.popleft()
            if isinstance(following, Response):
                self._refuse_now(following)
            else:
                self._serve(following)
        if not self._busy and not self._discarding and not self._transport.is_closing():
            self._transport.resume_reading()

    def _write(self, request: Request, response: Response) -> None:
        # A client that sends nothing more (`_closing`) still gets all its answers.
        is_last = self._closing and not self._waiting
        keep = request.keep_alive and not is_last and not self._listener.draining
        if not keep:
            self._closing = self._discarding = True
            self._waiting.clear()
        response = packed(response, request.headers.get("accept-encoding", ""))
        self._transport.write(self._listener.bytes_of(response, keep, request.method != "HEAD", request.id))
        self._release(len(request.body))
        self._set_idle()
        self._close_if_done()

    def _release(self, size: int) -> None:
        self._held -= size
        self._listener.held -= size

    def _set_idle(self) -> None:
        self.deadline = self._loop.time() + self._listener.limits.idle_seconds

    def _close_if_done(self) -> None:
        if self._closing and not self._busy and not self._waiting:
            self._transport.close()

    # What goes wrong.

    def _progress(self) -> tuple[int, int, int, int]:
        return self._number, len(self._target), self._fields, len(self._body)

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._listener.limits.head_bytes or self._fields > _MOST_HEADERS:
            self._refuse_head()

    def _refuse_head(self) -> None:
        expected = f"at most {self._listener.limits.head_bytes} bytes and {_MOST_HEADERS} headers"
        what = "head" if self._reading == "head" else "part beside its body"
        self._refuse(_bad(431, f"The request's {what} is too large: expected {expected}."))

    def _check_body(self, size: int, got: str) -> None:
        """Whether as much may come from this client, and now."""
        limits = self._listener.limits
        if size > limits.body_bytes:
            message = f"The body is too large: expected at most {limits.body_bytes} bytes, got {got}."
            self._refuse(_bad(413, message))
        elif self._listener.held > limits.held_bytes:
            self._refuse(busy("The server holds too many bytes of requests"))
        elif size > _STRANGERS_BYTES and not self._known:
            turned_away = self._listener.stranger(self._headers)
            self._known = turned_away is None
            if turned_away is not None:
                self._refuse(turned_away)

    def _refuse(self, response: Response) -> None:
        """Answer what cannot be read on, after what was asked before it, and take nothing more."""
        if self._discarding:
            return
        self._discarding = True
        self._release(len(self._body))
        self._body = b""
        if self._busy or self._waiting:
            self._waiting.append(response)
        else:
            self._refuse_now(response)

    def _refuse_now(self, response: Response) -> None:
        """Answer and close; what the client still sends is read for a while, since a reset could destroy the answer."""
        self._closing = True
        self._listener.refused(response.status)
        self._transport.write(self._listener.bytes_of(response, keep=False, with_body=True, request_id=""))
        if self._transport.can_write_eof():
            self._transport.write_eof()
            self._transport.resume_reading()
            self.deadline = self._loop.time() + _LINGER_SECONDS
        else:
            self._transport.close()

    def expired(self) -> None:
        """A phase has taken too long."""
        self.deadline = _FOREVER
        if self._reading and not self._discarding:
            what = "head" if self._reading == "head" else "body"
            self._refuse(
                _bad(408, f"The request's {what} took too long: expected the whole of it in time, got a part.")
            )
        else:
            self._transport.abort()

    def drain(self) -> None:
        """Close as soon as what was asked is answered."""
        if not self._busy and not self._reading and not self._waiting:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()


def _bad(status: int, message: str) -> Response:
    return error_response(status, message, "RequestError")
