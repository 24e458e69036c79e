"""The eager engine: the same loss, one Paddle operation after another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle

from paddleport.spaces import Array
from train.engines.base import ACCUMULATORS, Batch, Problem, accumulator_names, make_optimizer, report


class EagerEngine:
    """Runs a problem in Paddle's eager mode.

    Args:
        problem: what to minimise.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._network = problem.make_network()
        self._optimizer = make_optimizer(problem, self._network)
        self._parameters = dict(self._network.named_parameters())
        self._names = {path: parameter.name for path, parameter in self._parameters.items()}

    def update(self, batch: Batch, learning_rate: float) -> Array:
        """One gradient step; returns the problem's terms and row terms."""
        tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
        terms = self._problem.loss(self._network, tensors)
        terms["loss"].backward()
        self._optimizer.set_lr(learning_rate)
        self._optimizer.step()
        self._optimizer.clear_grad()
        return np.asarray(report(self._problem, terms).numpy())

    def weights(self) -> dict[str, Array]:
        """Copies of the parameters by structural path."""
        return {path: np.array(parameter.numpy()) for path, parameter in self._parameters.items()}

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set the parameters by structural path."""
        for path, parameter in self._parameters.items():
            parameter.set_value(weights[path])

    def optimizer_state(self) -> dict[str, Array]:
        """Copies of the accumulators; there are none before the first update."""
        state = self._optimizer.state_dict()
        return {
            key: np.array(state[name].numpy())
            for key, name in accumulator_names(self._problem, state, self._names).items()
        }

    def load_optimizer_state(self, state: Mapping[str, Array]) -> None:
        """Set the accumulators; those that the optimizer has not made yet are taken up when it makes them."""
        kinds = ACCUMULATORS[self._problem.optimizer.kind]
        self._optimizer.set_state_dict(
            {
                f"{name}_{kind}_0": paddle.to_tensor(state[f"{path}/{kind}"])
                for path, name in self._names.items()
                for kind in kinds
                if f"{path}/{kind}" in state
            }
        )
