"""The parent: starts workers, keeps them alike, replaces those that die, and ends them in order.

It is one thread around `select`, so that forking a worker is safe at any time. It opens no policy itself.
"""

from __future__ import annotations

import logging
import logging.config
import multiprocessing
import os
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from paddleport.errors import PaddleportError
from serve import worker
from serve.address import Address
from serve.control import grant
from serve.door import Door
from serve.members import ORDER_SECONDS, Member
from serve.messages import Commit, Denied, Done, Drain, Gather, Gathered, Open, Wish
from serve.runtime.controller import Controller
from serve.runtime.local import look
from serve.runtime.statistics import Counts, merged
from serve.runtime.table import Table
from serve.settings import Settings

_LOG = logging.getLogger("serve")
_COUNT_SECONDS = 1.0
_RESPAWN_SECONDS = 0.2
_MOST_DEATHS = 5  # within a minute, after which the server gives up
_FORK = multiprocessing.get_context("fork")
_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "paddleport: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stderr"}},
    "loggers": {"serve": {"handlers": ["stderr"], "level": "INFO", "propagate": False}},
}


class StartError(PaddleportError):
    """The server could not start, or its workers die again and again."""


class _StoppedError(Exception):
    """A signal came while the workers were waited for."""


class Server:
    """All workers, as one; the controller's fleet.

    Args:
        settings: how to serve.
        address: where.
        listening: the socket that all workers accept from.
    """

    def __init__(self, settings: Settings, address: Address, listening: socket.socket) -> None:
        self._settings = settings
        self._address = address
        self._listening = listening
        self._members: list[Member] = []
        self._selector = selectors.DefaultSelector()
        self._controller = Controller(
            settings.models, self, settings.pins(), settings.precision, settings.model_control == "explicit"
        )
        self._table: Table = {}
        self._serving: tuple[str, ...] = ()
        self._gone = Counts()
        self._deaths: list[float] = []
        self._replaced = 0
        self._stop: socket.socket | None = None

    def open(self, name: str, version: int) -> str:
        """Open a version in every worker; the first reason against it, else nothing."""
        reasons = [done.reason for done in self._order_all(Open(name, version)) if done.reason]
        return reasons[0] if reasons else ""

    def commit(self, table: Table) -> None:
        """Serve this, in every worker."""
        self._table = table
        for done in self._order_all(Commit(table)):
            self._serving = done.serving

    def run(self, stop: socket.socket) -> None:
        """Serve until something can be read from `stop`.

        Raises:
            StartError: nothing can be served, or the workers die again and again.
        """
        self._selector.register(stop, selectors.EVENT_READ, None)
        self._stop = stop
        try:
            for _ in range(self._settings.workers):
                self._add(self._spawn())
            self._start()
            if not _readable(stop):
                self._announce()
                self._watch()
        except _StoppedError:
            return
        finally:
            self._end()

    def _start(self) -> None:
        try:
            self._controller.start()
        except PaddleportError as error:
            raise StartError(str(error).removesuffix(".")) from error
        if not self._members:
            raise StartError("Every worker died while it opened the policies")

    def _announce(self) -> None:
        for state in self._controller.states():
            if not state.ready:
                say(f"{state.name} version {state.version} is refused: {state.reason}")
        say(f"serving {', '.join(self._serving) or 'nothing yet'} at {self._address.url}")

    def _watch(self) -> None:
        look_at = count_at = time.monotonic()
        watching = self._settings.model_control == "watch"
        while True:
            for key, _ in self._selector.select(min(self._settings.watch_seconds, _RESPAWN_SECONDS)):
                if key.data is None:
                    return
                self._hear(key.data)
            self._replace_dead()
            now = time.monotonic()
            if watching and now >= look_at:
                look(self._controller)
                look_at = now + self._settings.watch_seconds
            if now >= count_at:
                self._reports()
                count_at = now + _COUNT_SECONDS

    def _spawn(self) -> Member:
        orders, worker_orders = socket.socketpair()
        wishes, worker_wishes = socket.socketpair()
        others = [channel.socket for member in self._members for channel in (member.orders, member.wishes)]
        process = _FORK.Process(
            target=_work,
            args=(
                self._settings,
                self._listening,
                worker.Pipes(worker_orders, worker_wishes),
                [orders, wishes, *others],
            ),
        )
        process.start()
        worker_orders.close()
        worker_wishes.close()
        return Member(process, orders, wishes)

    def _add(self, member: Member) -> None:
        self._members.append(member)
        self._selector.register(member.wishes.socket, selectors.EVENT_READ, member)

    def _hear(self, member: Member) -> None:
        """A worker passes on a wish, or is gone."""
        try:
            wish: Wish = member.wishes.receive(Wish)  # type: ignore[arg-type]  # a union
            if isinstance(wish, Gather):
                member.wishes.send(self._gather())
            else:
                reply = grant(self._controller, wish)
                member.wishes.send(reply)
                if not isinstance(reply, Denied):
                    say(f"{type(wish).__name__.lower()} of {wish.name}: done in {len(self._members)} workers")
        except (OSError, EOFError, msgspec.DecodeError):
            self._lose(member)

    def _order_all(self, order: Open | Commit) -> list[Done]:
        """What every worker answers; those that die meanwhile are replaced later and count for nothing."""
        answers: list[Done] = []
        sent: list[Member] = []
        for member in list(self._members):
            try:
                member.orders.socket.settimeout(ORDER_SECONDS)
                member.orders.send(order)
                sent.append(member)
            except OSError:
                self._lose(member)
        for member in sent:
            try:
                self._wait_for(member)
                answers.append(member.orders.receive(Done))
            except (OSError, EOFError):
                self._lose(member)
        return answers

    def _wait_for(self, member: Member) -> None:
        """Until the worker answers, or the server is to stop."""
        with selectors.DefaultSelector() as selector:
            selector.register(member.orders.socket, selectors.EVENT_READ, member)
            if self._stop:
                selector.register(self._stop, selectors.EVENT_READ, None)
            ready = selector.select(ORDER_SECONDS)
        if any(key.data is None for key, _ in ready):
            raise _StoppedError
        if not ready:
            raise TimeoutError("the worker does not answer")

    def _reports(self) -> None:
        for member in list(self._members):
            try:
                member.report()
            except (OSError, EOFError):
                self._lose(member)

    def _gather(self) -> Gathered:
        self._reports()
        total = self._gone
        for member in self._members:
            total = merged(total, member.counts)
        now = {key: sum(member.counts.now.get(key, 0) for member in self._members) for key in total.now}
        total = msgspec.structs.replace(total, now=now)
        return Gathered(total, self._controller.reloads, len(self._members), self._replaced)

    def _lose(self, member: Member) -> None:
        """A worker is gone or does not answer: nothing is expected of it any longer."""
        if member not in self._members:
            return
        self._members.remove(member)
        self._selector.unregister(member.wishes.socket)
        member.close()
        member.process.kill()
        member.process.join()
        self._gone = merged(self._gone, member.counts)
        self._deaths.append(time.monotonic())

    def _replace_dead(self) -> None:
        for member in list(self._members):
            if not member.process.is_alive():
                self._lose(member)
        while len(self._members) < self._settings.workers:
            self._deaths = [moment for moment in self._deaths if moment > time.monotonic() - 60.0]
            if len(self._deaths) > _MOST_DEATHS * self._settings.workers:
                raise StartError(
                    f"{len(self._deaths)} workers died within a minute", todo="Look at what they said above"
                )
            if not self._replace():
                return

    def _replace(self) -> bool:
        """One worker more, which serves what the others do; whether that worked."""
        member = self._spawn()
        failed: list[tuple[str, int, str]] = []
        try:
            for name, route in self._table.items():
                for version in route.open:
                    done = member.order(Open(name, version))
                    if done.reason:
                        failed.append((name, version, done.reason))
            if not failed:
                member.order(Commit(self._table))
        except (OSError, EOFError):
            member.close()
            member.process.kill()
            member.process.join()
            self._deaths.append(time.monotonic())
            return False
        self._add(member)
        for name, version, reason in failed:
            self._controller.drop(name, version, reason)
        self._replaced += 1
        say("a worker was replaced")
        return True

    def _end(self) -> None:
        for member in self._members:
            with _whoever_listens():
                member.orders.send(Drain())
        end = time.monotonic() + self._settings.stop_timeout + 1.0
        for member in self._members:
            member.process.join(max(0.0, end - time.monotonic()))
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.close()
        self._members.clear()


def serve(settings: Settings, address: Address, listening: socket.socket, stop: socket.socket) -> None:
    """Serve until something can be read from `stop`; requests in flight are finished, for a few seconds at most.

    Raises:
        StartError: nothing can be served.
        UsageError: the certificates or the token file cannot be used.
    """
    worker.tls_context(settings)  # what cannot work is said once, here
    Door(settings)
    logging.config.dictConfig(_LOGGING)
    Server(settings, address, listening).run(stop)


def say(line: str) -> None:
    """Tell the person who started the server."""
    print(f"paddleport: {line}", file=sys.stderr, flush=True)


def _work(settings: Settings, listening: socket.socket, pipes: worker.Pipes, inherited: list[socket.socket]) -> None:
    """Runs in a worker, just forked: what belongs to the parent is let go, so that its end is noticed."""
    for sock in inherited:
        sock.close()
    try:
        worker.run(settings, listening, pipes)
    except PaddleportError as error:
        say(str(error))
        os._exit(1)


def _readable(stop: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(stop, selectors.EVENT_READ)
        return bool(selector.select(0))


@contextmanager
def _whoever_listens() -> Iterator[None]:
    try:
        yield
    except OSError:
        return
