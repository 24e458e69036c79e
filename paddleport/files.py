"""Files that are either whole or absent: write beside, fsync, rename."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from paddleport.errors import ArtifactError

_RESTORE = "Restore it from a copy, or make it again"
_LEFT_BEHIND = re.compile(r"\..+\.[0-9a-f]{12}")
_HIDDEN = "."  # temporary siblings start with a dot, so that listings of runs and models pass over them


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of `data`, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_bytes(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes.

    Raises:
        ArtifactError: it is missing, a link, not a regular file, too large or unreadable.
    """
    try:
        if path.is_symlink() or not path.is_file():
            raise ArtifactError(f"Cannot read {path}", expected="a regular file", got=_kind(path), todo=_RESTORE)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                expected = f"at most {limit} bytes"
                raise ArtifactError(f"{path} is too large", expected=expected, got=f"{size} bytes", todo=_RESTORE)
            return file.read(size)
    except OSError as error:
        raise ArtifactError(f"Cannot read {path}", got=error.strerror or error, todo=_RESTORE) from error


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step; a reader sees the old bytes or the new ones, never a part."""
    temporary = _sibling(path)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _fsync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def publish_directory(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside `target`; it becomes `target` when the block ends without an error.

    Args:
        target: the folder to appear, by rename, with all its files on disk.
        replace: whether an existing `target` gives way; otherwise it is an OSError to publish over one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _sibling(target)
    temporary.mkdir()
    try:
        yield temporary
        for path in sorted(temporary.rglob("*"), reverse=True):
            _fsync(path)
        _fsync(temporary)
        _rename(temporary, target, replace=replace)
        _fsync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _kind(path: Path) -> str:
    if path.is_symlink():
        return "a link"
    if path.is_dir():
        return "a folder"
    return "a device or a pipe" if path.exists() else "nothing there"


def sweep(folder: Path, older_than: float) -> None:
    """Remove what a killed process left of `write_atomic` and `publish_directory` in a folder.

    Args:
        folder: where they were publishing; it need not exist.
        older_than: seconds; what is younger may be somebody's work.
    """
    for path in folder.glob(".*"):
        with contextlib.suppress(OSError):
            if _LEFT_BEHIND.fullmatch(path.name) and time.time() - path.stat().st_mtime > older_than:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _rename(source: Path, target: Path, *, replace: bool) -> None:
    if not (replace and target.exists()):
        source.rename(target)
        return
    retired = _sibling(target)
    target.rename(retired)
    try:
        source.rename(target)
    except OSError:
        retired.rename(target)
        raise
    shutil.rmtree(retired, ignore_errors=True)


def remove_directory(folder: Path) -> None:
    """Remove a folder so that it is whole or gone; `sweep` removes what a kill in between leaves."""
    retired = _sibling(folder)
    folder.rename(retired)
    shutil.rmtree(retired, ignore_errors=True)


def _sibling(path: Path) -> Path:
    return path.with_name(f"{_HIDDEN}{path.name}.{uuid.uuid4().hex[:12]}")


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
