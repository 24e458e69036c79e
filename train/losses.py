"""Losses as pure functions of named tensors; both engines run the same ones."""

from __future__ import annotations

from typing import Any

import paddle

from train.distributions import Distribution

PPO_TERMS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
DQN_TERMS = ("loss", "mean_q", "td_error")
A2C_TERMS = ("loss", "policy_loss", "value_loss", "entropy")


def shares(weight: paddle.Tensor) -> paddle.Tensor:
    """What each row adds to a mean, w / Σ w [batch]: padding and autoreset's dummy rows have weight 0.

    The dot product of values with it is their mean over the rows that count.
    """
    return weight / weight.sum()


def features_in(batch: dict[str, paddle.Tensor], prefix: str) -> dict[str, paddle.Tensor]:
    """The features of an observation in a batch: what is named `<prefix>.<feature>`."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in batch.items() if name.startswith(start)}


def value_errors(
    outputs: dict[str, paddle.Tensor], batch: dict[str, paddle.Tensor], clip_range: float
) -> paddle.Tensor:
    """Squared errors of the values, [batch].

    Args:
        outputs: `value` [batch, 1].
        batch: `value_target`, and `value` when the rollout was made, [batch].
        clip_range: above 0, the larger of the error and of that of the value moved by at most this much counts
            (Huang et al. 2022, detail 9).
    """
    value = outputs["value"].squeeze(-1)
    errors = (value - batch["value_target"]).square()
    if clip_range <= 0:
        return errors
    before = batch["value"]
    moved = before + paddle.clip(value - before, -clip_range, clip_range)
    return paddle.maximum(errors, (moved - batch["value_target"]).square())


def ppo_loss(
    outputs: dict[str, paddle.Tensor],
    batch: dict[str, paddle.Tensor],
    distribution: Distribution,
    value_coef: float,
    entropy_coef: float,
    value_clip_range: float = 0.0,
) -> dict[str, paddle.Tensor]:
    """PPO's clipped surrogate with value and entropy terms (Schulman et al. 2017, equations 7 and 9).

    Args:
        outputs: the distribution's parameters [batch, …] and `value` [batch, 1].
        batch: `action` [batch, …], and [batch]: `log_prob` under the policy that acted, `value` as it was then,
            `advantage`, `value_target`, `weight`; and `clip_range` [1].
        distribution: the action distribution.
        value_coef: weight of the squared value error.
        entropy_coef: weight of the entropy.
        value_clip_range: how far a value may move; 0 leaves it free.

    Returns:
        `PPO_TERMS`, scalars: `loss` is minimised, the rest is for reading. `approx_kl` is Schulman's low-variance
        estimator, mean of (ratio - 1) - log ratio.
    """
    share, clip = shares(batch["weight"]), batch["clip_range"]
    log_prob, entropy = distribution.log_prob_and_entropy(outputs, batch["action"])
    log_ratio = log_prob - batch["log_prob"]
    ratio = log_ratio.exp()
    clipped = paddle.minimum(paddle.maximum(ratio, 1 - clip), 1 + clip)
    surrogate = paddle.minimum(ratio * batch["advantage"], clipped * batch["advantage"])
    policy_loss = -paddle.dot(surrogate, share)
    value_loss = paddle.dot(value_errors(outputs, batch, value_clip_range), share)
    mean_entropy = paddle.dot(entropy, share)
    outside = ((ratio - 1).abs() > clip).astype("float32")
    return {
        "loss": _actor_critic_loss(policy_loss, value_loss, mean_entropy, value_coef, entropy_coef),
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": mean_entropy,
        "approx_kl": paddle.dot(ratio - 1 - log_ratio, share),
        "clip_fraction": paddle.dot(outside, share),
    }


def a2c_loss(
    outputs: dict[str, paddle.Tensor],
    batch: dict[str, paddle.Tensor],
    distribution: Distribution,
    value_coef: float,
    entropy_coef: float,
) -> dict[str, paddle.Tensor]:
    """The policy gradient with a value and an entropy term (Mnih et al. 2016, section 4).

    Args:
        outputs: the distribution's parameters [batch, …] and `value` [batch, 1].
        batch: `action` [batch, …], and [batch]: `advantage`, `value_target`, `weight`.
        distribution: the action distribution.
        value_coef: weight of the squared value error.
        entropy_coef: weight of the entropy.

    Returns:
        `A2C_TERMS`, scalars.
    """
    share = shares(batch["weight"])
    log_prob, entropy = distribution.log_prob_and_entropy(outputs, batch["action"])
    policy_loss = -paddle.dot(log_prob * batch["advantage"], share)
    value_loss = paddle.dot(value_errors(outputs, batch, 0.0), share)
    mean_entropy = paddle.dot(entropy, share)
    return {
        "loss": _actor_critic_loss(policy_loss, value_loss, mean_entropy, value_coef, entropy_coef),
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": mean_entropy,
    }


def _actor_critic_loss(
    policy_loss: paddle.Tensor,
    value_loss: paddle.Tensor,
    entropy: paddle.Tensor,
    value_coef: float,
    entropy_coef: float,
) -> paddle.Tensor:
    """The sum that is minimised; an entropy of no weight is left out, and its gradient need not be computed."""
    loss = policy_loss + value_coef * value_loss
    return loss - entropy_coef * entropy if entropy_coef else loss


def dqn_loss(
    network: Any,  # noqa: ANN401 - a TwinQNetwork
    batch: dict[str, paddle.Tensor],
    *,
    double: bool,
) -> dict[str, paddle.Tensor]:
    """The Huber loss of Q-learning's TD errors (Mnih et al. 2015; double: van Hasselt et al. 2016, equation 4).

        y = R + discount · Q_target(s', a*),  a* = argmax Q_target(s', ·), or of Q_online(s', ·) in the double form

    Args:
        network: its `online` part learns, its `target` part gives the targets.
        batch: the features of `obs` and `next_obs` [batch, …]; `action`, n-step `returns`, `discounts` and `weight`
            [batch].
        double: whether the online network chooses the next action.

    Returns:
        `DQN_TERMS`, scalars, and `td_errors` [batch].
    """
    features, next_features = features_in(batch, "obs"), features_in(batch, "next_obs")
    q_values = network.online.heads(features)["q_values"]
    chosen = paddle.take_along_axis(q_values, batch["action"].unsqueeze(-1), axis=-1).squeeze(-1)
    next_values = network.target.heads(next_features)["q_values"]
    choosing = network.online.heads(next_features)["q_values"].detach() if double else next_values
    best = paddle.argmax(choosing, axis=-1, keepdim=True)
    next_value = paddle.take_along_axis(next_values, best, axis=-1).squeeze(-1)
    errors = chosen - (batch["returns"] + batch["discounts"] * next_value).detach()
    return {
        "loss": (huber(errors) * batch["weight"]).mean(),
        "mean_q": chosen.mean(),
        "td_error": errors.abs().mean(),
        "td_errors": errors,
    }


def huber(errors: paddle.Tensor) -> paddle.Tensor:
    """½e² where |e| ≤ 1, |e| - ½ beyond (Huber 1964, δ = 1), element by element."""
    size = errors.abs()
    small = paddle.minimum(size, paddle.ones_like(size))
    return small * (size - 0.5 * small)
