"""`metrics.jsonl`, what a training reports of itself: how it is written, and how it is read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from paddleport.files import write_atomic

METRICS = "metrics.jsonl"

Row: TypeAlias = dict[str, Any]
"""One line: `step`, and what was reported there."""


class MetricsFile:
    """A file of rows: a line an iteration, cut back to the checkpoint when a run is resumed.

    Args:
        path: the file.
        keep_until: lines of later steps are dropped.
    """

    def __init__(self, path: Path, keep_until: int) -> None:
        write_atomic(path, b"".join(line for line, row in _whole_lines(path) if row["step"] <= keep_until))
        self._file = path.open("ab", buffering=0)  # what a full disk refuses must not be tried again at the end

    def write(self, row: Row) -> None:
        """Append a row and hand it to the operating system, so that `tail -f` shows it."""
        rest = memoryview(msgspec.json.encode(row) + b"\n")
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        """Flush to disk and close."""
        with self._file:
            os.fsync(self._file.fileno())


def read_metrics(run: Path) -> list[Row]:
    """The rows of a run directory, in the order they were written; none where it has none yet."""
    return [row for _, row in _whole_lines(run / METRICS)]


def _whole_lines(path: Path) -> Iterator[tuple[bytes, Row]]:
    """Each line with its row; a line that a kill cut short is passed over."""
    if not path.is_file():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            continue
        try:
            row = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            yield line, row
