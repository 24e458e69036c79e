"""The compiled engine: loss, backward, clipping and the optimizer's step in one static program of fixed shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from paddleport.spaces import Array
from train.engines.base import Batch, Problem, accumulator_names, make_optimizer, report
from train.engines.direct import learning_rate_name, make_program, static_mode


class CompiledEngine:
    """Runs a problem as one program in a scope of its own, on the CPU or a GPU.

    Args:
        problem: what to minimise.
        place: Paddle's place; the CPU by default.
    """

    def __init__(self, problem: Problem, place: Any = None) -> None:  # noqa: ANN401 - Paddle's places share no type
        self._place = place or paddle.CPUPlace()
        self._scope = paddle.static.Scope()
        main, startup = paddle.static.Program(), paddle.static.Program()
        with static_mode(), paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
            network = problem.make_network()
            batch = {name: paddle.static.data(name, list(shape), kind) for name, (shape, kind) in _shapes(problem)}
            terms = problem.loss(network, batch)
            optimizer = make_optimizer(problem, network)
            optimizer.minimize(terms["loss"])
            reported = report(problem, terms)
            self._rate_name = learning_rate_name(optimizer)
            executor = paddle.static.Executor(self._place)
            with paddle.static.scope_guard(self._scope):
                executor.run(startup)
        self._parameters = {path: parameter.name for path, parameter in network.named_parameters()}
        self._accumulators = accumulator_names(problem, optimizer.state_dict(), self._parameters)
        example = {name: np.zeros(shape, kind) for name, (shape, kind) in _shapes(problem)}
        self._program = make_program(executor, main, self._scope, reported, example)

    def update(self, batch: Batch, learning_rate: float) -> Array:
        """One gradient step; returns the problem's terms and row terms."""
        rate = self._tensor(self._rate_name)
        rate.set(np.full(rate.shape(), learning_rate, dtype=np.float32), self._place)
        return self._program.run(batch)

    def weights(self) -> dict[str, Array]:
        """Copies of the parameters by structural path."""
        return {path: np.array(self._tensor(name)) for path, name in self._parameters.items()}

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set the parameters by structural path."""
        for path, name in self._parameters.items():
            self._tensor(name).set(weights[path], self._place)

    def optimizer_state(self) -> dict[str, Array]:
        """Copies of the accumulators."""
        return {key: np.array(self._tensor(name)) for key, name in self._accumulators.items()}

    def load_optimizer_state(self, state: Mapping[str, Array]) -> None:
        """Set the accumulators."""
        for key, name in self._accumulators.items():
            self._tensor(name).set(state[key], self._place)

    def scaler_state(self) -> dict[str, float]:
        """This engine computes in float32 and scales nothing."""
        return {}

    def load_scaler_state(self, state: Mapping[str, float]) -> None:
        """There is no scaler."""

    def _tensor(self, name: str) -> Any:  # noqa: ANN401 - Paddle's DenseTensor
        return self._scope.find_var(name).get_tensor()


def _shapes(problem: Problem) -> list[tuple[str, tuple[tuple[int, ...], str]]]:
    return sorted(problem.batch_shapes.items())
