"""Ends calls of environments that never return."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from types import FrameType

_LONGEST_PERIOD = 1.0


class Hung(BaseException):
    """Raised inside a call that took too long; no `Exception`, so that an environment's own `except` lets it pass."""


class Watchdog:
    """Watches one call at a time, on the main thread.

    A thread looks whether the same call is still going on, once a period. After `limit` seconds of that it has the
    main thread raise `Hung`, by a signal; a call that goes on all the same is stuck in C, and then the process ends.
    Periods in which the call was seen are counted, not the time of day: a process that was stopped (Ctrl-Z, a laptop
    asleep) is not taken for one that hangs. What is stuck in C and holds Python's lock cannot be ended from here.
    """

    def __init__(self) -> None:
        self.limit = 60.0
        """Seconds that a call may take; 0 waits for ever."""
        self.grace = 10.0
        """Seconds that an interrupted call has to end."""
        self._calls = 0
        self._busy = False
        self._rung = -1
        self._label = ""
        self._main = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start watching; call it on the main thread. Elsewhere it does nothing: signals reach the main thread only."""
        if self._thread is not None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
            return  # the program uses it for something of its own
        signal.signal(signal.SIGALRM, self._interrupt)
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="environment watchdog", daemon=True)
        self._thread.start()

    def begin(self, label: str) -> None:
        """A call begins; `label` is what to call the environment if it must be named."""
        self._label = label
        self._calls += 1
        self._busy = True

    def end(self) -> None:
        """The call is over."""
        self._busy = False

    def _watch(self) -> None:
        seen, looks = -1, 0
        while True:
            period = min(_LONGEST_PERIOD, self.limit / 4) if self.limit > 0 else _LONGEST_PERIOD
            time.sleep(period)
            if not self._busy or self._calls != seen or self.limit <= 0:
                seen, looks = self._calls, 0
                continue
            looks += 1
            if looks >= math.ceil((self.limit + self.grace) / period):
                self._end_process()
            if looks >= math.ceil(self.limit / period) and self._rung != seen:
                self._rung = seen
                signal.pthread_kill(self._main, signal.SIGALRM)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Runs on the main thread: the call that was meant may have ended since."""
        if self._busy and self._calls == self._rung:
            raise Hung

    def _end_process(self) -> None:
        line = (
            f"paddleport: The environment {self._label} did not return within {self.limit:g} seconds and cannot be "
            "interrupted, so the process ends. --resume continues from the last checkpoint, if there is one.\n"
        )
        os.write(2, line.encode("utf-8", "backslashreplace"))
        os._exit(1)


watchdog = Watchdog()
"""The process's one: there is one main thread."""
