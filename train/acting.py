"""Acting with a NumPy copy of the weights: a Paddle call for each environment step would cost ten times as much."""

from __future__ import annotations

import numpy as np

from paddleport.checkpoint import NetworkInfo
from paddleport.spaces import Array, Box, Space


class Actor:
    """The heads of an `ActorCritic`, evaluated in NumPy.

    Args:
        action_space: the action space.
        info: the network's sizes.
    """

    def __init__(self, action_space: Space, info: NetworkInfo) -> None:
        self._continuous = isinstance(action_space, Box)
        self._layers = len(info.hidden_sizes)
        self._relu = info.activation == "relu"
        self._weights: dict[str, Array] = {}

    def load(self, weights: dict[str, Array]) -> None:
        """Take the network's parameters by structural path."""
        self._weights = weights

    def heads(self, features: Array) -> dict[str, Array]:
        """Normalised observations [batch, inputs] → the distribution's parameters [batch, …] and `value` [batch]."""
        output = self._mlp("policy", features)
        value = self.value(features)
        if not self._continuous:
            return {"logits": output, "value": value}
        log_std = np.broadcast_to(self._weights["log_std"], output.shape)
        return {"mean": output, "log_std": log_std, "value": value}

    def value(self, features: Array) -> Array:
        """The critic alone, [batch]."""
        return self._mlp("value", features)[:, 0]

    def _mlp(self, branch: str, features: Array) -> Array:
        hidden = _hidden(self._weights, f"{branch}_trunk", self._layers, features, relu=self._relu)
        return _linear(self._weights, f"{branch}_head", hidden)


class QActor:
    """The heads of a `QNetwork`, evaluated in NumPy.

    Args:
        info: the network's sizes.
    """

    def __init__(self, info: NetworkInfo) -> None:
        self._layers = len(info.hidden_sizes)
        self._relu = info.activation == "relu"
        self._dueling = info.dueling
        self._weights: dict[str, Array] = {}

    def load(self, weights: dict[str, Array]) -> None:
        """Take the network's parameters by structural path."""
        self._weights = weights

    def q_values(self, features: Array) -> Array:
        """Normalised observations [batch, inputs] → Q-values [batch, n]."""
        hidden = _hidden(self._weights, "trunk", self._layers, features, relu=self._relu)
        output = _linear(self._weights, "head", hidden)
        if self._dueling:
            output += _linear(self._weights, "state_head", hidden) - output.mean(axis=1, keepdims=True)
        return output


def _hidden(weights: dict[str, Array], trunk: str, layers: int, features: Array, *, relu: bool) -> Array:
    for index in range(layers):
        features = _linear(weights, f"{trunk}.layers.{index}", features)
        if relu:
            np.maximum(features, 0.0, out=features)
        else:
            np.tanh(features, out=features)
    return features


def _linear(weights: dict[str, Array], layer: str, features: Array) -> Array:
    output: Array = features @ weights[f"{layer}.weight"]
    output += weights[f"{layer}.bias"]
    return output
