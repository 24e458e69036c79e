"""Which of a run's checkpoints is resumed, and which stay on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from paddleport import sealed
from paddleport.checkpoint import (
    QUANTIZATION,
    REPLAY_ROWS,
    SCHEMA_VERSION,
    STATE,
    Checkpoint,
    CheckpointState,
    Run,
    step_name,
)
from paddleport.errors import ArtifactError
from paddleport.files import remove_directory
from train.checkpointing import point


def newest_whole(run: Run) -> Checkpoint | None:
    """The newest checkpoint that is whole, with `last` pointing at it; None where the run has none yet.

    A damaged one, or one whose replay is damaged, is passed over with a line on stderr: the work before it is not lost
    with it.

    Raises:
        ArtifactError: there are checkpoints, and all of them are damaged.
    """
    steps = run.steps()
    for step in reversed(steps):
        try:
            checkpoint = Checkpoint.open(run.checkpoints / step_name(step))
            checkpoint.check_replay()
        except ArtifactError as error:
            print(f"paddleport: {error} Going back to the checkpoint before it.", file=sys.stderr)
            continue
        point(run.path, "last", step)
        # A run that was killed between a checkpoint and its pointer would have pointed there.
        best = _best(_states(run, step, lambda path: Checkpoint.open(path).state), checkpoint.state)
        if best is not None:
            point(run.path, "best", best)
        return checkpoint
    if steps:
        raise ArtifactError(f"Every checkpoint in {run.path} is damaged", todo="Train again in another --run-dir")
    return None


def prune(run: Run, step: int, keep: int) -> None:
    """Remove old checkpoints, and replay rows that none needs any more.

    What stays are the newest ones, the best one, those that scales in `quantized/` were made from, and what makes the
    checkpoint before the last a whole fall-back: itself, and the one that was best by then.

    Args:
        run: the run, with its newest checkpoint in place.
        step: of that checkpoint. Later ones are left of a training that fell back; they stay until it has passed them.
        keep: how many of the newest to keep, at least 2; 0 keeps everything.
    """
    if not keep:
        return
    steps = [each for each in run.steps() if each <= step]
    newest = steps[-max(keep, 2) :]
    states = {state.step: state for state in _states(run, max(run.steps()), _read_state)}
    bests = {_best(_up_to(at, states), states[at]) for at in newest[-2:] if at in states}
    for old in {*steps} - {*newest, *bests, *_quantized_steps(run.path)}:
        if (run.checkpoints / step_name(old)).is_dir():
            remove_directory(run.checkpoints / step_name(old))
    needed = {name for each in run.steps() if each in states for name in states[each].replay_files}
    for path in (run.checkpoints / REPLAY_ROWS).glob("rows-*"):
        if path.name not in needed:
            path.unlink()


def _states(run: Run, newest: int, read: Callable[[Path], CheckpointState]) -> Iterator[CheckpointState]:
    """States of the readable checkpoints up to a step, newest first."""
    for step in reversed(run.steps()):
        if step <= newest:
            try:
                yield read(run.checkpoints / step_name(step))
            except ArtifactError:
                continue


def _read_state(path: Path) -> CheckpointState:
    return sealed.unseal(path / STATE, CheckpointState, SCHEMA_VERSION)


def _up_to(step: int, states: dict[int, CheckpointState]) -> list[CheckpointState]:
    """Those of `states` that are no later, newest first."""
    return [states[each] for each in sorted(states, reverse=True) if each <= step]


def _best(newest_first: Iterable[CheckpointState], of: CheckpointState) -> int | None:
    """Step of the newest checkpoint whose evaluation is the best one that `of` knows."""
    known = ((state.step, state.evaluation) for state in newest_first)
    return next((step for step, played in known if played is not None and played.mean == of.best_mean_return), None)


def _quantized_steps(run: Path) -> set[int]:
    """Steps of the checkpoints that scales were made from; the format is `quantize`'s, of which this needs a field."""
    steps = set()
    for path in run.glob(f"quantized/*/{QUANTIZATION}"):
        try:
            steps.add(msgspec.json.decode(path.read_bytes(), type=_Source).step)
        except (OSError, msgspec.DecodeError):
            continue  # damaged: nobody can use it
    return steps


class _Source(msgspec.Struct):
    step: int
