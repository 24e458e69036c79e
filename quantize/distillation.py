"""The loss that keeps a quantized student at its float teacher's side: pure functions of named tensors.

Divergences are of the teacher from the student (Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", at
temperature 1); for policies Rusu et al. 2016, "Policy Distillation", found it the best of several.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle
from paddle.nn import functional as F  # noqa: N812 - Paddle's own convention

from paddleport.spaces import Array, Box, MultiBinary, MultiDiscrete, Space

TERMS = ("loss", "action_loss", "value_loss")
TARGET = "target."
"""Targets in a batch are named so: `target.logits`, `target.value`."""
_VALUE_COEF = 0.1
_SMALLEST = 1e-6


def spreads(targets: Mapping[str, Array]) -> dict[str, float]:
    """What errors of each of the teacher's outputs are measured in: its standard deviation over observations.

    `advantage` is for what Q-values are above their mean over the actions, often a hundredth of the values; on these
    alone hangs which action is best. It is their median magnitude, since a few states of no return, where they are
    large, would set a standard deviation.

    Args:
        targets: the teacher's outputs [n, …], by name.
    """
    found = {name: _spread(values) for name, values in targets.items() if values.dtype.kind == "f"}
    if "q_values" in targets:
        advantages = targets["q_values"] - targets["q_values"].mean(axis=1, keepdims=True)
        found["advantage"] = max(float(np.median(np.abs(advantages))), _SMALLEST)
    return found


def distillation_loss(
    space: Space, outputs: Mapping[str, paddle.Tensor], batch: Mapping[str, paddle.Tensor], scale: Mapping[str, float]
) -> dict[str, paddle.Tensor]:
    """How far the student's outputs are from the teacher's.

    Args:
        space: the action space.
        outputs: the student's: `q_values`, or `logits` or `mean`, [batch, …], and `value` [batch, 1].
        batch: the teacher's, under `TARGET` names; `value` is [batch].
        scale: `spreads` of the teacher's outputs.

    Returns:
        `TERMS`; the value's error counts a tenth.
    """
    if "q_values" in outputs:
        action = _q_values(outputs["q_values"], batch[f"{TARGET}q_values"], scale)
    elif isinstance(space, Box):
        mean, target = outputs["mean"], batch[f"{TARGET}mean"]
        action = ((mean - target) / scale["mean"]).square().sum(axis=-1).mean()
    else:
        action = _divergence(space, outputs["logits"], batch[f"{TARGET}logits"])
    value = paddle.zeros([1])
    if "value" in outputs:
        value = _huber(outputs["value"].squeeze(-1), batch[f"{TARGET}value"], scale["value"])
    return {"loss": action + _VALUE_COEF * value.sum(), "action_loss": action, "value_loss": value.sum()}


def _q_values(values: paddle.Tensor, target: paddle.Tensor, scale: Mapping[str, float]) -> paddle.Tensor:
    """Huber on Q-values [batch, n], and on what they are above their mean over the actions."""
    mean, target_mean = values.mean(axis=1, keepdim=True), target.mean(axis=1, keepdim=True)
    advantages = _huber(values - mean, target - target_mean, scale["advantage"])
    return _huber(values, target, scale["q_values"]) + advantages


def _divergence(space: Space, logits: paddle.Tensor, target: paddle.Tensor) -> paddle.Tensor:
    """KL(teacher ‖ student), mean over the batch; several choices add up."""
    if isinstance(space, MultiBinary):
        # Cross-entropy of each element, less the teacher's entropy, which has no gradient.
        probability = F.sigmoid(target)
        cross = F.binary_cross_entropy_with_logits(logits, probability, reduction="none")
        entropy = F.binary_cross_entropy_with_logits(target, probability, reduction="none")
        return (cross - entropy).sum(axis=-1).mean()
    splits = list(space.nvec) if isinstance(space, MultiDiscrete) else [logits.shape[-1]]
    parts = zip(paddle.split(logits, splits, axis=-1), paddle.split(target, splits, axis=-1), strict=True)
    total = paddle.zeros([])
    for student, teacher in parts:
        log_target = F.log_softmax(teacher, axis=-1)
        difference = log_target - F.log_softmax(student, axis=-1)
        total = total + (log_target.exp() * difference).sum(axis=-1).mean()
    return total


def _huber(values: paddle.Tensor, target: paddle.Tensor, scale: float) -> paddle.Tensor:
    """Mean Huber loss with threshold 1 of errors in units of `scale` (Huber 1964)."""
    return F.smooth_l1_loss(values / scale, target / scale)


def _spread(values: Array) -> float:
    return max(float(np.asarray(values, np.float64).std(axis=0).max(initial=0.0)), _SMALLEST)
