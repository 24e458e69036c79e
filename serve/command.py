"""`paddleport serve`: a folder of bundles over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paddleport import options
from paddleport.errors import UsageError
from paddleport.manifest import Precision
from paddleport.options import Flag
from serve import address, server
from serve.settings import Settings
from serve.signals import StopSignals


@dataclass(frozen=True)
class Options:
    """What to serve, and where."""

    models: Path = Path("models")
    """The models folder: policies as NAME/VERSION, as paddleport export publishes them."""
    host: str = "127.0.0.1"
    """Address to listen at. One that other machines reach needs --insecure."""
    port: int = 8000
    """Port to listen at; 0 takes a free one and says which."""
    precision: Precision = "float32"
    """Which file of each bundle runs."""
    workers: int = 1
    """Processes that answer requests, each with its own copy of the policies."""
    threads: int = 1
    """Threads within one operator; more than 1 pays for large networks only."""
    insecure: Flag = False
    """Allow a --host that other machines reach: anybody who reaches it may use every policy."""


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "serve", argv, "Serve a folder of bundles over HTTP, until SIGTERM or Ctrl-C.")


def run(chosen: Options) -> None:
    """Serve until a signal.

    Raises:
        UsageError: an option cannot be meant.
        AddressError: the port is taken.
        StartError: there is nothing to serve.
    """
    with StopSignals() as signals:
        _serve(chosen, signals)


def _serve(chosen: Options, signals: StopSignals) -> None:
    if chosen.workers < 1:
        raise UsageError("--workers is too small", expected="1 or more", got=chosen.workers)
    settings = Settings(models=chosen.models, precision=chosen.precision, threads=chosen.threads)
    place = address.resolve(chosen.host, chosen.port, insecure=chosen.insecure)
    with place.held():
        server.serve(settings, place, chosen.workers, signals)


def show(_: None) -> None:
    """Nothing is reported: the server says on stderr when it is ready."""
