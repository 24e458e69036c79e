"""One seed of a row: trained as far as it has not been, evaluated, and its result written."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.learning_report import Point, Result, file_name, thinned, write_result
from benchmarks.learning_rows import Row
from benchmarks.processes import Children
from paddleport.checkpoint import CheckpointState, Run
from paddleport.errors import PaddleportError, UsageError
from paddleport.files import write_atomic
from train import configuration
from train.checkpointing import now
from train.command import parse
from train.curves import curve_of
from train.metrics import read_metrics

RUNS = Path("build") / "learning"
EPISODES, EVALUATION_SEED = 100, 7
"""Episodes of a training's own evaluations are seeded with two billion and more."""
_CODE = ("paddleport", "train", "benchmarks/*.py")
_CPUS = Path("/proc/cpuinfo")


class Spent(msgspec.Struct, frozen=True):
    """What training a seed has taken so far, kept beside its run."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    attempts: int = 0


@dataclass(frozen=True)
class Seed:
    """One seed of a row: a run."""

    row: Row
    seed: int
    runs: Path = RUNS
    episodes: int = EPISODES

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"{self.row.name}-{self.seed}"

    @property
    def folder(self) -> Path:
        """Its run directory."""
        return self.runs / self.name

    @property
    def log(self) -> Path:
        """What its commands say."""
        return self.runs / f"{self.name}.log"

    @property
    def _spent_path(self) -> Path:
        return self.runs / f"{self.name}.json"

    @property
    def spent(self) -> Spent:
        """What its trainings have taken so far."""
        path = self._spent_path
        return msgspec.json.decode(path.read_bytes(), type=Spent) if path.is_file() else Spent()

    def spend(self, before: Spent, wall_seconds: float, cpu_seconds: float) -> None:
        """Put an attempt on record, after those before it."""
        after = Spent(before.wall_seconds + wall_seconds, before.cpu_seconds + cpu_seconds, before.attempts + 1)
        write_atomic(self._spent_path, msgspec.json.encode(after))

    def training(self) -> list[str]:
        """Arguments of `paddleport` that train it from the start."""
        row = self.row
        chosen = ["--algo", row.algorithm, "--env", row.environment, "--seed", str(self.seed)]
        return ["train", *chosen, *row.options, "--run-dir", str(self.folder)]

    def resuming(self) -> list[str]:
        """Arguments that continue it."""
        return ["train", "--run-dir", str(self.folder), "--resume"]

    def evaluating(self) -> list[str]:
        """Arguments that evaluate its best checkpoint."""
        return ["evaluate", str(self.folder), "--episodes", str(self.episodes), "--seed", str(EVALUATION_SEED)]

    def planned(self) -> dict[str, Any]:
        """The configuration that it would be trained with now."""
        return configuration.to_mapping(parse(self.training()[1:]))


def complete(seed: Seed, children: Children, results: Path) -> Result:
    """Train a seed as far as it has not been, evaluate it and write its result.

    Raises:
        UsageError: its folder holds a run with other options than it has now.
        PaddleportError: a command failed, or was stopped.
    """
    limit = seed.row.minutes * 60
    if not _over(seed, limit):
        begun = _begun(seed)
        before = seed.spent if begun else Spent()  # of a run that was removed, it may still be there
        started, cpu_seconds = time.monotonic(), 0.0
        left = limit - before.wall_seconds if limit else None
        try:
            _, cpu_seconds = children.run(seed.resuming() if begun else seed.training(), seed.log, left)
        finally:
            seed.spend(before, time.monotonic() - started, cpu_seconds)
        if not _over(seed, limit):
            raise PaddleportError(f"{seed.name} was stopped", todo="The same command goes on with it")
    out, _ = children.run(seed.evaluating(), seed.log)
    result = result_of(seed, json.loads(out))
    write_result(result, results / file_name(seed.row, seed.seed))
    return result


def _over(seed: Seed, limit: float) -> bool:
    """Whether a seed's training has come to its end: all its steps, or all its time."""
    last = _last_state(seed)
    if last is None:
        return False
    planned = seed.planned()
    changed = configuration.differences(last.config, planned)
    if changed:
        raise UsageError(
            f"{seed.folder} was trained with other options than its row has now",
            got=", ".join(changed),
            todo="Remove that folder to train it again",
        )
    return last.step >= planned["total_steps"] or bool(limit and seed.spent.wall_seconds >= limit)


def _last_state(seed: Seed) -> CheckpointState | None:
    """Of a run's last checkpoint; None where it has none yet."""
    if not _begun(seed):
        return None
    run = Run(seed.folder)
    return run.checkpoint("last").state if run.steps() else None


def _begun(seed: Seed) -> bool:
    """Whether there is a run to resume."""
    return (seed.folder / configuration.CONFIG).is_file()


def result_of(seed: Seed, evaluation: dict[str, Any]) -> Result:
    """The result of a run that has come to its end, from what `paddleport evaluate --json` said of it."""
    best, last = Run(seed.folder).checkpoint("best").state, Run(seed.folder).checkpoint("last").state
    curve = curve_of(read_metrics(seed.folder))
    evaluations = zip(curve.evaluated_at.tolist(), curve.means.tolist(), curve.stds.tolist(), strict=True)
    spent = seed.spent
    return Result(
        environment=seed.row.environment,
        algorithm=seed.row.algorithm,
        seed=seed.seed,
        **{name: evaluation[name] for name in ("mean", "std", "min", "max", "episodes")},
        evaluation_seed=evaluation["seed"],
        best_step=best.step,
        steps=last.step,
        finished=last.step >= last.config["total_steps"],
        wall_seconds=round(spent.wall_seconds, 1),
        cpu_seconds=round(spent.cpu_seconds, 1),
        attempts=spent.attempts,
        curve=thinned([Point(*each) for each in evaluations]),
        config=last.config,
        commands=tuple(shlex.join(["paddleport", *part]) for part in (seed.training(), seed.evaluating())),
        commit=commit(),
        versions=last.versions,
        machine=machine(),
        created=now(),
    )


def commit() -> str:
    """What is checked out, with a + where tracked files were changed; empty outside of a checkout."""
    asked = [["git", "rev-parse", "--short=10", "HEAD"], ["git", "status", "--porcelain", "-uno", "--", *_CODE]]
    answers = [subprocess.run(command, capture_output=True, text=True, check=False) for command in asked]
    if any(answer.returncode for answer in answers):
        return ""
    head, changed = (answer.stdout.strip() for answer in answers)
    return f"{head}+" if changed else head


def machine() -> str:
    """The processor and how many cores there are of it."""
    models = [line for line in _CPUS.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    return f"{os.cpu_count()} cores, {model}"
