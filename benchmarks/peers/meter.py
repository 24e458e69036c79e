"""How every side is measured: one core, one thread, the same clocks and the same line of JSON at the end.

A script calls `begin` before it imports anything that computes, then `start` just before the first environment step,
`phase` behind each learning phase, and `finish`. Nothing but the standard library.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tasks import GOAL_EPISODES, GOAL_RETURN, TASKS, Task

_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def begin(side: str) -> Meter:
    """Read the command line, take one core and one thread, and return the meter; to be called before other imports.

    Args:
        side: who is measured.
    """
    parser = argparse.ArgumentParser(description=f"One training with {side}, measured; prints one line of JSON.")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--steps", type=int, default=0, help="environment steps; 0 is the task's own number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--core", type=int, default=-1, help="the core to stay on; -1 is the last one allowed")
    given = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    core = given.core if given.core in allowed else allowed[-1]
    os.sched_setaffinity(0, {core})  # every thread made from here on inherits it
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    os.environ["XLA_FLAGS"] = _XLA_FLAGS
    return Meter(side, given.task, given.steps or TASKS[given.task].steps, given.seed, core)


@dataclass(frozen=True)
class Mark:
    """A moment of a training."""

    steps: int
    """Environment steps taken."""
    cpu_seconds: float
    """Since the first step: of this process, all of its threads and its children that ended."""
    wall_seconds: float
    """Since the first step."""


class Meter:
    """Clocks of one training.

    Args:
        side: who is measured.
        task: name in `TASKS`.
        steps: environment steps to take.
        seed: of the training.
        core: where it runs.
    """

    def __init__(self, side: str, task: str, steps: int, seed: int, core: int) -> None:
        self.side, self.name, self.steps, self.seed, self._core = side, task, steps, seed, core
        self.task: Task = TASKS[task]
        self.first_learnt: Mark | None = None
        self.last: Mark | None = None
        self.goal: Mark | None = None
        self._recent: collections.deque[float] = collections.deque(maxlen=GOAL_EPISODES)

    def start(self) -> None:
        """The first environment step follows."""
        self._busy, self._cpu, self._wall = core_busy_seconds(self._core), cpu_seconds(), time.perf_counter()
        self._before = self._cpu

    def phase(self, steps: int, learnt: bool, returns: Iterable[float] = ()) -> None:
        """A phase of acting and learning is over.

        Args:
            steps: environment steps taken so far.
            learnt: whether there has been an update yet.
            returns: of the training episodes that ended since the last call, in order.
        """
        self.last = Mark(steps, cpu_seconds() - self._cpu, time.perf_counter() - self._wall)
        if learnt and self.first_learnt is None:
            self.first_learnt = self.last
        for value in returns:
            self._recent.append(float(value))
            full = len(self._recent) == GOAL_EPISODES
            if self.goal is None and full and sum(self._recent) >= GOAL_RETURN * GOAL_EPISODES:
                self.goal = self.last

    def finish(self, versions: dict[str, str], **more: object) -> None:
        """Print what was measured.

        Args:
            versions: of the packages that did the work.
            more: what else there is to keep.
        """
        if self.last is None or self.first_learnt is None or self.last == self.first_learnt:
            raise SystemExit(f"{self.side}: {self.steps} steps are too few: expected two learning phases or more")
        wall = time.perf_counter() - self._wall
        others = (core_busy_seconds(self._core) - self._busy - (cpu_seconds() - self._cpu)) / wall
        measured = {
            "side": self.side,
            "task": self.name,
            "seed": self.seed,
            "steps": self.steps,
            "first_learnt": vars(self.first_learnt),
            "last": vars(self.last),
            "goal": vars(self.goal) if self.goal and self.task.has_goal else None,
            "start_up_cpu_seconds": self._before,
            "final_return": sum(self._recent) / len(self._recent) if self._recent else None,
            "core": self._core,
            "others_share": round(min(1.0, max(0.0, others)), 3),
            "versions": versions,
            **more,
        }
        print(json.dumps(measured), flush=True)


def cpu_seconds() -> float:
    """CPU time of this process, its threads, and its children that ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def core_busy_seconds(core: int) -> float:
    """Seconds that a core has been busy for anybody since the machine started; NaN where /proc does not tell."""
    stat = Path("/proc/stat")
    lines = stat.read_text(encoding="ascii").splitlines() if stat.is_file() else []
    for line in lines:
        name, *ticks = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, ticks[:8])
            return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return float("nan")
