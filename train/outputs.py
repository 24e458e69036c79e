"""Pictures that a command writes where the user says."""

from __future__ import annotations

from pathlib import Path

from paddleport.errors import UsageError


def check_output(path: Path, suffix: str, option: str) -> None:
    """Refuse a file that cannot be written, before the work that leads to it is done.

    Args:
        path: the file.
        suffix: what its name has to end in, such as ".gif".
        option: the option that named it, for the message.

    Raises:
        UsageError: it has another ending, is a folder, or lies in a folder that is not there.
    """
    if path.suffix.lower() != suffix:
        raise UsageError(f"{option} writes another kind of file", expected=f"a name that ends in {suffix}", got=path)
    if path.is_dir():
        raise UsageError(f"{option} names a folder", expected="a file", got=path)
    if not path.parent.is_dir():
        raise UsageError(f"{option} names a file in a folder that is not there", got=path.parent, todo="Make it first")
