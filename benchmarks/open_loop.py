"""Requests at a fixed rate, whatever the answers take: what latency a client sees that does not wait its turn.

A closed loop asks less when a server is slow and so never sees its queue; here each request has a moment at which it is
due, and its latency counts from there ("coordinated omission" is what leaving that out is called).
"""

from __future__ import annotations

import gc
import re
import selectors
import socket
import time
from collections import deque
from dataclasses import dataclass

import numpy as np

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass
class Line:
    """One connection, and when the request on it was due; an answer is whole when `missing` bytes have come."""

    sock: socket.socket
    due: float = 0.0
    answer: bytes = b""

    def receive(self) -> int | None:
        """Take what has come: the status once the answer is whole, None before."""
        piece = self.sock.recv(1 << 20)
        if not piece:
            raise ConnectionError("the server closed a connection")
        self.answer += piece
        head, separator, body = self.answer.partition(b"\r\n\r\n")
        if not separator:
            return None
        found = _LENGTH.search(head)
        whole = len(body) >= int(found[1]) if found else body.endswith(b"0\r\n\r\n")
        if not whole:
            return None
        self.answer = b""
        return int(head[9:12])


def open_loop(port: int, request: bytes, rate: float, seconds: float, connections: int = 32) -> dict[str, float]:
    """Send a request over and over at a rate to 127.0.0.1, and say what the answers took.

    Args:
        port: the server's.
        request: the bytes of a whole HTTP/1.1 request.
        rate: requests a second.
        seconds: how long.
        connections: at most so many requests are on their way; what is due beyond waits here, and its time counts.

    Returns:
        Milliseconds `p50`, `p99`, `p999`, the `rate` reached, and how many `failed`: answers other than 200, and those
        that were not there a second after the end.
    """
    lines = [Line(socket.create_connection(("127.0.0.1", port))) for _ in range(connections)]
    selector = selectors.DefaultSelector()
    for line in lines:
        line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(line.sock, selectors.EVENT_READ, line)
    gc.disable()
    try:
        latencies, failed = _run(selector, lines, request, round(rate * seconds), 1 / rate)
    finally:
        gc.enable()
        selector.close()
        for line in lines:
            line.sock.close()
    p50, p99, p999 = np.percentile(latencies, (50, 99, 99.9)) * 1e3 if latencies else (float("nan"),) * 3
    return {"p50": p50, "p99": p99, "p999": p999, "rate": len(latencies) / seconds, "failed": failed}


def _run(
    selector: selectors.BaseSelector, lines: list[Line], request: bytes, count: int, gap: float
) -> tuple[list[float], int]:
    latencies: list[float] = []
    free, sent, failed = deque(lines), 0, 0
    began = time.perf_counter()
    end = began + count * gap + 1.0
    while len(latencies) + failed < count and (now := time.perf_counter()) < end:
        while free and sent < count and began + sent * gap <= now:
            line = free.popleft()
            line.due = began + sent * gap
            line.sock.sendall(request)
            sent += 1
        pause = 0.0 if free and sent < count else 0.001
        for key, _ in selector.select(pause):
            status = key.data.receive()
            if status is None:
                continue
            latencies.append(time.perf_counter() - key.data.due)
            failed += status != 200
            free.append(key.data)
    return latencies, failed + count - len(latencies)
