"""Optimizers for a static program on the CPU that step all parameters at once, as one vector.

Paddle's own optimizers take an operation for each parameter, with more for its clipping and its constants, and their
kernels go through the elements one by one: half of what an update of a small network costs. The parameters of the
network become windows on that vector, so nothing is copied back.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import paddle

from paddleport.spaces import Array
from train.engines.base import Problem
from train.engines.direct import add_in_place, decay_in_place, share_memory, squared_norm

_BETA1, _BETA2 = 0.9, 0.999
_WEIGHTS, _SLOT = "flat.weights", "flat.{}"
"""Names of the vectors in the scope."""


class FlatOptimizer(ABC):
    """Clips the gradients by their global norm and steps every parameter. To be made inside the program's guard.

    Args:
        problem: names the optimizer and the largest norm.
        loss: the scalar to minimise.
        parameters: structural path → parameter, those that are trained.
    """

    slots: ClassVar[tuple[str, ...]]
    """Names of the vectors that it remembers, as Paddle names its accumulators."""
    fed: tuple[str, ...]
    """Names of what `inputs` gives, each float32 [1]."""

    def __init__(self, problem: Problem, loss: Any, parameters: Mapping[str, Any]) -> None:  # noqa: ANN401 - Paddle's
        self.optimizer = problem.optimizer
        found = paddle.static.gradients([loss], list(parameters.values()))
        gradients = {path: slope for path, slope in zip(parameters, found, strict=True) if slope is not None}
        # Names and shapes alone are kept: a parameter is no more once its program is gone.
        self._names = [parameters[path].name for path in gradients]
        self._shapes = {path: tuple(parameters[path].shape) for path in gradients}
        weights = self._vector(_WEIGHTS)
        slots = {slot: self._vector(_SLOT.format(slot)) for slot in self.slots}
        gradient = paddle.concat([slope.reshape([-1]) if slope.ndim != 1 else slope for slope in gradients.values()])
        add_in_place(weights, self._step(gradient, _clipping(gradient, problem.max_grad_norm), slots))

    @abstractmethod
    def _step(self, gradient: Any, clipping: Any, slots: dict[str, Any]) -> Any:  # noqa: ANN401 - Paddle's
        """What is added to the weights [n].

        Args:
            gradient: [n], not clipped.
            clipping: the factor [1] that clips it. A vector times a scalar goes through `paddle.scale`: as a
                multiplication that broadcasts it takes eight times as long.
            slots: the vectors that are remembered, to be changed in place.
        """

    @abstractmethod
    def inputs(self, learning_rate: float) -> dict[str, Array]:
        """What the program is fed for the next update."""

    def start(self, scope: Any, place: Any) -> None:  # noqa: ANN401 - Paddle's
        """Move the network's parameters into the vector, once the start-up program has run."""
        self._scope, self._place = scope, place
        share_memory(scope, place, _WEIGHTS, self._names)

    def state(self) -> dict[str, Array]:
        """Copies of the accumulators, `<path>/<slot>`."""
        state = {}
        for slot in self.slots:
            for path, part in self._parts(np.array(self._tensor(slot))).items():
                state[f"{path}/{slot}"] = part
        return state

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Set the accumulators."""
        for slot in self.slots:
            parts = [np.asarray(state[f"{path}/{slot}"], dtype=np.float32).ravel() for path in self._shapes]
            self._tensor(slot).set(np.concatenate(parts), self._place)

    def _inputs(self) -> list[Any]:
        return [paddle.static.data(name, [1], "float32") for name in self.fed]

    def _vector(self, name: str) -> Any:  # noqa: ANN401 - Paddle's
        size = sum(math.prod(shape) for shape in self._shapes.values())
        zeros = paddle.nn.initializer.Constant(0.0)
        return paddle.static.create_parameter([size], "float32", name=name, default_initializer=zeros)

    def _parts(self, vector: Array) -> dict[str, Array]:
        ends = np.cumsum([math.prod(shape) for shape in self._shapes.values()])[:-1]
        parts = np.split(vector, ends)
        return {path: part.reshape(shape) for (path, shape), part in zip(self._shapes.items(), parts, strict=True)}

    def _tensor(self, slot: str) -> Any:  # noqa: ANN401 - Paddle's
        return self._scope.find_var(_SLOT.format(slot)).get_tensor()


class FlatAdam(FlatOptimizer):
    """Adam (Kingma & Ba 2015, algorithm 1).

    m ← β₁m + (1 - β₁)g,  v ← β₂v + (1 - β₂)g²,  θ ← θ - α/(1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + ε)
    """

    slots = ("moment1", "moment2")
    fed = ("step_size", "root_correction")

    def __init__(self, problem: Problem, loss: Any, parameters: Mapping[str, Any]) -> None:  # noqa: ANN401 - Paddle's
        # β₁ᵗ and β₂ᵗ as Paddle's kernel holds them, float32, for the next update.
        self._powers = np.array([_BETA1, _BETA2], dtype=np.float32)
        super().__init__(problem, loss, parameters)

    def _step(self, gradient: Any, clipping: Any, slots: dict[str, Any]) -> Any:  # noqa: ANN401 - Paddle's
        rate, correction = self._inputs()
        first, second = slots["moment1"], slots["moment2"]
        decay_in_place(first, _BETA1, gradient, clipping * (1 - _BETA1))
        decay_in_place(second, _BETA2, gradient.square(), clipping.square() * (1 - _BETA2))
        root = paddle.scale(second.sqrt(), scale=correction, bias=self.optimizer.epsilon)
        return paddle.scale(first / root, scale=rate)

    def inputs(self, learning_rate: float) -> dict[str, Array]:
        """The step's size and the correction of the root's, for the next update."""
        first, second = 1 - self._powers.astype(np.float64)
        self._powers *= np.array([_BETA1, _BETA2], dtype=np.float32)
        return {"step_size": _scalar(-learning_rate / first), "root_correction": _scalar(second**-0.5)}

    def state(self) -> dict[str, Array]:
        """The moments, and the powers of β that Paddle keeps with each parameter."""
        powers: dict[str, Array] = {}
        for path in self._shapes:
            powers |= {f"{path}/beta{i + 1}_pow_acc": self._powers[i : i + 1].copy() for i in range(2)}
        return super().state() | powers

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Set the moments and the powers."""
        super().load_state(state)
        path = next(iter(self._shapes))
        self._powers = np.concatenate([state[f"{path}/beta{i + 1}_pow_acc"].ravel() for i in range(2)])


class FlatRMSProp(FlatOptimizer):
    """RMSProp without momentum (Hinton 2012, lecture 6e): s ← ρs + (1 - ρ)g²,  θ ← θ - α · g / √(s + ε)."""

    slots = ("mean_square",)
    fed = ("step_size",)

    def _step(self, gradient: Any, clipping: Any, slots: dict[str, Any]) -> Any:  # noqa: ANN401 - Paddle's
        (rate,) = self._inputs()
        decay = self.optimizer.decay
        square = slots["mean_square"]
        decay_in_place(square, decay, gradient.square(), clipping.square() * (1 - decay))
        root = paddle.scale(square, scale=1.0, bias=self.optimizer.epsilon).sqrt()
        return paddle.scale(gradient / root, scale=clipping * rate)

    def inputs(self, learning_rate: float) -> dict[str, Array]:
        """The step's size."""
        return {"step_size": _scalar(-learning_rate)}

    def state(self) -> dict[str, Array]:
        """The mean squares, and the two that Paddle keeps as well: without momentum and centring they do nothing."""
        state = super().state()
        unused = {key.replace("mean_square", other): 0 * v for key, v in state.items() for other in _UNUSED}
        return state | unused


_UNUSED = ("momentum", "mean_grad")
FLAT_OPTIMIZERS: dict[str, type[FlatOptimizer]] = {"adam": FlatAdam, "rmsprop": FlatRMSProp}


def _clipping(gradient: Any, largest: float) -> Any:  # noqa: ANN401 - Paddle's
    """The factor [1] that brings a gradient's norm down to `largest`, and leaves a smaller one alone."""
    norm = squared_norm(gradient).sqrt()
    limit = paddle.full([1], largest)
    return limit / paddle.maximum(norm, limit)


def _scalar(value: float) -> Array:
    return np.full(1, value, dtype=np.float32)
