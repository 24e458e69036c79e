"""Writing checkpoints: whole or absent, and pointed at only once they are there."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from collections.abc import Mapping
from pathlib import Path

import msgspec
from safetensors.numpy import save

from paddleport import sealed
from paddleport.checkpoint import OPTIMIZER, POLICY, REPLAY, STATE, CheckpointState, step_name
from paddleport.files import publish_directory, sha256_bytes, write_atomic
from paddleport.manifest import FileInfo
from paddleport.spaces import Array

_LIBRARIES = ("paddlepaddle", "numpy", "gymnasium", "safetensors")


def write_checkpoint(
    run: Path,
    state: CheckpointState,
    policy: Mapping[str, Array],
    optimizer: Mapping[str, Array],
    replay: Mapping[str, Array] | None = None,
) -> Path:
    """Write a checkpoint and point `last` at it, and `best` where its evaluation is the best so far.

    Args:
        run: the run directory.
        state: everything but `files`, which is filled in here.
        policy: the policy's tensors by structural path.
        optimizer: the trainer's other tensors.
        replay: the replay memory without its rows, where the algorithm has one; `state` lists the files of those.

    Returns:
        The checkpoint's folder.
    """
    contents = {POLICY: save(dict(policy)), OPTIMIZER: save(dict(optimizer))}
    if replay:
        contents[REPLAY] = save(dict(replay))
    listed = {name: FileInfo(sha256=sha256_bytes(data), size=len(data)) for name, data in contents.items()}
    target = run / "checkpoints" / step_name(state.step)
    with publish_directory(target, replace=True) as folder:
        for name, data in contents.items():
            (folder / name).write_bytes(data)
        (folder / STATE).write_bytes(sealed.seal(msgspec.structs.replace(state, files=listed)))
    point(run, "last", state.step)
    if state.evaluation is not None and state.evaluation.mean == state.best_mean_return:
        point(run, "best", state.step)
    return target


def point(run: Path, pointer: str, step: int) -> None:
    """Point `best` or `last` at a checkpoint."""
    write_atomic(run / "checkpoints" / pointer, f"{step_name(step)}\n".encode())


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that decide what training computes."""
    found = {"python": platform.python_version(), "paddleport": importlib.metadata.version("paddleport")}
    for library in _LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def now() -> str:
    """The present moment in UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
