"""Values that change over a training."""

from __future__ import annotations

from train.config import Schedule


def scheduled(start: float, schedule: Schedule, progress: float) -> float:
    """`start`, or what is left of it when it falls linearly to zero over the training."""
    return start * (1.0 - progress) if schedule == "linear" else start


def falling(start: float, end: float, progress: float, fraction: float) -> float:
    """Linear from `start` to `end` over the first `fraction` of the training, then `end`."""
    done = min(1.0, progress / fraction) if fraction else 1.0
    return start + (end - start) * done
