"""Running mean and variance: of observations, where they are part of the policy, and of returns, where they are not."""

from __future__ import annotations

import numpy as np

from paddleport.spaces import Array

NORMALIZED_LIMIT = 10.0
"""Normalised observations and rewards are clipped to ± this."""
_EPSILON = 1e-8


class RunningMoments:
    """Mean and variance of a stream of vectors.

    Args:
        size: length of the vectors.
    """

    def __init__(self, size: int) -> None:
        self.count = 0.0
        self.mean = np.zeros(size)
        self.variance = np.ones(size)

    def update(self, batch: Array) -> None:
        """Take in rows [batch, size] (Chan et al. 1983, the pairwise update)."""
        rows = batch.astype(np.float64, copy=False)
        size = len(rows)
        mean = rows.mean(axis=0)
        total = self.count + size
        shift = mean - self.mean
        spread = self.variance * self.count + ((rows - mean) ** 2).sum(axis=0)
        self.variance = (spread + shift**2 * (self.count * size / total)) / total
        self.mean = self.mean + shift * (size / total)
        self.count = total

    def restore(self, count: float, mean: Array, variance: Array) -> None:
        """Continue from saved moments."""
        self.count, self.mean, self.variance = count, mean.copy(), variance.copy()


class RunningNormalizer(RunningMoments):
    """The normalisation of observations that `PolicyNetwork` does with the moments seen so far.

    Args:
        size: length of the vectors.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._refresh()

    def update(self, batch: Array) -> None:
        """Take in observations [batch, size]."""
        super().update(batch)
        self._refresh()

    def restore(self, count: float, mean: Array, variance: Array) -> None:
        """Continue from saved moments."""
        super().restore(count, mean, variance)
        self._refresh()

    def normalize(self, obs: Array) -> Array:
        """Raw observations [batch, size] → float32 [batch, size]: the very arithmetic of the exported graph."""
        features = (obs.astype(np.float32, copy=False) - self.mean32) / self.std32
        return np.clip(features, -NORMALIZED_LIMIT, NORMALIZED_LIMIT, out=features)

    def _refresh(self) -> None:
        self.mean32 = self.mean.astype(np.float32)
        self.std32 = np.sqrt(self.variance + _EPSILON).astype(np.float32)


class RewardNormalizer:
    """Rewards divided by the running standard deviation of discounted returns (Engstrom et al. 2020, section 3).

    The mean is not taken off: that would change which policy is best. It is no part of the policy.

    Args:
        num_envs: environments that step together.
        gamma: the discount.
    """

    def __init__(self, num_envs: int, gamma: float) -> None:
        self._gamma = gamma
        self._returns = np.zeros(num_envs)
        self.moments = RunningMoments(1)

    def reset(self) -> None:
        """Forget the episodes that are going on."""
        self._returns[:] = 0.0

    def normalize(self, rewards: Array, done: Array, valid: Array) -> Array:
        """Take in a rollout and scale it.

        Args:
            rewards: [T, N].
            done: where episodes ended.
            valid: where rows are transitions.

        Returns:
            float32 [T, N], clipped to ± `NORMALIZED_LIMIT`.
        """
        returns = np.zeros(rewards.shape)
        for step, row in enumerate(rewards):
            self._returns = self._returns * self._gamma + row
            returns[step] = self._returns
            self._returns = np.where(done[step], 0.0, self._returns)
        self.moments.update(returns[valid][:, np.newaxis])
        scaled = rewards / np.sqrt(self.moments.variance[0] + _EPSILON)
        return np.clip(scaled, -NORMALIZED_LIMIT, NORMALIZED_LIMIT).astype(np.float32)
