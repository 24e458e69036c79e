"""Running mean and variance of observations."""

from __future__ import annotations

import numpy as np

from paddleport.spaces import Array
from train.network import NORMALIZED_LIMIT

_EPSILON = 1e-8


class RunningNormalizer:
    """Moments of a stream of vectors, and the normalisation that `PolicyNetwork` does with them.

    Args:
        size: length of the vectors.
    """

    def __init__(self, size: int) -> None:
        self.count = 0.0
        self.mean = np.zeros(size)
        self.variance = np.ones(size)
        self._refresh()

    def update(self, batch: Array) -> None:
        """Take in observations [batch, size] (Chan et al. 1983, the pairwise update)."""
        rows = batch.astype(np.float64, copy=False)
        size = len(rows)
        mean = rows.mean(axis=0)
        total = self.count + size
        shift = mean - self.mean
        spread = self.variance * self.count + ((rows - mean) ** 2).sum(axis=0)
        self.variance = (spread + shift**2 * (self.count * size / total)) / total
        self.mean = self.mean + shift * (size / total)
        self.count = total
        self._refresh()

    def normalize(self, obs: Array) -> Array:
        """Raw observations [batch, size] → float32 [batch, size]: the very arithmetic of the exported graph."""
        features = (obs.astype(np.float32, copy=False) - self.mean32) / self.std32
        return np.clip(features, -NORMALIZED_LIMIT, NORMALIZED_LIMIT, out=features)

    def restore(self, count: float, mean: Array, variance: Array) -> None:
        """Continue from saved moments."""
        self.count, self.mean, self.variance = count, mean.copy(), variance.copy()
        self._refresh()

    def _refresh(self) -> None:
        self.mean32 = self.mean.astype(np.float32)
        self.std32 = np.sqrt(self.variance + _EPSILON).astype(np.float32)
