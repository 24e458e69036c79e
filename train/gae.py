"""Generalised advantage estimation."""

from __future__ import annotations

import numpy as np

from paddleport.spaces import Array


def generalized_advantages(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    done: Array,
    gamma: float,
    gae_lambda: float,
) -> Array:
    """GAE(λ) (Schulman et al. 2016, equations 11 to 16), with termination and truncation told apart.

        δ_t = r_t + γ · V(s_{t+1}) · (1 - terminated_t) - V(s_t)
        A_t = δ_t + γ λ · (1 - done_t) · A_{t+1}

    A truncated episode bootstraps from the value of its last observation and passes nothing over its end.

    Args:
        rewards: [T, N].
        values: V(s_t), [T, N].
        next_values: V of the observation that the step returned, [T, N]: at an episode's end the episode's last
            observation, never the first one of the next.
        terminated: whether the step ended the episode for good, [T, N].
        done: whether it ended the episode in any way, [T, N].
        gamma: the discount.
        gae_lambda: λ, the trade between bias and variance.

    Returns:
        Advantages, float32 [T, N]. Rows that are no transition hold numbers that mean nothing.
    """
    deltas: Array = rewards + gamma * next_values * (1.0 - terminated) - values
    carried = gamma * gae_lambda * (1.0 - done)
    advantages = np.zeros_like(deltas, dtype=np.float32)
    following = np.zeros(deltas.shape[1], dtype=np.float32)
    for step in range(len(deltas) - 1, -1, -1):
        following = deltas[step] + carried[step] * following
        advantages[step] = following
    return advantages
