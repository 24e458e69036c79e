"""`RUN/quantized/qat.unfinished/`: a quantization-aware training after its last whole round.

It is replaced in one step after each round. What a round draws at random follows from the seed and the round's number,
and its episodes from their seeds, so that weights, Adam's moments and the observations seen are all there is to keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from safetensors.numpy import save

from paddleport import files, sealed
from paddleport.checkpoint import load_tensors
from paddleport.errors import ArtifactError, UsageError
from paddleport.manifest import FileInfo
from paddleport.spaces import Array, Leaves

SCHEMA_VERSION = 1
STATE = "state.json"
_FILES = ("student.safetensors", "optimizer.safetensors", "observations.safetensors")
_LIMIT = 4 * 2**30
_AGAIN = "Start over without --resume"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All that decides what comes out: a training is resumed under the same ones only."""

    checkpoint_sha256: str
    seed: int
    observer: str
    calibration_sha256: str
    """Of the observations that scales were decided on."""
    keep_float: tuple[str, ...]
    rounds: int
    episodes: int
    """That the student plays in each round."""
    rows_a_round: int
    """How many of the observations that it visits there are kept."""
    updates: int
    """In each round."""
    batch_size: int
    learning_rate: float


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`state.json`."""

    schema_version: int = SCHEMA_VERSION
    settings: Settings
    rounds_done: int
    loss: float
    files: dict[str, FileInfo]


class Progress(msgspec.Struct, frozen=True):
    """A training after a whole round."""

    rounds_done: int
    loss: float
    """Mean over the round."""
    student: Mapping[str, Array]
    optimizer: Mapping[str, Array]
    seen: Leaves
    """Observations that the student learns on, and the teacher's answers to them."""


def folder_of(run: Path) -> Path:
    """Where a run keeps an unfinished training."""
    return run / "quantized" / "qat.unfinished"


def write(run: Path, settings: Settings, progress: Progress) -> None:
    """Replace what a run keeps of the training by its newest round."""
    tensors = (progress.student, progress.optimizer, progress.seen)
    contents = {name: save(dict(each)) for name, each in zip(_FILES, tensors, strict=True)}
    listed = {name: FileInfo(sha256=files.sha256_bytes(data), size=len(data)) for name, data in contents.items()}
    state = State(settings=settings, rounds_done=progress.rounds_done, loss=progress.loss, files=listed)
    with files.publish_directory(folder_of(run), replace=True) as folder:
        for name, data in contents.items():
            (folder / name).write_bytes(data)
        (folder / STATE).write_bytes(sealed.seal(state))


def check_unfinished(run: Path) -> None:
    """See, before anything that takes long, that there is a training to go on with.

    Raises:
        UsageError: there is none.
    """
    folder = folder_of(run)
    if not folder.is_dir():
        raise UsageError("There is no unfinished QAT to resume", expected=str(folder), todo="Leave --resume out")


def read(run: Path, settings: Settings) -> Progress:
    """The training that a run keeps.

    Raises:
        ArtifactError: it is damaged.
        UsageError: there is none, or it was begun under other settings.
    """
    check_unfinished(run)
    folder = folder_of(run)
    state = sealed.unseal(folder / STATE, State, SCHEMA_VERSION)
    if state.settings != settings:
        before, now = msgspec.to_builtins(state.settings), msgspec.to_builtins(settings)
        other = [f"{name} {before[name]}" for name in before if before[name] != now[name]]
        raise UsageError("The unfinished QAT was begun otherwise", got=", ".join(other), todo=_AGAIN)
    if state.files.keys() != set(_FILES):
        raise ArtifactError(f"{folder / STATE} does not list its files", todo=_AGAIN)
    for name, listed in state.files.items():
        sealed.read_listed(folder, name, listed, _LIMIT, _AGAIN)
    return Progress(state.rounds_done, state.loss, *(load_tensors(folder / name) for name in _FILES))


def remove(run: Path) -> None:
    """Forget the training that a run keeps, where it keeps one."""
    if folder_of(run).is_dir():
        files.remove_directory(folder_of(run))
