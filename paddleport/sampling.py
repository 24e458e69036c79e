"""Drawing an action from what the graph says of its distribution, with the caller's own seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paddleport.errors import UsageError
from paddleport.manifest import Manifest
from paddleport.spaces import Array, Box, Discrete, MultiBinary, MultiDiscrete


def needed(manifest: Manifest) -> tuple[str, ...]:
    """The outputs that an action is drawn from.

    Raises:
        UsageError: the policy has no distribution.
    """
    names = {output.name for output in manifest.outputs}
    wanted = ("mean", "log_std") if isinstance(manifest.action_space, Box) else ("logits",)
    if not names.issuperset(wanted):
        raise UsageError(
            f"Policy {manifest.name!r} has no distribution to draw from",
            expected=f"outputs {' and '.join(wanted)}",
            got=", ".join(sorted(names)),
            todo="Ask for its deterministic action",
        )
    return wanted


def sample(manifest: Manifest, outputs: Mapping[str, Array], rng: np.random.Generator) -> Array:
    """Actions drawn row by row, as the environment takes them: [batch] for Discrete, [batch, …] for other spaces.

    Args:
        manifest: of the policy.
        outputs: those that `needed` names, [batch, …].
        rng: where the randomness comes from.
    """
    space = manifest.action_space
    if isinstance(space, Box):
        noise = rng.standard_normal(outputs["mean"].shape)
        drawn = outputs["mean"] + np.exp(outputs["log_std"].astype(np.float64)) * noise
        return to_action(space, drawn, manifest.action_transform.kind)
    logits = outputs["logits"].astype(np.float64)
    if isinstance(space, MultiBinary):
        on: Array = rng.random(logits.shape) < 1.0 / (1.0 + np.exp(-np.clip(logits, -500, 500)))
        return on.astype(np.int8).reshape(-1, *space.shape)
    if isinstance(space, MultiDiscrete):
        parts = np.split(logits, np.cumsum(space.nvec)[:-1], axis=1)
        chosen: Array = np.stack([_choice(part, rng) for part in parts], axis=1) + np.array(space.starts)
        return chosen
    assert isinstance(space, Discrete)  # noqa: S101 - there is no other kind of action
    return _choice(logits, rng) + space.start


def probabilities(manifest: Manifest, logits: Array) -> Array:
    """What each choice's probability is, [batch, …] as `logits`: of each part that is chosen from, or of being on."""
    space, values = manifest.action_space, logits.astype(np.float64)
    if isinstance(space, MultiBinary):
        likely: Array = 1.0 / (1.0 + np.exp(-np.clip(values, -500, 500)))
        return likely
    splits: Any = np.cumsum(space.nvec)[:-1] if isinstance(space, MultiDiscrete) else []
    return np.concatenate([_softmax(part) for part in np.split(values, splits, axis=1)], axis=1)


def to_action(space: Box, numbers: Array, kind: str) -> Array:
    """What a mean, or what was drawn around it, is as an action.

    Args:
        space: the action space.
        numbers: [batch, size].
        kind: how, as `ActionTransform` says: `affine`, `tanh` or `clip`. Where a dimension lacks one of its bounds, the
            first two leave it as it is, but for the other.

    Returns:
        [batch, …] in the space's shape, type and bounds.
    """
    low, high = (bound.reshape(-1) for bound in space.bounds())
    action = numbers
    if kind != "clip":
        bounded = np.isfinite(low) & np.isfinite(high)
        unit = np.tanh(numbers) if kind == "tanh" else np.clip(numbers, -1.0, 1.0)
        middle = np.where(bounded, (np.where(bounded, high, 0.0) + np.where(bounded, low, 0.0)) / 2, 0.0)
        half = np.where(bounded, (np.where(bounded, high, 0.0) - np.where(bounded, low, 0.0)) / 2, 1.0)
        action = np.where(bounded, unit, numbers) * half + middle
    inside: Array = np.clip(action, low, high).astype(space.dtype).reshape(-1, *space.shape)
    return inside


def _choice(logits: Array, rng: np.random.Generator) -> Array:
    """By the Gumbel trick: the largest of logits + noise is distributed as softmax(logits)."""
    chosen: Array = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return chosen


def _softmax(logits: Array) -> Array:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Array = shifted / shifted.sum(axis=1, keepdims=True)
    return result
