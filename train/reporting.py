"""What a person and a program see of a training: a progress bar, metrics.jsonl, VisualDL scalars and a picture."""

from __future__ import annotations

import collections
import contextlib
import datetime
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from paddleport.errors import TrainingError
from paddleport.files import write_atomic
from paddleport.progress import can_redraw
from train.curves import curve_of
from train.disk import writing_to
from train.figures import learning_curve
from train.metrics import METRICS, MetricsFile, read_metrics

LEARNING_CURVE = "learning_curve.png"
_PLAIN_INTERVAL = 5.0
_WINDOW = 20


class ScalarLog(Protocol):
    """Where scalars go; VisualDL's `LogWriter` is one."""

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Add a point."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


def open_scalar_log(folder: Path) -> ScalarLog | None:
    """A VisualDL log in `folder`; None where VisualDL is not installed."""
    try:
        from visualdl import LogWriter
    except ImportError:
        return None
    writer: ScalarLog = LogWriter(logdir=str(folder))
    return writer


class Reporter:
    """Reports a training as it goes; a context manager.

    Args:
        run: the run directory.
        step: where the training starts from.
        total: where it ends.
        label: what is trained, for the progress bar.
    """

    def __init__(self, run: Path, step: int, total: int, label: str) -> None:
        self._run = run
        with writing_to(run):
            self._metrics = MetricsFile(run / METRICS, keep_until=step)
            self._scalars = open_scalar_log(run / "logs")
        # In a notebook's own process too: lines, as in a pipe.
        self._console = Console(stderr=True, emoji=False, markup=False, force_jupyter=False)
        self._live = _live_bar(self._console) if can_redraw() else None
        self._task = self._live.add_task(label, total=total, completed=step, note="") if self._live else None
        self._recent: collections.deque[float] = collections.deque(maxlen=_WINDOW)
        self._first, self._total, self._label = step, total, label
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
        with contextlib.suppress(TrainingError) if error else contextlib.nullcontext(), writing_to(self._run):
            self._metrics.close()
            if self._scalars:
                self._scalars.close()

    def rate(self, step: int) -> float:
        """Environment steps a second since this process began to train."""
        return (step - self._first) / max(time.monotonic() - self._started, 1e-9)

    def iteration(self, step: int, metrics: dict[str, float | None]) -> None:
        """Report one iteration."""
        row = {"step": step, **metrics, "steps_per_second": round(self.rate(step), 1)}
        self._record("train", row, row)
        if (episode_return := metrics.get("episode_return")) is not None:
            self._recent.append(episode_return)
        note = self._note(step)
        if self._live and self._task is not None:
            self._live.update(self._task, completed=min(step, self._total), note=note)
        elif time.monotonic() - self._last_line > _PLAIN_INTERVAL:
            self._last_line = time.monotonic()
            self.say(f"{self._label}: {step}/{self._total} steps, {note}")

    def evaluation(self, step: int, mean: float, std: float) -> None:
        """Report a checkpoint's evaluation."""
        row = {"step": step, "evaluation_mean": mean, "evaluation_std": std}
        self._record("evaluation", row, {"step": step, "mean": mean, "std": std})
        self.say(f"{self._label}: checkpoint at {step} steps, evaluated at {mean:.1f} ± {std:.1f}")

    def learning_curve(self, title: str) -> None:
        """Draw `learning_curve.png` from what metrics.jsonl has; what goes wrong is said, and stops nothing."""
        curve = curve_of(read_metrics(self._run))
        if not len(curve.steps) + len(curve.means):
            return
        try:
            write_atomic(self._run / LEARNING_CURVE, learning_curve(curve, title))
        except ModuleNotFoundError as error:
            self.say(f"There is no {LEARNING_CURVE}: the package {error.name} is not installed.")
        except Exception as error:  # noqa: BLE001 - a picture that fails in any way must not fail what is trained
            self.say(f"There is no {LEARNING_CURVE}: {error}.")

    def say(self, line: str) -> None:
        """Print a line to stderr, above the bar where there is one."""
        self._console.print(line, highlight=False, soft_wrap=True)

    def _note(self, step: int) -> str:
        recent = f"return {sum(self._recent) / len(self._recent):.1f}" if self._recent else "no episode yet"
        rate = self.rate(step)
        left = f"{_clock((self._total - step) / rate)} left" if rate > 0 else ""
        return f"{recent}, {rate:.0f} steps/s, {left}".rstrip(", ")

    def _record(self, group: str, row: dict[str, Any], scalars: dict[str, Any]) -> None:
        """Write `row` to metrics.jsonl and `scalars`, under `group`, to VisualDL."""
        with writing_to(self._run):
            self._metrics.write(row)
            for name, value in scalars.items():
                if self._scalars and name != "step" and value is not None:
                    self._scalars.add_scalar(tag=f"{group}/{name}", value=value, step=row["step"])


def _live_bar(console: Console) -> Progress:
    """A bar that takes the width that the words leave, on one line; a long label is cut."""
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(max_width=20, no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TextColumn("{task.percentage:.0f}%", table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True)),
        console=console,
        expand=True,
    )


def _clock(seconds: float) -> str:
    """Seconds as hours:minutes:seconds."""
    return str(datetime.timedelta(seconds=max(0, round(seconds))))
