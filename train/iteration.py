"""What an iteration of any algorithm reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paddleport.errors import TrainingError
from paddleport.spaces import Array

STEPS_AN_ITERATION = 256
"""What is logged is the mean over about this many environment steps, or over one rollout that is longer."""


def episode_means(returns: Sequence[float], lengths: Sequence[int]) -> dict[str, float | None]:
    """Mean return and length of the episodes that ended; None where none did."""
    return {
        "episode_return": float(np.mean(returns)) if returns else None,
        "episode_length": float(np.mean(lengths)) if lengths else None,
    }


def finite_means(names: Sequence[str], updates: Sequence[Array], step: int) -> dict[str, float | None]:
    """Mean over the updates of each term that they reported; None where there was no update.

    Args:
        names: of the terms.
        updates: what each update reported, [terms].
        step: environment steps taken so far, for the message.

    Raises:
        TrainingError: a term is not finite any more.
    """
    if not updates:
        return dict.fromkeys(names)
    means = dict(zip(names, np.mean(updates, axis=0).tolist(), strict=True))
    if not np.isfinite(list(means.values())).all():
        raise TrainingError(
            f"The loss is not finite any more, at step {step}",
            got=means,
            todo="Train again in another --run-dir with a lower --learning-rate, or look at the environment's rewards",
        )
    return means


def scaler_metrics(state: Mapping[str, float]) -> dict[str, float | None]:
    """What a loss scaler's state says to a reader: its scale, and the updates skipped so far; nothing without one."""
    return {"amp_scale": state["scale"], "amp_skipped": state["skipped"]} if state else {}
