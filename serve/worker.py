"""A worker: its own copy of the policies, its own connections, and an ear for what the parent says."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import ssl
import sys
import threading
from dataclasses import dataclass

import uvloop

from paddleport.errors import UsageError
from serve.app import assemble
from serve.control import Control
from serve.front import Front
from serve.http.listener import Limits, Listener
from serve.messages import Channel, Commit, Done, Drain, Open, Order, Reply, Report, Wish
from serve.runtime.errors import NotReadyError
from serve.runtime.policy import Opening
from serve.runtime.repository import Repository
from serve.settings import Settings

_LOG = logging.getLogger("serve")
_HEAD_BYTES = 32 * 1024
_HELD_BYTES = 256 * 2**20
_TURN_SECONDS = 5.0


@dataclass
class Pipes:
    """A worker's two connections to its parent: one for the parent's orders, one for the worker's wishes."""

    orders: socket.socket
    wishes: socket.socket


class ParentControl(Control):
    """Passes an administrator's wishes on to the parent, which grants them in every worker."""

    def __init__(self, wishes: socket.socket) -> None:
        self._channel = Channel(wishes)
        self._lock = threading.Lock()

    def ask(self, wish: Wish) -> Reply:
        """Send a wish and wait.

        Raises:
            NotReadyError: the parent does not answer.
        """
        try:
            if not self._lock.acquire(timeout=_TURN_SECONDS):
                raise NotReadyError("The server is being changed by others. Try again soon")
            try:
                self._channel.send(wish)
                return self._channel.receive(Reply)  # type: ignore[arg-type]  # a union
            finally:
                self._lock.release()
        except (OSError, EOFError) as error:
            raise NotReadyError("The server's parent process does not answer", got=error) from error


def run(settings: Settings, listening: socket.socket, pipes: Pipes) -> None:
    """Serve until the parent says, or is gone, or SIGTERM comes.

    Args:
        settings: of the server.
        listening: the socket that all workers accept from.
        pipes: to the parent.
    """
    signal.set_wakeup_fd(-1)  # the parent's pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says what to do
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    uvloop.run(_Worker(settings, listening, pipes).serve())
    sys.stdout.flush()


class _Worker:
    def __init__(self, settings: Settings, listening: socket.socket, pipes: Pipes) -> None:
        self._settings = settings
        self._listening = listening
        self._orders = Channel(pipes.orders)
        self._wishes = pipes.wishes
        self._stop = asyncio.Event()
        self._started = asyncio.Event()
        self._failed: BaseException | None = None

    async def serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        repository = self._repository = Repository(self._settings.models, Opening(self._settings))
        parts = assemble(self._settings, repository, ParentControl(self._wishes))
        self._handlers = parts.handlers
        front = Front(loop, parts.handlers, parts.wsgi, self._settings, parts.door)
        listener = Listener(loop, self._listening, front, _limits(self._settings), tls_context(self._settings))
        listener.refused = lambda status: parts.handlers.statistics.failed(None, "http", status)
        listener.stranger = parts.door.stranger
        self._listener = listener
        threading.Thread(target=self._obey, daemon=True).start()
        await self._until(self._started)
        if not self._stop.is_set():
            gc.freeze()  # what is there now stays; looking through it again and again costs every request a little
            listener.start()
            await self._stop.wait()
        self._handlers.ready = False
        await listener.drain(self._settings.stop_timeout)
        front.close()

    async def _until(self, event: asyncio.Event) -> None:
        """Wait for the first commit, or the stop."""
        waits = [asyncio.create_task(event.wait()), asyncio.create_task(self._stop.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _obey(self) -> None:
        """In a thread: follow the parent's orders, and stop when it is gone."""
        try:
            while True:
                order: Order = self._orders.receive(Order)  # type: ignore[arg-type]  # a union
                if isinstance(order, Drain):
                    break
                self._orders.send(self._follow(order))
        except (OSError, EOFError):
            pass  # the parent is gone
        self._loop.call_soon_threadsafe(self._stop.set)

    def _follow(self, order: Open | Commit | Report) -> Done:
        repository, statistics = self._repository, self._handlers.statistics
        match order:
            case Open(name=name, version=version):
                return Done(repository.open(name, version))
            case Commit(table=table):
                repository.commit(table)
                statistics.forget(repository.open_policies())
                self._loop.call_soon_threadsafe(self._started.set)
                return Done(serving=tuple(_words(repository)))
            case _:
                statistics.now["connections"] = len(self._listener.connections)
                return statistics.snapshot()  # type: ignore[return-value]  # the answer to a report


def _words(repository: Repository) -> list[str]:
    return [
        f"{policy.manifest.name} (version {policy.manifest.version}, {policy.precision}, {policy.provider})"
        for policy in repository.acting()
    ]


def _limits(settings: Settings) -> Limits:
    return Limits(
        head_seconds=settings.header_timeout,
        body_seconds=settings.body_timeout,
        idle_seconds=settings.idle_timeout,
        head_bytes=_HEAD_BYTES,
        body_bytes=settings.max_body_bytes,
        held_bytes=max(_HELD_BYTES, 4 * settings.max_body_bytes),
        connections=settings.max_connections,
    )


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """What HTTPS needs, or None for plain HTTP.

    Raises:
        UsageError: a file is missing or is no certificate or key.
    """
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
        if settings.tls_client_ca:
            context.load_verify_locations(settings.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        files = f"{settings.tls_certificate}, {settings.tls_key}"
        raise UsageError(
            "HTTPS cannot be served with these files", expected="PEM files", got=f"{files}: {error}"
        ) from error
    return context
