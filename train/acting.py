"""Acting with a copy of the weights, outside the engine that learns.

For vectors it is NumPy: a Paddle call for each environment step would cost ten times as much. Behind convolutions, and
for a user's own trunk, it is Paddle: there the arithmetic outweighs the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import paddle
from paddle import nn

from paddleport.checkpoint import NetworkInfo
from paddleport.spaces import Array, Box, Space
from train.encoding import VECTOR, encoding_of

Features = dict[str, Array]


class Actor(Protocol):
    """A network's heads on features [batch, …], as NumPy arrays."""

    def load(self, weights: dict[str, Array]) -> None:
        """Take the network's parameters by structural path."""
        ...

    def heads(self, features: Features) -> dict[str, Array]:
        """What the network's `heads` gives; `value`, as [batch], only where it comes with the rest at no cost."""
        ...

    def value(self, features: Features) -> Array:
        """The critic alone, [batch]."""
        ...


def make_actor(
    observation_space: Space, action_space: Space, info: NetworkInfo, make_network: Callable[[], nn.Layer]
) -> Actor:
    """The actor that suits a network."""
    if info.trunk_class or encoding_of(observation_space).images:
        return PaddleActor(make_network())
    return NumpyActor(action_space, info)


class NumpyActor:
    """Fully connected networks, evaluated in NumPy.

    Args:
        action_space: the action space.
        info: the network's sizes.
    """

    def __init__(self, action_space: Space, info: NetworkInfo) -> None:
        self._info = info
        self._continuous = isinstance(action_space, Box)
        self._layers = len(info.hidden_sizes)
        self._relu = info.activation == "relu"
        self._weights: dict[str, Array] = {}

    def load(self, weights: dict[str, Array]) -> None:
        """Take the network's parameters by structural path."""
        self._weights = weights

    def heads(self, features: Features) -> dict[str, Array]:
        """The distribution's parameters [batch, …], and `value` [batch] of a shared trunk; or `q_values` [batch, n]."""
        if self._info.kind == "q_values":
            return {"q_values": self._q_values(features)}
        hidden = self._hidden("policy_trunk", features)
        output = self._linear("policy_head", hidden)
        value = {"value": self._linear("value_head", hidden)[:, 0]} if self._info.shared_trunk else {}
        if not self._continuous:
            return {"logits": output, **value}
        return {"mean": output, "log_std": np.broadcast_to(self._weights["log_std"], output.shape), **value}

    def value(self, features: Features) -> Array:
        """The critic alone, [batch]."""
        trunk = "policy_trunk" if self._info.shared_trunk else "value_trunk"
        return self._linear("value_head", self._hidden(trunk, features))[:, 0]

    def _q_values(self, features: Features) -> Array:
        hidden = self._hidden("trunk", features)
        output = self._linear("head", hidden)
        if self._info.dueling:
            output += self._linear("state_head", hidden) - output.mean(axis=1, keepdims=True)
        return output

    def _hidden(self, trunk: str, features: Features) -> Array:
        hidden = features[VECTOR]
        for index in range(self._layers):
            hidden = self._linear(f"{trunk}.layers.{index}", hidden)
            if self._relu:
                np.maximum(hidden, 0.0, out=hidden)
            else:
                np.tanh(hidden, out=hidden)
        return hidden

    def _linear(self, layer: str, features: Array) -> Array:
        output: Array = features @ self._weights[f"{layer}.weight"]
        output += self._weights[f"{layer}.bias"]
        return output


class PaddleActor:
    """Any network, evaluated in Paddle's eager mode.

    Args:
        network: an `ActorCritic` or a `QNetwork`, made in eager mode.
    """

    def __init__(self, network: Any) -> None:  # noqa: ANN401 - of either kind
        self._network = network
        self._network.eval()
        self._parameters = dict(network.named_parameters())

    def load(self, weights: dict[str, Array]) -> None:
        """Copy the network's parameters by structural path."""
        for path, parameter in self._parameters.items():
            parameter.set_value(weights[path])

    def heads(self, features: Features) -> dict[str, Array]:
        """What the network's `heads` gives, `value` as [batch]."""
        with paddle.no_grad():
            outputs = self._network.heads({name: paddle.to_tensor(array) for name, array in features.items()})
        arrays = {name: np.asarray(tensor.numpy()) for name, tensor in outputs.items()}
        if "value" in arrays:
            arrays["value"] = arrays["value"][:, 0]
        return arrays

    def value(self, features: Features) -> Array:
        """The critic alone, [batch]."""
        return self.heads(features)["value"]
