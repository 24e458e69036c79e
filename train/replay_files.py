"""The replay's rows on disk: files that never change, each written once, which checkpoints list by their hashes.

Rows behind a checkpoint never change again (its barrier cuts every episode), so a checkpoint needs to write only those
that came since the one before, and its cost does not grow with the replay. A memory-mapped ring would save reading them
back, but its pages change under the checkpoints that refer to them, nobody can say what a kill or a power cut left of
them, and they have no hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors.numpy import save

from paddleport.checkpoint import REPLAY_ROWS
from paddleport.errors import ArtifactError
from paddleport.files import sha256_bytes, write_atomic
from paddleport.manifest import FileInfo
from paddleport.spaces import Array
from train.replay import Replay

_FILE_BYTES = 64 * 2**20
_NAME = re.compile(r"rows-([0-9]+)-([0-9]+)\.safetensors")


def write_rows(run: Path, replay: Replay, earlier: Mapping[str, FileInfo]) -> dict[str, FileInfo]:
    """Write the rows that no earlier checkpoint has.

    Args:
        run: the run directory.
        replay: the replay, at a checkpoint's barrier.
        earlier: the files that the checkpoint before lists.

    Returns:
        All files that rows of the ring lie in, for the new checkpoint to list.

    Raises:
        OSError: a file cannot be written; those that this call wrote are gone again.
    """
    folder = run / "checkpoints" / REPLAY_ROWS
    folder.mkdir(parents=True, exist_ok=True)
    listed = {name: info for name, info in earlier.items() if _end(name) > replay.oldest}
    first = max([replay.oldest, *map(_end, listed)])
    new: dict[str, FileInfo] = {}
    try:
        for start, end, rows in _pieces(replay, first, replay.count):
            data = save(rows)
            name = f"rows-{start:012d}-{end:012d}.safetensors"
            write_atomic(folder / name, data)
            new[name] = FileInfo(sha256=sha256_bytes(data), size=len(data))
    except BaseException:
        for name in new:
            (folder / name).unlink(missing_ok=True)
        raise
    return {**listed, **new}


def _pieces(replay: Replay, first: int, end: int) -> Iterator[tuple[int, int, dict[str, Array]]]:
    """Rows number `first` to `end` in pieces that fit into a file, or of one row: first, end and arrays of each."""
    most = max(1, _FILE_BYTES // replay.row_bytes)
    for start in range(first, end, most):
        yield from _halved(replay, start, min(start + most, end))


def _halved(replay: Replay, first: int, end: int) -> Iterator[tuple[int, int, dict[str, Array]]]:
    """Rows that fit into a file but for what is kept beside the ring: whole, or half by half where that is much."""
    rows = replay.rows(first, end)
    if end - first == 1 or sum(array.nbytes for array in rows.values()) <= _FILE_BYTES:
        yield first, end, rows
        return
    middle = (first + end) // 2
    yield from _halved(replay, first, middle)
    yield from _halved(replay, middle, end)


def _end(name: str) -> int:
    """Number of the row behind a file's last one."""
    found = _NAME.fullmatch(name)
    if not found:
        raise ArtifactError("A checkpoint lists a file of replay rows by an unknown name", got=repr(name))
    return int(found[2])
