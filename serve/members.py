"""One worker as its parent sees it, and the signals that end the parent."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkProcess

from serve.messages import Channel, Commit, Done, Open, Report
from serve.runtime.statistics import Counts

ORDER_SECONDS = 120.0
"""How long an order may take: a TensorRT engine takes minutes, everything else far less."""
_REPORT_SECONDS = 10.0


class Member:
    """One worker as its parent sees it."""

    def __init__(self, process: ForkProcess, orders: socket.socket, wishes: socket.socket) -> None:
        self.process = process
        self.orders = Channel(orders)
        self.wishes = Channel(wishes)
        self.counts = Counts()
        orders.settimeout(ORDER_SECONDS)
        wishes.settimeout(_REPORT_SECONDS)

    def order(self, order: Open | Commit) -> Done:
        """Give an order and wait until it is done.

        Raises:
            OSError, EOFError: the worker is gone, or hangs.
        """
        self.orders.socket.settimeout(ORDER_SECONDS)
        self.orders.send(order)
        return self.orders.receive(Done)

    def report(self) -> Counts:
        """What the worker has counted.

        Raises:
            OSError, EOFError: the worker is gone, or hangs.
        """
        self.orders.socket.settimeout(_REPORT_SECONDS)
        self.orders.send(Report())
        self.counts = self.orders.receive(Counts)
        return self.counts

    def close(self) -> None:
        """Forget it."""
        self.orders.socket.close()
        self.wishes.socket.close()


@contextmanager
def stop_signals() -> Iterator[socket.socket]:
    """A socket that becomes readable with SIGTERM or SIGINT, whichever thread of the process got it."""
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)  # the process ends now; once more changes nothing
        signal.set_wakeup_fd(-1)
        reading.close()
        writing.close()
