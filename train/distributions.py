"""Action distributions twice over: sampled with NumPy while acting, differentiated in Paddle while learning.

Sampling draws from the run's own NumPy generator, so that Paddle's random state never has to be saved.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import paddle
from paddle.nn import functional as F  # noqa: N812 - Paddle's own convention

from paddleport.spaces import Array, Box, Discrete, MultiBinary, MultiDiscrete, Space
from train.actions import affine_bounds, head_size

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_LOG_TWO = math.log(2.0)
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
"""Gauss-Hermite quadrature: the mean of f over N(μ, σ²) is about Σ wᵢ f(μ + σ·xᵢ)."""


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
        return actions, _chosen_log_prob(logits, actions)

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
        return _categorical_log_prob_and_entropy(outputs["logits"], actions)


class MultiCategorical:
    """Several independent choices, from `logits` [batch, Σ nvec], the parts side by side.

    Args:
        space: the action space.
    """

    action_dtype = "int64"

    def __init__(self, space: MultiDiscrete) -> None:
        self.action_shape: tuple[int, ...] = space.shape
        self._nvec = list(space.nvec)
        self._splits = np.cumsum(self._nvec)[:-1]
        self._starts = np.array(space.starts)

    def sample(self, outputs: dict[str, Array], rng: np.random.Generator) -> tuple[Array, Array]:
        """Gumbel-max in each part; the log-probabilities add up."""
        logits = outputs["logits"]
        noisy = np.split(logits + rng.gumbel(size=logits.shape), self._splits, axis=1)
        actions = np.stack([part.argmax(axis=1) for part in noisy], axis=1)
        parts = np.split(logits, self._splits, axis=1)
        log_probs = [_chosen_log_prob(part, actions[:, index]) for index, part in enumerate(parts)]
        return actions, np.sum(log_probs, axis=0)

    def mode(self, outputs: dict[str, Array]) -> Array:
        """The likeliest choice of each part."""
        parts = np.split(outputs["logits"], self._splits, axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1)

    def to_environment(self, actions: Array) -> Array:
        """Indices shifted to the first choice of each part."""
        return actions + self._starts

    def log_prob_and_entropy(
        self, outputs: dict[str, paddle.Tensor], actions: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Sums over the parts."""
        parts = paddle.split(outputs["logits"], self._nvec, axis=-1)
        columns = paddle.unstack(actions, axis=1)
        found = [_categorical_log_prob_and_entropy(part, column) for part, column in zip(parts, columns, strict=True)]
        return _total([log_prob for log_prob, _ in found]), _total([entropy for _, entropy in found])


class Bernoulli:
    """Independent zeros and ones, from `logits` [batch, size]: p(1) = sigmoid(logit).

    Args:
        space: the action space.
    """

    action_dtype = "float32"

    def __init__(self, space: MultiBinary) -> None:
        self.action_shape: tuple[int, ...] = (space.size,)
        self._space = space

    def sample(self, outputs: dict[str, Array], rng: np.random.Generator) -> tuple[Array, Array]:
        """1 where logistic noise does not outweigh the logit."""
        logits = outputs["logits"]
        actions = (logits + rng.logistic(size=logits.shape) > 0).astype(np.float32)
        return actions, -np.logaddexp(0.0, (1 - 2 * actions) * logits).sum(axis=1)

    def mode(self, outputs: dict[str, Array]) -> Array:
        """1 where it is likelier than 0."""
        return (outputs["logits"] > 0).astype(np.float32)

    def to_environment(self, actions: Array) -> Array:
        """int8, in the space's shape."""
        return actions.astype(self._space.dtype).reshape(-1, *self._space.shape)

    def log_prob_and_entropy(
        self, outputs: dict[str, paddle.Tensor], actions: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Σ log sigmoid(±logit), and Σ of softplus(logit) - logit · sigmoid(logit)."""
        logits = outputs["logits"]
        log_prob = -F.softplus((1 - 2 * actions) * logits, threshold=50).sum(axis=-1)
        entropy = (F.softplus(logits, threshold=50) - logits * F.sigmoid(logits)).sum(axis=-1)
        return log_prob, entropy


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
        """Clip to [-1, 1] and map to the bounds, as `ActionHead` does."""
        bounds = self._bounds
        clipped = np.clip(actions, bounds["mean_low"], bounds["mean_high"])
        scaled = clipped * bounds["action_scale"] + bounds["action_offset"]
        inside = np.clip(scaled, bounds["action_low"], bounds["action_high"])
        return inside.astype(self._space.dtype).reshape(-1, *self._space.shape)

    def log_prob_and_entropy(
        self, outputs: dict[str, paddle.Tensor], actions: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Σ over dimensions of log N(action; mean, std), and of log std + ½ log 2πe."""
        log_std = outputs["log_std"]
        noise = (actions - outputs["mean"]) / log_std.exp()
        log_prob = -(0.5 * noise.square() + log_std + _HALF_LOG_TWO_PI).sum(axis=-1)
        return log_prob, (log_std + (0.5 + _HALF_LOG_TWO_PI)).sum(axis=-1)


class SquashedGaussian(DiagonalGaussian):
    """Tanh of normals (Haarnoja et al. 2018, appendix C), in the dimensions that have two finite bounds.

    The normal's own sample u is stored, so that nothing has to be inverted; with a = tanh(u),

        log p(a) = log N(u) - Σ log(1 - tanh²(u)),  log(1 - tanh²(u)) = 2 (log 2 - u - softplus(-2u))

    and the entropy, which has no closed form, is the normal's plus the mean of that correction, by quadrature.
    """

    def sample(self, outputs: dict[str, Array], rng: np.random.Generator) -> tuple[Array, Array]:
        """The normal's sample, and the log-probability of its tanh."""
        drawn, log_prob = super().sample(outputs, rng)
        correction = 2.0 * (_LOG_TWO - drawn - np.logaddexp(0.0, -2.0 * drawn))  # `_log_slope` in NumPy
        return drawn, (log_prob - (correction * self._bounds["bounded"]).sum(axis=1)).astype(np.float32)

    def to_environment(self, actions: Array) -> Array:
        """Tanh, then as the Gaussian."""
        return super().to_environment(np.where(self._bounds["bounded"] > 0, np.tanh(actions), actions))

    def log_prob_and_entropy(
        self, outputs: dict[str, paddle.Tensor], actions: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """The Gaussian's, with the correction and its mean."""
        log_prob, entropy = super().log_prob_and_entropy(outputs, actions)
        bounded = paddle.to_tensor(self._bounds["bounded"])
        mean, std = outputs["mean"].unsqueeze(-1), outputs["log_std"].exp().unsqueeze(-1)
        spread = _log_slope(mean + std * paddle.to_tensor(_NODES.astype(np.float32)))  # [batch, size, nodes]
        expected = (spread * paddle.to_tensor(_NODE_WEIGHTS.astype(np.float32))).sum(axis=-1)
        return log_prob - (_log_slope(actions) * bounded).sum(axis=-1), entropy + (expected * bounded).sum(axis=-1)


def distribution_for(space: Space, *, squash: bool = False) -> Distribution:
    """The distribution over an action space.

    Raises:
        UsageError: there is none.
    """
    if isinstance(space, Discrete):
        return Categorical(space)
    if isinstance(space, MultiDiscrete):
        return MultiCategorical(space)
    if isinstance(space, MultiBinary):
        return Bernoulli(space)
    head_size(space)  # refuses what is no Box of floats
    assert isinstance(space, Box)  # noqa: S101 - the only kind left
    return SquashedGaussian(space) if squash else DiagonalGaussian(space)


def _chosen_log_prob(logits: Array, actions: Array) -> Array:
    """Log softmax(logits)[action], [batch]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    chosen: Array = shifted[np.arange(len(actions)), actions]
    return chosen - np.log(np.exp(shifted).sum(axis=1))


def _categorical_log_prob_and_entropy(
    logits: paddle.Tensor, actions: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor]:
    log_probs = F.log_softmax(logits, axis=-1)
    chosen = paddle.take_along_axis(log_probs, actions.unsqueeze(-1), axis=-1).squeeze(-1)
    return chosen, -(log_probs.exp() * log_probs).sum(axis=-1)


def _log_slope(drawn: paddle.Tensor) -> paddle.Tensor:
    """log(1 - tanh²(u)), element by element, without overflow."""
    return 2.0 * (_LOG_TWO - drawn - F.softplus(-2.0 * drawn, threshold=50))


def _total(values: list[paddle.Tensor]) -> paddle.Tensor:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
