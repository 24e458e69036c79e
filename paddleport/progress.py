"""Progress of a long command, on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

_LINE_EVERY_S = 5.0


def can_redraw() -> bool:
    """Whether stderr is a terminal where a line can be drawn over.

    A notebook gives what it starts a terminal too, but shows whatever comes there line under line, so that a bar would
    fill the page; Jupyter says that it is there by JPY_PARENT_PID.
    """
    return sys.stderr.isatty() and "JPY_PARENT_PID" not in os.environ and os.environ.get("TERM") != "dumb"


@contextlib.contextmanager
def stage(label: str, total: int) -> Iterator[Callable[[], None]]:
    """Report a stage of known length; yields what to call once for each part that is done.

    Args:
        label: what is being done.
        total: of how many parts it consists.
    """
    with _bar(label, total) if can_redraw() else _lines(label, total) as advance:
        yield advance


@contextlib.contextmanager
def _lines(label: str, total: int) -> Iterator[Callable[[], None]]:
    shown = time.monotonic()
    done = 0
    _line(label)

    def advance() -> None:
        nonlocal done, shown
        done += 1
        if time.monotonic() - shown > _LINE_EVERY_S:
            shown = time.monotonic()
            _line(f"{label}: {done} of {total}")

    yield advance


@contextlib.contextmanager
def _bar(label: str, total: int) -> Iterator[Callable[[], None]]:
    """On one line: the bar takes the width that the words leave, and a long label is cut."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column(max_width=44, no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=Console(stderr=True, emoji=False, markup=False), expand=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda: progress.advance(task)


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
