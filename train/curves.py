"""Curves of trainings: from the rows of `metrics.jsonl` to what is drawn and compared. No file, no picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from paddleport.spaces import Array
from train.metrics import Row


@dataclass(frozen=True)
class Curve:
    """How a training went. Steps are environment steps, returns are undiscounted."""

    steps: Array
    """Where iterations ended in which an episode ended, int64 [n]."""
    returns: Array
    """Mean return of the episodes that ended in them, with exploration, float64 [n]."""
    evaluated_at: Array
    """Steps of the evaluations, int64 [m]."""
    means: Array
    """Mean return of each evaluation, float64 [m]."""
    stds: Array
    """Standard deviation over its episodes, float64 [m]."""
    steps_per_second: float | None
    """The last one reported."""


def curve_of(rows: Iterable[Row]) -> Curve:
    """The curve in the rows of a `metrics.jsonl`; values that are absent or null are passed over."""
    training, evaluations, rate = [], [], None
    for row in rows:
        if row.get("episode_return") is not None:
            training.append((row["step"], row["episode_return"]))
        if row.get("evaluation_mean") is not None:
            evaluations.append((row["step"], row["evaluation_mean"], row.get("evaluation_std") or 0.0))
        rate = row.get("steps_per_second", rate)
    steps, returns = _columns(training, 2)
    evaluated_at, means, stds = _columns(evaluations, 3)
    return Curve(steps.astype(np.int64), returns, evaluated_at.astype(np.int64), means, stds, rate)


def moving_mean(values: Array, window: int) -> Array:
    """Mean of each value and the `window` - 1 before it, or of as many as there are; float64 [n]."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: Array = (sums[ends] - sums[starts]) / (ends - starts)
    return means


@dataclass(frozen=True)
class Band:
    """Evaluations of several seeds on common steps, each array [n]."""

    steps: Array
    mean: Array
    low: Array
    """The smallest of the seeds."""
    high: Array
    """The largest of the seeds."""


def band_of(curves: Sequence[Curve]) -> Band:
    """The evaluations of several seeds side by side, interpolated linearly between their own steps.

    The common steps are all steps at which any seed was evaluated, from where the last one begins to where the first
    one ends, so that every point is a mean over all seeds. They may be none.
    """
    first = max(curve.evaluated_at[0] for curve in curves)
    last = min(curve.evaluated_at[-1] for curve in curves)
    every = np.unique(np.concatenate([curve.evaluated_at for curve in curves]))
    steps = every[(every >= first) & (every <= last)]
    values = np.stack([np.interp(steps, curve.evaluated_at, curve.means) for curve in curves])  # [seeds, n]
    return Band(steps, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def _columns(rows: Sequence[tuple[float, ...]], width: int) -> tuple[Array, ...]:
    return tuple(np.array(rows, dtype=np.float64).reshape(-1, width).T)
