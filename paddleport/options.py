"""From the command line to a frozen dataclass, with help that explains every option."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import tyro

T = TypeVar("T")

Flag: TypeAlias = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""A switch that is only ever turned on, such as `--json`; a plain `bool` also gets its `--no-…`."""


def parse(kind: type[T], command: str, argv: Sequence[str], description: str, default: T | None = None) -> T:
    """Parse `argv` into `kind`; `--help` prints and exits with 0, a mistake exits with 2.

    Args:
        kind: a frozen dataclass whose field docstrings are the help texts; where a docstring has several lines, the
            help keeps its line breaks, so break them at the ends of sentences.
        command: the sub-command, for the usage line.
        argv: the arguments after it.
        description: what the command does.
        default: values for what the command line leaves out, instead of the fields' own.
    """
    extra: dict[str, Any] = {} if default is None else {"default": default}
    parsed: T = tyro.cli(
        kind,
        prog=f"paddleport {command}",
        description=description,
        args=list(argv),
        config=(
            tyro.conf.OmitArgPrefixes,
            tyro.conf.HelptextFromCommentsOff,
            tyro.conf.PositionalMetavarFromFieldName,
            tyro.conf.DisallowNone,  # left out is how None is said
        ),
        **extra,
    )
    return parsed


@contextlib.contextmanager
def only_json_on_stdout(active: bool) -> Iterator[io.FileIO | None]:
    """Yield the unbuffered stream that JSON goes to, or None where it was not asked for.

    While active, everything else that this process or a library below Python writes to stdout goes to stderr.
    """
    if not active:
        yield None
        return

    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    try:
        with io.FileIO(real, "w", closefd=False) as stream, contextlib.redirect_stdout(sys.stderr):
            yield stream
    finally:
        sys.stdout.flush()
        os.dup2(real, 1)
        os.close(real)
