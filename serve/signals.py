"""SIGTERM and SIGINT, which stop the server at whatever moment they come."""

from __future__ import annotations

import os
import signal

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Holds the signals, from when this is made until somebody waits for them; ignores them at its end.

    Blocked here, they are blocked in every thread and every worker to come, and so reach nobody but the one thread
    of each process that waits for them: Python's handlers run in the main thread, which sleeps on when the
    signal wakes another one. Threads that were there before (NumPy's) may still take one; Python then writes its
    number to the pipe that is waited at, whichever thread it is.
    """

    def __init__(self) -> None:
        self._arrived, told = os.pipe()
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        for number in _NUMBERS:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)

    def wait(self) -> None:
        """Until one comes, or came; from any thread but the main one."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)
        while not set(_NUMBERS) & set(os.read(self._arrived, 1)):
            pass
        signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)

    def __enter__(self) -> StopSignals:
        return self

    def __exit__(self, *_: object) -> None:
        for number in _NUMBERS:
            signal.signal(number, signal.SIG_IGN)
