"""The connections of one worker: accepting, time limits, and an orderly end."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import NamedTuple, TypeAlias

from serve.http.connection import Connection
from serve.http.request import Request
from serve.protocol.messages import Pending, Response, busy

_SWEEP_SECONDS = 0.25
_TOGETHER = 8
Application: TypeAlias = Callable[[Request], "Response | Pending"]


class Limits(NamedTuple):
    """What one client may take."""

    head_seconds: float
    """Until a request's head is whole, from its first byte, or from connecting."""
    body_seconds: float
    """Until its body is whole, from the end of its head."""
    idle_seconds: float
    """Between two requests, and until an answer is taken."""
    head_bytes: int
    body_bytes: int
    held_bytes: int
    """Of all bodies that are being read or answered, in one worker."""
    connections: int
    """Open at a time, in one worker."""


class Listener:
    """Accepts connections from a listening socket that workers share.

    Args:
        loop: of the worker.
        sock: a listening socket.
        application: what answers; called in the event loop, so it must be quick or give a future.
        limits: of every connection.
        tls: certificates, or None for plain HTTP.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        application: Application,
        limits: Limits,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.loop = loop
        self.application = application
        self.limits = limits
        self.connections: set[Connection] = set()
        self.draining = False
        self.refused: Callable[[int], None] = lambda status: None
        self.stranger: Callable[[Mapping[str, str]], Response | None] = lambda headers: None
        """Gives the answer for whom the door does not know, by a request's headers; such send no large bodies."""
        self.held = 0
        self._socket = sock
        self._tls = tls
        self._handshakes: set[asyncio.Task[object]] = set()
        self._date = ""
        self._full = self._bytes_when_full()

    def start(self) -> None:
        """Begin to accept."""
        self._socket.setblocking(False)
        self.loop.add_reader(self._socket.fileno(), self._accept)
        self._sweep()

    async def drain(self, seconds: float) -> None:
        """Accept nothing more, finish what is in flight, and after `seconds` end it."""
        self.draining = True
        self.loop.remove_reader(self._socket.fileno())
        end = self.loop.time() + seconds
        while self.connections and self.loop.time() < end:
            for connection in list(self.connections):
                connection.drain()
            await asyncio.sleep(0.02)
        for connection in list(self.connections):
            connection.abort()

    def bytes_of(self, response: Response, keep: bool, with_body: bool, request_id: str) -> bytes:
        """A response as it travels."""
        headers = "".join([f"{name}: {value}\r\n" for name, value in response.headers])
        given = f"X-Request-Id: {request_id}\r\n" if request_id else ""
        end = "\r\n" if keep else "Connection: close\r\n\r\n"
        text = f"HTTP/1.1 {response.status_line}\r\nDate: {self._date}\r\n{headers}{given}{end}"
        head = text.encode("latin-1", "replace")
        return head + response.body if with_body else head

    def _accept(self) -> None:
        """Take a few of those who wait: taking all would leave none to other workers, and one at a time is slow."""
        for _ in range(_TOGETHER):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return  # nobody is left, or has gone
            except OSError:  # no more files may be opened: those who wait are served when others go
                self.loop.remove_reader(self._socket.fileno())
                self.loop.call_later(_SWEEP_SECONDS, self._accept_again)
                return
            self._welcome(accepted)

    def _welcome(self, accepted: socket.socket) -> None:
        if len(self.connections) + len(self._handshakes) >= self.limits.connections:
            self._turn_away(accepted)
            return
        accepted.setblocking(False)
        if self._tls is None:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self.loop.create_task(self._connect(accepted))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    def _accept_again(self) -> None:
        if not self.draining:
            self.loop.add_reader(self._socket.fileno(), self._accept)

    async def _connect(self, accepted: socket.socket) -> None:
        patience = self.limits.head_seconds if self._tls else None
        try:
            await self.loop.connect_accepted_socket(
                lambda: Connection(self), accepted, ssl=self._tls, ssl_handshake_timeout=patience
            )
        except (OSError, ssl.SSLError):
            accepted.close()  # no handshake, or no longer there

    def _turn_away(self, accepted: socket.socket) -> None:
        self.refused(503)
        with accepted:
            if self._tls is None:
                accepted.setblocking(False)
                try:
                    accepted.send(self._full)
                    accepted.shutdown(socket.SHUT_WR)
                except OSError:
                    return

    def _bytes_when_full(self) -> bytes:
        response = busy(f"There are too many connections: expected at most {self.limits.connections}")
        return self.bytes_of(response, keep=False, with_body=True, request_id="")

    def _sweep(self) -> None:
        self._date = formatdate(time.time(), usegmt=True)
        now = self.loop.time()
        for connection in [one for one in self.connections if one.deadline < now]:
            connection.expired()
        self.loop.call_later(_SWEEP_SECONDS, self._sweep)
