"""Stepping a vector environment: observations as named arrays, autoreset told apart from transitions.

Two ways of starting anew are known (Gymnasium 1.x, `AutoresetMode`). Under next-step autoreset the step that ends an
episode shows its last observation; the step after it ignores its action and is no transition. Under same-step
autoreset that step shows the next episode's first observation, and the last one comes apart, in `final_obs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from paddleport.errors import TrainingError
from paddleport.spaces import OBSERVATION, Array, Leaves, Space, leaves_of

_LARGEST = np.finfo(np.float32).max
"""Of a larger float64, float32, in which is learnt, makes infinity."""


@dataclass(frozen=True)
class Step:
    """One step of N environments."""

    rewards: Array
    """float32 [N]."""
    terminated: Array
    done: Array
    """Terminated or truncated."""
    valid: Array
    """False where the environment ignored the action because it was resetting: such a row is no transition."""
    final_obs: Leaves | None
    """Under same-step autoreset, where an episode ended: [N, …], its last observation in the rows that are `done`."""


class Stepper:
    """Steps a vector environment and counts its episodes.

    Args:
        envs: the vector environment.
        space: the observation space of one environment.

    Attributes:
        obs: what the environments show now, [N, …].
        count: N.
        step: transitions taken so far.
    """

    def __init__(self, envs: VectorEnv, space: Space) -> None:
        self._envs, self._space = envs, space
        self._same_step = envs.metadata.get("autoreset_mode") == AutoresetMode.SAME_STEP
        self.count = envs.num_envs
        self.obs: Leaves = {}
        self.step = 0
        self._resetting = np.zeros(self.count, dtype=bool)
        self._totals = np.zeros(self.count)
        self._lengths = np.zeros(self.count, dtype=np.int64)
        self._returns: list[float] = []
        self._ended_lengths: list[int] = []

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment; those that were going on count as cut."""
        obs, _ = self._envs.reset(seed=seed)
        self.obs = self._taken(obs)
        self._resetting = np.zeros(self.count, dtype=bool)
        self._totals[:] = 0.0
        self._lengths[:] = 0

    def take(self, actions: Any) -> Step:  # noqa: ANN401 - the environment's own actions
        """Take a step in every environment.

        Raises:
            TrainingError: an environment gave an observation or reward that is not finite.
        """
        obs, given, *ends, infos = self._envs.step(actions)
        terminated, truncated = (np.array(flags, dtype=bool) for flags in ends)  # some vector forms give integers
        valid, done = ~self._resetting, terminated | truncated
        self.obs = self._taken(obs)
        check_finite("a reward", np.asarray(given), self.step)
        rewards = np.array(given, dtype=np.float32)
        final_obs = None
        if self._same_step:
            final_obs = self._final(infos, done) if done.any() else None
        else:
            self._resetting = done
        self._add(rewards, valid, done)
        self.step += int(valid.sum())
        return Step(rewards, terminated, done, valid, final_obs)

    def ended(self) -> tuple[list[float], list[int]]:
        """Undiscounted returns and lengths of the episodes that ended since the last call."""
        ended = self._returns, self._ended_lengths
        self._returns, self._ended_lengths = [], []
        return ended

    def _add(self, rewards: Array, valid: Array, done: Array) -> None:
        self._totals += rewards
        self._lengths += valid
        for index in np.flatnonzero(done):
            self._returns.append(float(self._totals[index]))
            self._ended_lengths.append(int(self._lengths[index]))
            self._totals[index], self._lengths[index] = 0.0, 0

    def _final(self, infos: dict[str, Any], done: Array) -> Leaves:
        """The last observations of the episodes that ended, in rows of their own."""
        given = infos["final_obs"]
        if not (isinstance(given, np.ndarray) and given.dtype == object):
            return self._checked(leaves_of(self._space, given))
        final = {name: array.copy() for name, array in self.obs.items()}
        for index in np.flatnonzero(done):
            for name, array in leaves_of(self._space, given[index]).items():
                final[name][index] = array
        return self._checked(final)

    def _taken(self, obs: Any) -> Leaves:  # noqa: ANN401 - as the space
        """Copies, since a vector form of the environment's own may write the next step into the same arrays."""
        return self._checked({name: array.copy() for name, array in leaves_of(self._space, obs).items()})

    def _checked(self, obs: Leaves) -> Leaves:
        for name, array in obs.items():
            part = "" if name == OBSERVATION else f" (its part {name!r})"
            check_finite(f"an observation{part}", array, self.step)
        return obs


def check_finite(what: str, values: Array, near_step: int) -> None:
    """Refuse NaN and infinity in what environments gave, [N, …].

    Args:
        what: it is, for the message.
        values: of any type.
        near_step: transitions taken so far.

    Raises:
        TrainingError: the message names the environment.
    """
    if values.dtype.kind != "f":
        return
    finite = np.abs(values) <= _LARGEST  # false for NaN
    if not finite.all():
        index = int(np.argwhere(~finite)[0][0])
        raise TrainingError(
            f"The environment gave {what} that is not finite, near step {near_step}, in environment {index}",
            expected="finite numbers of float32",
            got=values[index],
            todo="Mend the environment; --resume continues from the last checkpoint, if there is one",
        )
