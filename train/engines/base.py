"""What an engine does, and how its optimizer is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import paddle

from paddleport.spaces import Array

Batch: TypeAlias = Mapping[str, Array]
Loss: TypeAlias = Callable[[Any, dict[str, paddle.Tensor]], dict[str, paddle.Tensor]]
"""(network, batch) → named scalars, of which `loss` is minimised, and arrays [batch]."""


@dataclass(frozen=True)
class Optimizer:
    """Which optimizer, and how it is set; the learning rate comes with each update."""

    kind: Literal["adam", "rmsprop"]
    epsilon: float
    decay: float = 0.99
    """RMSProp's, of its mean square."""


@dataclass(frozen=True)
class Problem:
    """What an engine minimises."""

    make_network: Callable[[], paddle.nn.Layer]
    loss: Loss
    terms: tuple[str, ...]
    """Names of the scalars that are reported, in order."""
    batch_shapes: Mapping[str, tuple[tuple[int, ...], str]]
    """Shape and type of each array in a batch; `obs` holds the normalised observations."""
    optimizer: Optimizer
    max_grad_norm: float
    row_terms: tuple[str, ...] = ()
    """Names of arrays [batch] that are reported behind the scalars."""


ACCUMULATORS = {
    "adam": ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc"),
    "rmsprop": ("momentum", "mean_square", "mean_grad"),
}
"""What each optimizer remembers of a parameter, as Paddle names it."""


class Engine(Protocol):
    """Runs updates; holds the weights and the optimizer's state. Names are structural paths."""

    def update(self, batch: Batch, learning_rate: float) -> Array | None:
        """One gradient step, clipped by the global norm.

        Returns:
            The terms, then the row terms, float32 [n]; None where float16 overflowed and the step was skipped.
        """
        ...

    def weights(self) -> dict[str, Array]:
        """Copies of the network's parameters."""
        ...

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set the network's parameters."""
        ...

    def optimizer_state(self) -> dict[str, Array]:
        """Copies of the optimizer's accumulators, named `<parameter>/<accumulator>`."""
        ...

    def load_optimizer_state(self, state: Mapping[str, Array]) -> None:
        """Set the optimizer's accumulators."""
        ...

    def scaler_state(self) -> dict[str, float]:
        """State of the loss scaler, `scale` and `skipped` among it; empty where the loss is not scaled."""
        ...

    def load_scaler_state(self, state: Mapping[str, float]) -> None:
        """Set the loss scaler's state."""
        ...


def make_optimizer(problem: Problem, network: paddle.nn.Layer) -> paddle.optimizer.Optimizer:
    """The problem's optimizer with clipping by the global norm; the learning rate is set at each update."""
    chosen = problem.optimizer
    common: dict[str, Any] = {
        "learning_rate": 0.0,
        "epsilon": chosen.epsilon,
        "grad_clip": paddle.nn.ClipGradByGlobalNorm(problem.max_grad_norm),
        "parameters": [parameter for parameter in network.parameters() if not parameter.stop_gradient],
    }
    if chosen.kind == "rmsprop":
        return paddle.optimizer.RMSProp(rho=chosen.decay, **common)
    return paddle.optimizer.Adam(**common)


def report(problem: Problem, terms: dict[str, paddle.Tensor]) -> paddle.Tensor:
    """What an update returns: the scalars, then the arrays, in one vector."""
    scalars = paddle.stack([terms[name] for name in problem.terms])
    return paddle.concat([scalars, *(terms[name] for name in problem.row_terms)]) if problem.row_terms else scalars


def accumulator_names(problem: Problem, existing: Collection[str], parameters: Mapping[str, str]) -> dict[str, str]:
    """`<structural path>/<accumulator>` → Paddle's name of it, for those that exist.

    Paddle's own names shift with the order of creation, so saved state goes by structural path.

    Args:
        problem: names the optimizer.
        existing: the keys of the optimizer's `state_dict`.
        parameters: structural path → Paddle's name.
    """
    kinds = ACCUMULATORS[problem.optimizer.kind]
    named = {f"{path}/{kind}": f"{name}_{kind}_0" for path, name in parameters.items() for kind in kinds}
    return {key: name for key, name in named.items() if name in existing}
