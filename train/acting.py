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
        weights = self._weights
        for index in range(self._layers):
            layer = f"{branch}_trunk.layers.{index}"
            features = features @ weights[f"{layer}.weight"]
            features += weights[f"{layer}.bias"]
            if self._relu:
                np.maximum(features, 0.0, out=features)
            else:
                np.tanh(features, out=features)
        output: Array = features @ weights[f"{branch}_head.weight"]
        output += weights[f"{branch}_head.bias"]
        return output
