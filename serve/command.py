"""`paddleport serve`: a folder of bundles over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from paddleport import options
from serve import address, server, traces
from serve.members import stop_signals
from serve.settings import Settings


def parse(argv: Sequence[str]) -> Settings:
    """Read the command line, on top of the environment."""
    description = (
        "Serve a folder of bundles over HTTP, until SIGTERM or Ctrl-C. Every option is read from the environment too: "
        "PADDLEPORT_MODELS, PADDLEPORT_MAX_BATCH and so on."
    )
    return options.parse(Settings, "serve", argv, description, default=Settings.from_environment())


def run(chosen: Settings) -> None:
    """Serve until a signal.

    Raises:
        UsageError: an option cannot be meant.
        AddressError: the port is taken.
        StartError: there is nothing to serve.
    """
    if chosen.traces:
        traces.require()
    with stop_signals() as stop:
        allowed = chosen.insecure or chosen.auth_token_file is not None
        place = address.resolve(chosen.host, chosen.port, insecure=allowed, secure=chosen.tls_certificate is not None)
        with address.listening(place) as (actual, listening):
            server.serve(chosen, actual, listening, stop)


def show(_: None) -> None:
    """Nothing is reported: the server says on stderr when it is ready."""
