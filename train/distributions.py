"""Action distributions twice over: sampled with NumPy while acting, differentiated in Paddle while learning.

Sampling draws from the run's own NumPy generator, so that Paddle's random state never has to be saved.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import paddle
from paddle.nn import functional as F  # noqa: N812 - Paddle's own convention

from paddleport.spaces import Array, Box, Discrete, Space
from train.network import affine_bounds

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """How a policy head's outputs become actions."""

    action_shape: tuple[int, ...]
    """Shape of one action as the trainer stores it."""
    action_dtype: str

    def sample(self, outputs: dict[str, Array], rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw actions [batch, …] and give their log-probabilities [batch], float32."""
        ...

    def mode(self, outputs: dict[str, Array]) -> Array:
        """The deterministic actions [batch, …]."""
        ...

    def to_environment(self, actions: Array) -> Array:
        """Stored actions in the environment's own units."""
        ...

    def log_prob_and_entropy(
        self, outputs: dict[str, paddle.Tensor], actions: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Log-probability and entropy of each row [batch], differentiable."""
        ...


class Categorical:
    """One of n actions, from `logits` [batch, n].

    Args:
        space: the action space.
    """

    action_shape: tuple[int, ...] = ()
    action_dtype = "int64"

    def __init__(self, space: Discrete) -> None:
        self._start = space.start

    def sample(self, outputs: dict[str, Array], rng: np.random.Generator) -> tuple[Array, Array]:
        """Gumbel-max sampling: argmax(logits + Gumbel noise) is distributed as softmax(logits)."""
        logits = outputs["logits"]
        actions = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        shifted = logits - logits.max(axis=1, keepdims=True)
        chosen = np.take_along_axis(shifted, actions[:, None], axis=1)[:, 0]
        return actions, chosen - np.log(np.exp(shifted).sum(axis=1))

    def mode(self, outputs: dict[str, Array]) -> Array:
        """The likeliest action of each row."""
        return np.asarray(outputs["logits"].argmax(axis=1))

    def to_environment(self, actions: Array) -> Array:
        """Indices shifted to the space's first action."""
        return actions + self._start if self._start else actions

    def log_prob_and_entropy(
        self, outputs: dict[str, paddle.Tensor], actions: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Log softmax(logits)[action], and -Σ p log p."""
        log_probs = F.log_softmax(outputs["logits"], axis=-1)
        chosen = paddle.take_along_axis(log_probs, actions.unsqueeze(-1), axis=-1).squeeze(-1)
        return chosen, -(log_probs.exp() * log_probs).sum(axis=-1)


class DiagonalGaussian:
    """Independent normals from `mean` and `log_std` [batch, size], in [-1, 1] coordinates.

    The sample is stored as drawn; clipping and the affine map to the bounds belong to the environment's side, so
    the log-probability needs no correction (as in PPO's reference implementations).

    Args:
        space: the action space.
    """

    action_dtype = "float32"

    def __init__(self, space: Box) -> None:
        self.action_shape: tuple[int, ...] = (space.size,)
        self._space = space
        self._bounds = affine_bounds(space)

    def sample(self, outputs: dict[str, Array], rng: np.random.Generator) -> tuple[Array, Array]:
        """Mean + std · noise."""
        mean, log_std = outputs["mean"], outputs["log_std"]
        noise = rng.standard_normal(mean.shape, dtype=np.float32)
        log_prob = -(0.5 * noise**2 + log_std + _HALF_LOG_TWO_PI).sum(axis=1)
        return mean + np.exp(log_std) * noise, log_prob

    def mode(self, outputs: dict[str, Array]) -> Array:
        """The mean of each row."""
        return outputs["mean"]

    def to_environment(self, actions: Array) -> Array:
        """Clip to [-1, 1] and map to the bounds, as `PolicyNetwork.action` does."""
        bounds = self._bounds
        clipped = np.clip(actions, bounds["mean_low"], bounds["mean_high"])
        scaled = clipped * bounds["action_scale"] + bounds["action_offset"]
        return np.clip(scaled, bounds["action_low"], bounds["action_high"]).astype(self._space.dtype)

    def log_prob_and_entropy(
        self, outputs: dict[str, paddle.Tensor], actions: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Σ over dimensions of log N(action; mean, std), and of log std + ½ log 2πe."""
        log_std = outputs["log_std"]
        noise = (actions - outputs["mean"]) / log_std.exp()
        log_prob = -(0.5 * noise.square() + log_std + _HALF_LOG_TWO_PI).sum(axis=-1)
        return log_prob, (log_std + (0.5 + _HALF_LOG_TWO_PI)).sum(axis=-1)


def distribution_for(space: Space) -> Distribution:
    """The distribution over an action space."""
    return Categorical(space) if isinstance(space, Discrete) else DiagonalGaussian(space)
