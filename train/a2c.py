"""Advantage actor-critic: one update on each short rollout."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import paddle

from paddleport.spaces import Array
from train.config import A2CConfig
from train.engines.base import Optimizer
from train.iteration import STEPS_AN_ITERATION
from train.losses import A2C_TERMS, a2c_loss
from train.on_policy import OnPolicy, standardized


class A2C(OnPolicy[A2CConfig]):
    """A2C, the synchronous form of A3C (Mnih et al. 2016, algorithm S3)."""

    terms = A2C_TERMS
    steps_an_iteration = STEPS_AN_ITERATION

    @property
    def batch_rows(self) -> int:
        """The whole rollout."""
        return self.config.num_envs * self.config.n_steps

    @property
    def row_inputs(self) -> tuple[str, ...]:
        """Advantages and targets."""
        return ("advantage", "value_target")

    @property
    def optimizer(self) -> Optimizer:
        """RMSProp or Adam, as chosen."""
        return Optimizer(self.config.optimizer, self.config.optimizer_epsilon, self.config.rmsprop_decay)

    def loss(self, outputs: dict[str, paddle.Tensor], batch: dict[str, paddle.Tensor]) -> dict[str, paddle.Tensor]:
        """A2C's loss."""
        config = self.config
        return a2c_loss(outputs, batch, self.distribution, config.value_coef, config.entropy_coef)

    def batches(self, flat: dict[str, Array], transitions: Array, progress: float) -> Iterator[dict[str, Array]]:
        """The rollout as it is; rows that are no transition have weight 0."""
        weight = np.zeros(self.batch_rows, dtype=np.float32)
        weight[transitions] = 1.0
        advantage = standardized(flat["advantage"], weight) if self.config.normalize_advantage else flat["advantage"]
        yield {**flat, "advantage": advantage, "weight": weight}
