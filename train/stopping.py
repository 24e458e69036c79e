"""Signals that ask a training to stop."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

PATIENCE_SECONDS = 10.0
"""How long a signal waits for the next checkpoint."""


class StopRequest:
    """Whether a signal has asked to stop: at once, unless the next barrier is near enough to go on to."""

    def __init__(self) -> None:
        self.asked = False
        self.since = 0.0

    def ask(self) -> None:
        """Take note of a signal."""
        if not self.asked:
            self.asked, self.since = True, time.monotonic()

    def has_waited(self) -> bool:
        """Whether the signal has waited as long as it should have to."""
        return self.asked and time.monotonic() - self.since > PATIENCE_SECONDS


@contextlib.contextmanager
def signals() -> Iterator[StopRequest]:
    """SIGINT and SIGTERM ask to stop; a second SIGINT interrupts at once."""
    request = StopRequest()

    def handle(number: int, _: FrameType | None) -> None:
        if request.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.ask()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
