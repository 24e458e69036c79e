"""Rollouts from vector environments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paddleport.spaces import Array, Leaves
from train.acting import Actor
from train.distributions import Distribution
from train.encoding import Encoder
from train.stepping import Stepper


@dataclass(frozen=True)
class Rollout:
    """T steps of N environments, each array [T, N, …] unless said otherwise."""

    features: dict[str, Array]
    """Observations as the network took them."""
    actions: Array
    log_probs: Array
    rewards: Array
    values: Array
    next_values: Array
    """Value of the observation that the step led to: at an episode's end, of the episode's last one."""
    terminated: Array
    done: Array
    """Terminated or truncated."""
    valid: Array
    """False where the environment ignored the action because it was resetting: such a row is no transition."""
    returns: list[float]
    """Undiscounted returns of the episodes that ended."""
    lengths: list[int]

    @property
    def transitions(self) -> int:
        """How many rows are transitions."""
        return int(self.valid.sum())


class Collector:
    """Steps a vector environment with a policy.

    Under next-step autoreset the observation that ends an episode is what the policy is shown next, so that the value
    which truncation bootstraps from is simply the next row's. Under same-step autoreset it is valued apart.

    Args:
        stepper: the environments.
        actor: the policy's heads.
        distribution: turns heads into actions.
        encoder: its normaliser is fixed during a rollout, so that all of its values and probabilities belong to one
            function, and updated after it with every observation seen.
    """

    def __init__(self, stepper: Stepper, actor: Actor, distribution: Distribution, encoder: Encoder) -> None:
        self.stepper = stepper
        self._actor, self._distribution, self._encoder = actor, distribution, encoder

    def collect(self, steps: int, rng: np.random.Generator) -> Rollout:
        """Take `steps` steps in every environment.

        Args:
            steps: T.
            rng: the run's generator.

        Raises:
            TrainingError: an environment gave an observation or reward that is not finite.
        """
        stepper, distribution, count = self.stepper, self._distribution, self.stepper.count
        actions = np.zeros((steps, count, *distribution.action_shape), dtype=distribution.action_dtype)
        log_probs, rewards = np.zeros((2, steps, count), dtype=np.float32)
        values: list[Array] = []
        final_values = np.zeros((steps, count), dtype=np.float32)
        terminated, done, valid, valued_apart = np.zeros((4, steps, count), dtype=bool)
        observations: list[Leaves] = []
        rows: list[dict[str, Array]] = []
        for t in range(steps):
            observations.append(stepper.obs)
            rows.append(self._encoder.features(stepper.obs))
            heads = self._actor.heads(rows[t])
            if "value" in heads:
                values.append(heads["value"])
            actions[t], log_probs[t] = distribution.sample(heads, rng)
            taken = stepper.take(distribution.to_environment(actions[t]))
            rewards[t], terminated[t], done[t], valid[t] = taken.rewards, taken.terminated, taken.done, taken.valid
            if taken.final_obs is not None:
                valued_apart[t] = taken.done
                final_values[t] = self._actor.value(self._encoder.features(taken.final_obs))
        last = self._encoder.features(stepper.obs)
        valued = self._valued(rows, last, values)
        self._encoder.observe(observations)
        returns, lengths = stepper.ended()
        return Rollout(
            features={name: np.stack([row[name] for row in rows]) for name in rows[0]},
            actions=actions,
            log_probs=log_probs,
            rewards=rewards,
            values=valued[:-1],
            next_values=np.where(valued_apart, final_values, valued[1:]),
            terminated=terminated,
            done=done,
            valid=valid,
            returns=returns,
            lengths=lengths,
        )

    def _valued(self, rows: list[dict[str, Array]], last: dict[str, Array], known: list[Array]) -> Array:
        """Values of the steps' observations and of the last one's, [T + 1, N]: in one go where none is known yet."""
        if known:
            return np.stack([*known, self._actor.value(last)])
        together = {name: np.concatenate([*(row[name] for row in rows), last[name]]) for name in last}
        return self._actor.value(together).reshape(len(rows) + 1, -1)
