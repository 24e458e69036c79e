"""The compiled engine: loss, backward, clipping and the optimizer's step in one static program of fixed shapes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
import paddle
from paddle import nn

from paddleport.spaces import Array
from train.engines.base import Batch, Problem, accumulator_names, make_optimizer, report
from train.engines.direct import has_in_place, learning_rate_name, make_program, static_mode
from train.engines.flat import FLAT_OPTIMIZERS


class StaticOptimizer(Protocol):
    """What steps the parameters at the end of a static program."""

    fed: tuple[str, ...]
    """Names of what `inputs` gives, each float32 [1]."""

    def start(self, scope: Any, place: Any) -> None:  # noqa: ANN401 - Paddle's places share no type
        """Take up the variables, once the start-up program has run."""
        ...

    def inputs(self, learning_rate: float) -> dict[str, Array]:
        """What the program is fed for the next update."""
        ...

    def state(self) -> dict[str, Array]:
        """Copies of the accumulators, `<path>/<accumulator>`."""
        ...

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Set the accumulators."""
        ...


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
            _join_bias(network)
            batch = {name: paddle.static.data(name, list(shape), kind) for name, (shape, kind) in _shapes(problem)}
            terms = problem.loss(network, batch)
            trained = {path: tensor for path, tensor in network.named_parameters() if not tensor.stop_gradient}
            self._optimizer = _optimizer(self._place, problem, network, terms["loss"], trained)
            reported = report(problem, terms)
            executor = paddle.static.Executor(self._place)
            with paddle.static.scope_guard(self._scope):
                executor.run(startup)
        self._parameters = {path: parameter.name for path, parameter in network.named_parameters()}
        self._optimizer.start(self._scope, self._place)
        example = {name: np.zeros(shape, kind) for name, (shape, kind) in _shapes(problem)}
        example |= {name: np.zeros(1, np.float32) for name in self._optimizer.fed}
        self._program = make_program(executor, main, self._scope, reported, example)

    def update(self, batch: Batch, learning_rate: float) -> Array:
        """One gradient step; returns the problem's terms and row terms."""
        return self._program.run({**batch, **self._optimizer.inputs(learning_rate)})

    def weights(self) -> dict[str, Array]:
        """Copies of the parameters by structural path."""
        return {path: np.array(self._tensor(name)) for path, name in self._parameters.items()}

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set the parameters by structural path."""
        for path, name in self._parameters.items():
            self._tensor(name).set(weights[path], self._place)

    def optimizer_state(self) -> dict[str, Array]:
        """Copies of the accumulators."""
        return self._optimizer.state()

    def load_optimizer_state(self, state: Mapping[str, Array]) -> None:
        """Set the accumulators."""
        self._optimizer.load_state(state)

    def scaler_state(self) -> dict[str, float]:
        """This engine computes in float32 and scales nothing."""
        return {}

    def load_scaler_state(self, state: Mapping[str, float]) -> None:
        """There is no scaler."""

    def _tensor(self, name: str) -> Any:  # noqa: ANN401 - Paddle's DenseTensor
        return self._scope.find_var(name).get_tensor()


class PaddleOptimizer:
    """Paddle's own optimizer: on a GPU, whose kernels are fast, and where this Paddle has no operations in place."""

    fed: tuple[str, ...] = ()

    def __init__(self, problem: Problem, network: nn.Layer, loss: Any) -> None:  # noqa: ANN401 - Paddle is untyped
        optimizer = make_optimizer(problem, network)
        optimizer.minimize(loss)
        self._rate_name = learning_rate_name(optimizer)
        names = {path: parameter.name for path, parameter in network.named_parameters()}
        self._accumulators = accumulator_names(problem, optimizer.state_dict(), names)

    def start(self, scope: Any, place: Any) -> None:  # noqa: ANN401 - Paddle's places share no type
        """Take up the variables."""
        self._scope, self._place = scope, place

    def inputs(self, learning_rate: float) -> dict[str, Array]:
        """Nothing: the rate is set in its variable."""
        rate = self._tensor(self._rate_name)
        rate.set(np.full(rate.shape(), learning_rate, dtype=np.float32), self._place)
        return {}

    def state(self) -> dict[str, Array]:
        """Copies of the accumulators."""
        return {key: np.array(self._tensor(name)) for key, name in self._accumulators.items()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Set the accumulators."""
        for key, name in self._accumulators.items():
            self._tensor(name).set(state[key], self._place)

    def _tensor(self, name: str) -> Any:  # noqa: ANN401 - Paddle's DenseTensor
        return self._scope.find_var(name).get_tensor()


def _optimizer(
    place: Any,  # noqa: ANN401 - Paddle is untyped
    problem: Problem,
    network: nn.Layer,
    loss: Any,  # noqa: ANN401
    trained: Mapping[str, Any],
) -> StaticOptimizer:
    if isinstance(place, paddle.CPUPlace) and has_in_place():
        return FLAT_OPTIMIZERS[problem.optimizer.kind](problem, loss, trained)
    return PaddleOptimizer(problem, network, loss)


def _join_bias(network: nn.Layer) -> None:
    """Let each `Linear` add its bias within the matrix product: a sum of its own, and its gradient's, cost as much."""
    for layer in network.sublayers():
        if type(layer) is nn.Linear and layer.bias is not None:
            layer.forward = partial(_linear, layer)  # type: ignore[method-assign]  # of this instance alone


def _linear(layer: nn.Linear, features: paddle.Tensor) -> paddle.Tensor:
    if features.ndim != 2:
        return nn.functional.linear(features, layer.weight, layer.bias)
    return paddle.addmm(layer.bias, features, layer.weight)


def _shapes(problem: Problem) -> list[tuple[str, tuple[tuple[int, ...], str]]]:
    return sorted(problem.batch_shapes.items())
