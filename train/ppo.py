"""Proximal policy optimisation: several passes of minibatches over each rollout, the ratio clipped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import paddle

from paddleport.spaces import Array
from train.config import PPOConfig
from train.engines.base import Optimizer
from train.losses import PPO_TERMS, ppo_loss
from train.on_policy import OnPolicy, standardized
from train.schedules import scheduled

_APPROX_KL = PPO_TERMS.index("approx_kl")
_KL_MARGIN = 1.5


class PPO(OnPolicy[PPOConfig]):
    """PPO with a clipped surrogate (Schulman et al. 2017, algorithm 1)."""

    terms = PPO_TERMS
    extra_inputs = {"clip_range": ((1,), "float32")}  # noqa: RUF012 - a ClassVar in the base

    @property
    def batch_rows(self) -> int:
        """Rows in a minibatch."""
        return self.config.batch_size

    @property
    def row_inputs(self) -> tuple[str, ...]:
        """The values as they were matter where a new one may move only so far."""
        clipped = ("value",) if self.config.value_clip_range > 0 else ()
        return ("log_prob", "advantage", "value_target", *clipped)

    @property
    def optimizer(self) -> Optimizer:
        """Adam."""
        return Optimizer("adam", self.config.adam_epsilon)

    def loss(self, outputs: dict[str, paddle.Tensor], batch: dict[str, paddle.Tensor]) -> dict[str, paddle.Tensor]:
        """PPO's loss."""
        config = self.config
        coefficients = config.value_coef, config.entropy_coef, config.value_clip_range
        return ppo_loss(outputs, batch, self.distribution, *coefficients)

    def enough(self, terms: Array) -> bool:
        """Whether the policy has moved half again as far from the one that acted as `target_kl` says."""
        limit = self.config.target_kl
        return limit > 0 and float(terms[_APPROX_KL]) > _KL_MARGIN * limit

    def batches(self, flat: dict[str, Array], transitions: Array, progress: float) -> Iterator[dict[str, Array]]:
        """Shuffled minibatches of the transitions, each of exactly `batch_size` rows.

        The last one of a pass is filled up with rows of weight 0, so that the compiled shapes stay fixed.
        """
        config, size = self.config, self.config.batch_size
        clip_range = scheduled(config.clip_range, config.clip_range_schedule, progress)
        clip = np.full(1, clip_range, dtype=np.float32)
        for _ in range(config.epochs):
            order = self.rng.permutation(transitions)
            for start in range(0, len(order), size):
                rows, weight = _filled_up(order[start : start + size], size)
                batch = {name: values[rows] for name, values in flat.items()}
                if config.normalize_advantage:
                    batch["advantage"] = standardized(batch["advantage"], weight)
                yield {**batch, "weight": weight, "clip_range": clip}


def _filled_up(rows: Array, size: int) -> tuple[Array, Array]:
    """Exactly `size` rows, and the weight of each: repeated ones have 0."""
    weight = np.ones(size, dtype=np.float32)
    if len(rows) == size:
        return rows, weight
    weight[len(rows) :] = 0.0
    return np.resize(rows, size), weight
