"""Rollouts from vector environments, with next-step autoreset told apart from transitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gymnasium.vector import VectorEnv

from paddleport.errors import TrainingError
from paddleport.spaces import Array
from train.acting import Actor
from train.distributions import Distribution
from train.normalizer import RunningNormalizer


@dataclass(frozen=True)
class Rollout:
    """T steps of N environments, each array [T, N, …] unless said otherwise."""

    features: Array
    """Observations as the network took them, float32 [T, N, size]."""
    actions: Array
    log_probs: Array
    rewards: Array
    values: Array
    next_values: Array
    """Value of the observation that the step returned: at an episode's end, of the episode's last one."""
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

    Under next-step autoreset the observation that ends an episode is what the policy is shown next, and the step
    it then takes is ignored. So the value that truncation bootstraps from is simply the next row's value, and the
    ignored row is marked and learnt from by nobody.

    Args:
        envs: the vector environment, in next-step autoreset mode.
        actor: the policy's heads.
        distribution: turns heads into actions.
        normalizer: fixed during a rollout, so that its values and probabilities all belong to one function, and
            updated after it with every observation seen. None leaves observations as they are.
    """

    def __init__(
        self, envs: VectorEnv, actor: Actor, distribution: Distribution, normalizer: RunningNormalizer | None
    ) -> None:
        self._envs, self._actor, self._distribution, self._normalizer = envs, actor, distribution, normalizer
        self._count = envs.num_envs
        self._obs: Array = np.zeros(0)
        self._resetting = np.zeros(self._count, dtype=bool)
        self._episodes = EpisodeCounter(self._count)

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment; those that were going on count as cut."""
        self._obs, _ = self._envs.reset(seed=seed)
        self._resetting = np.zeros(self._count, dtype=bool)
        self._episodes.reset()

    def collect(self, steps: int, rng: np.random.Generator, first_step: int) -> Rollout:
        """Take `steps` steps in every environment.

        Args:
            steps: T.
            rng: the run's generator.
            first_step: environment steps taken so far, for messages.

        Raises:
            TrainingError: an environment gave an observation or reward that is not finite.
        """
        distribution, count = self._distribution, self._count
        actions = np.zeros((steps, count, *distribution.action_shape), dtype=distribution.action_dtype)
        log_probs, rewards = np.zeros((2, steps, count), dtype=np.float32)
        values = np.zeros((steps + 1, count), dtype=np.float32)
        terminated, done, valid = np.zeros((3, steps, count), dtype=bool)
        observations: list[Array] = []
        rows: list[Array] = []
        for step in range(steps):
            features = self._features(first_step)
            observations.append(self._obs)
            heads = self._actor.heads(features)
            actions[step], log_probs[step] = distribution.sample(heads, rng)
            rows.append(features)
            values[step] = heads["value"]
            valid[step] = ~self._resetting
            environment_actions = distribution.to_environment(actions[step])
            self._obs, rewards[step], terminated[step], truncated, _ = self._envs.step(environment_actions)
            done[step] = self._resetting = terminated[step] | truncated
            self._episodes.add(rewards[step], valid[step], done[step])
        values[steps] = self._actor.value(self._features(first_step))
        if self._normalizer:
            self._normalizer.update(np.concatenate(observations))
        for row in rewards:
            check_finite("reward", row, first_step)
        returns, lengths = self._episodes.ended()
        return Rollout(
            features=np.stack(rows),
            actions=actions,
            log_probs=log_probs,
            rewards=rewards,
            values=values[:-1],
            next_values=values[1:],
            terminated=terminated,
            done=done,
            valid=valid,
            returns=returns,
            lengths=lengths,
        )

    def _features(self, first_step: int) -> Array:
        check_finite("observation", self._obs, first_step)
        if self._normalizer is None:
            return self._obs.astype(np.float32)
        return self._normalizer.normalize(self._obs)


_ARTICLE = {"observation": "an", "reward": "a"}


class EpisodeCounter:
    """Returns and lengths of the episodes that end.

    Args:
        count: environments that step together.
    """

    def __init__(self, count: int) -> None:
        self._totals = np.zeros(count)
        self._lengths = np.zeros(count, dtype=np.int64)
        self._returns: list[float] = []
        self._ended_lengths: list[int] = []

    def reset(self) -> None:
        """Forget the episodes that are going on."""
        self._totals[:] = 0.0
        self._lengths[:] = 0

    def add(self, rewards: Array, valid: Array, done: Array) -> None:
        """Count one step of every environment, each array [N]; rows that are not valid are no transition."""
        self._totals += rewards
        self._lengths += valid
        for index in np.flatnonzero(done):
            self._returns.append(float(self._totals[index]))
            self._ended_lengths.append(int(self._lengths[index]))
            self._totals[index], self._lengths[index] = 0.0, 0

    def ended(self) -> tuple[list[float], list[int]]:
        """Returns and lengths of the episodes that ended since the last call."""
        ended = self._returns, self._ended_lengths
        self._returns, self._ended_lengths = [], []
        return ended


def check_finite(what: str, values: Array, near_step: int) -> None:
    """Refuse NaN and infinity in what environments gave, [N, …] or whole multiples of N.

    Raises:
        TrainingError: the message names the environment.
    """
    finite = np.isfinite(values)
    if not finite.all():
        index = int(np.argwhere(~finite)[0][0])
        given = f"{_ARTICLE[what]} {what}"
        raise TrainingError(
            f"The environment gave {given} that is not finite, near step {near_step}, in environment {index}",
            got=values[index],
            todo="Mend the environment; --resume continues from the last checkpoint, if there is one",
        )
