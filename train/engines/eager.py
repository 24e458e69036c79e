"""The eager engine: the same loss, one Paddle operation after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from paddleport.spaces import Array
from train.engines.amp import Amp, LossScaler, MixedNetwork, grad_scaler, lower_weights, master_weights
from train.engines.base import ACCUMULATORS, Batch, Problem, accumulator_names, make_optimizer, report
from train.engines.recompute import recompute_trunks


class EagerEngine:
    """Runs a problem in Paddle's eager mode.

    Args:
        problem: what to minimise.
        amp: mixed precision; None is float32 throughout.
        recompute: whether the trunks' activations are computed again in the backward pass instead of kept.
    """

    def __init__(self, problem: Problem, amp: Amp | None = None, *, recompute: bool = False) -> None:
        self._problem = problem
        self._network = problem.make_network()
        self._optimizer = make_optimizer(problem, self._network)
        self._seen: Any = self._network
        self._scaler: LossScaler | None = None
        if recompute:
            recompute_trunks(self._network)
        if amp:
            lower_weights(self._network, self._optimizer, amp)
            self._seen = MixedNetwork(self._network, amp)
            self._scaler = LossScaler(grad_scaler(amp))
        self._parameters = dict(self._network.named_parameters())
        # Made here and given to the optimizer, which steps them in place: its own would start from rounded weights.
        self._masters = master_weights(self._parameters)
        self._names = {path: self._masters.get(path, tensor).name for path, tensor in self._parameters.items()}
        self._set_optimizer_state({})

    def update(self, batch: Batch, learning_rate: float) -> Array | None:
        """One gradient step; returns the problem's terms and row terms, or None where the step was skipped."""
        tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
        terms = self._problem.loss(self._seen, tensors)
        self._optimizer.set_lr(learning_rate)
        if self._scaler:
            taken = self._scaler.step(terms["loss"], self._optimizer)
        else:
            terms["loss"].backward()
            self._optimizer.step()
            taken = True
        self._optimizer.clear_grad()
        return np.asarray(report(self._problem, terms).numpy()) if taken else None

    def weights(self) -> dict[str, Array]:
        """Copies of the parameters by structural path, float32."""
        return {path: np.array(self._masters.get(path, tensor).numpy()) for path, tensor in self._parameters.items()}

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set the parameters by structural path."""
        for path, parameter in self._parameters.items():
            if path in self._masters:
                self._masters[path].set_value(weights[path])
                parameter.set_value(self._masters[path].astype(parameter.dtype))
            else:
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
        self._set_optimizer_state(
            {
                f"{name}_{kind}_0": paddle.to_tensor(state[f"{path}/{kind}"])
                for path, name in self._names.items()
                for kind in kinds
                if f"{path}/{kind}" in state
            }
        )

    def scaler_state(self) -> dict[str, float]:
        """State of the loss scaler; empty where the loss is not scaled."""
        return self._scaler.state() if self._scaler else {}

    def load_scaler_state(self, state: Mapping[str, float]) -> None:
        """Set the loss scaler's state."""
        if self._scaler:
            self._scaler.load_state(state)

    def _set_optimizer_state(self, accumulators: dict[str, paddle.Tensor]) -> None:
        masters = {self._parameters[path].name: master for path, master in self._masters.items()}
        self._optimizer.set_state_dict({**accumulators, "master_weights": masters})
