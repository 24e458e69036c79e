"""The application under granian: worker processes, their start and their stop."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from functools import partial
from multiprocessing.queues import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server import Server

from paddleport.errors import PaddleportError
from serve.address import Address
from serve.app import create_app
from serve.runtime.repository import Repository
from serve.settings import Settings
from serve.signals import StopSignals

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

# A request holds a thread from its first byte on, and granian cannot be told to give up a body that never ends.
# So there are many threads; those that wait cost next to nothing.
_BLOCKING_THREADS = 64
_STOP_SECONDS = 5
_LISTEN_SECONDS = 10.0
_LOGGING: dict[str, Any] = {
    "formatters": {"plain": {"format": "paddleport: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stderr"}},
    "loggers": {
        "_granian": {"handlers": ["stderr"], "propagate": False},
        "granian.access": {"handlers": ["stderr"], "propagate": False},
        "serve": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


class StartError(PaddleportError):
    """The server could not start."""


class Report(msgspec.Struct, frozen=True):
    """What a worker tells the parent when it has opened the policies, or could not."""

    failure: str = ""
    serving: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def serve(settings: Settings, address: Address, workers: int, signals: StopSignals) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight are finished, for a few seconds at most.

    Args:
        settings: of the application.
        address: one that is held.
        workers: processes, each with its own sessions.
        signals: that stop it, held already.

    Raises:
        StartError: a worker could not open the policies.
    """
    # Workers are forked where that is the default: they share the parent's imports. ONNX Runtime starts
    # a thread on import, so it is a worker that imports it first.
    reports: SimpleQueue[Report] = multiprocessing.SimpleQueue()
    server = Server(
        "serve.app",
        address.host,
        address.port,
        interface=Interfaces.WSGI,
        http=HTTPModes.http1,
        workers=workers,
        blocking_threads=_BLOCKING_THREADS,
        workers_kill_timeout=_STOP_SECONDS,
        respawn_failed_workers=True,
        log_level=LogLevels.error,
        log_dictconfig=_LOGGING,
    )
    start = _Start(server, address, workers, reports)
    threading.Thread(target=_stop_parent, args=(server, signals), daemon=True).start()
    threading.Thread(target=start.watch, daemon=True).start()
    # A worker that was signalled together with the parent has ended before the parent asked it to: no crash.
    logging.getLogger("_granian").addFilter(lambda _: not server.interrupt_signal)
    try:
        server.serve(target_loader=partial(_load, settings, reports), wrap_loader=False)
    except SystemExit:
        if not server.interrupt_signal:
            raise
    if start.failure:
        raise StartError(start.failure)


def _stop_parent(server: Any, signals: StopSignals) -> None:  # noqa: ANN401 - granian types its server as a variable
    signals.wait()
    server.signal_handler_interrupt()


class _Start:
    """The parent's view of the start: waits for every worker, then says that the server is ready."""

    def __init__(self, server: Any, address: Address, workers: int, reports: SimpleQueue[Report]) -> None:  # noqa: ANN401
        self.failure = ""
        self._server = server
        self._address = address
        self._workers = workers
        self._reports = reports

    def watch(self) -> None:
        """Runs in a thread beside granian's own loop."""
        arrived = 0
        while True:
            report = self._reports.get()
            arrived += 1
            if report.failure:
                self.failure = report.failure
                self._server.signal_handler_interrupt()
                return
            if arrived == self._workers:
                self._announce(report)
            elif arrived > self._workers:
                _say("a worker was replaced")

    def _announce(self, report: Report) -> None:
        for line in report.refused:
            _say(line)
        if self._address.wait_until_listening(_LISTEN_SECONDS):
            _say(f"serving {', '.join(report.serving)} at {self._address.url}")


def _say(line: str) -> None:
    print(f"paddleport: {line}", file=sys.stderr, flush=True)


def _load(settings: Settings, reports: SimpleQueue[Report]) -> WSGIApplication:
    """Runs in a worker, before it listens: opens the policies and reports."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the inherited handler is the parent's, as is the pipe
    signal.set_wakeup_fd(-1)
    threading.Thread(target=_stop_worker, daemon=True).start()
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        repository = Repository.open(settings.models, settings.precision, settings.threads)
        app = create_app(settings, repository)
    except PaddleportError as error:
        reports.put(Report(failure=str(error).removesuffix(".")))
        threading.Event().wait()  # for the parent to stop us; an exit would look like a crash, and be repeated
    reports.put(_report(repository))
    return app.wsgi_app


def _stop_worker() -> None:
    """Pass the first SIGTERM on to granian, and nothing else.

    A granian worker that is told twice does not stop at all, and twice it is told whenever a whole process group
    or container is signalled, since the parent then asks its workers too. SIGINT is left to the parent.
    """
    signal.sigwait({signal.SIGTERM})
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler):  # still loading: nothing is in flight
        os._exit(0)
    handler(signal.SIGTERM, None)


def _stop_with_parent() -> None:
    """A parent that was killed cannot stop its workers; without this they would hold the port for ever."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _report(repository: Repository) -> Report:
    serving = [
        f"{policy.manifest.name} (version {policy.manifest.version}, {policy.precision}, {policy.provider})"
        for policy in repository.newest()
    ]
    refused = [
        f"{state.name} version {state.version} is refused: {state.reason}"
        for state in repository.states()
        if not state.ready
    ]
    return Report(serving=tuple(serving), refused=tuple(refused))
