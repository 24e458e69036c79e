"""One line of JSON for every request, written by a thread, so that a slow reader of the log holds up nobody."""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
import time
from queue import Full, Queue

import orjson

from serve.http.request import Request

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_MOST_WAITING = 10_000
_TOGETHER = 200


class RequestIds:
    """Each request's id: the client's own, or one that no other request of any worker has."""

    def __init__(self) -> None:
        self._prefix = f"{os.getpid():x}-{time.time_ns():x}-"
        self._numbers = itertools.count()

    def of(self, request: Request) -> str:
        """The id that a request has from now on."""
        given = request.headers.get("x-request-id")
        if given is None or not _ID.fullmatch(given):
            given = f"{self._prefix}{next(self._numbers):x}"
        request.id = given
        return given


class AccessLog:
    """Writes to stdout; lines are dropped, and counted, where nobody takes them."""

    def __init__(self) -> None:
        self._lines: Queue[dict[str, object]] = Queue(_MOST_WAITING)
        self.dropped = 0
        threading.Thread(target=self._write, daemon=True).start()

    def add(self, request: Request, status: int, began: float, size: int) -> None:
        """Note a request that was answered.

        Args:
            request: what was asked.
            status: of the answer.
            began: when it was whole, by `time.perf_counter`.
            size: bytes of the answer's body.
        """
        entry: dict[str, object] = {
            "time": round(time.time(), 6),
            "id": request.id,
            "peer": request.peer,
            "method": request.method,
            "path": request.target,
            "status": status,
            "ms": round((time.perf_counter() - began) * 1000, 3),
            "bytes_in": len(request.body),
            "bytes_out": size,
        }
        try:
            self._lines.put_nowait(entry)
        except Full:
            self.dropped += 1

    def _write(self) -> None:
        while True:
            entries = [self._lines.get()]
            while len(entries) < _TOGETHER and not self._lines.empty():
                entries.append(self._lines.get())
            text = b"".join(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE) for entry in entries)
            try:
                sys.stdout.buffer.write(text)
                sys.stdout.buffer.flush()
            except (OSError, ValueError):
                return  # nobody reads it any longer
