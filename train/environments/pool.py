"""Environments that EnvPool steps in C++ threads; an optional extra."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from paddleport.errors import MissingExtraError, UsageError

_SEEDS = 2**31 - 2**16
"""EnvPool holds the seed of each environment, which are consecutive, in 32 bits with a sign."""


class Pool(VectorEnv[Any, Any, Any]):
    """EnvPool's form of an environment that Gymnasium has too, with next-step autoreset.

    EnvPool takes seeds only when a pool is made, so that `reset(seed=...)` makes a new one (about 1 ms).

    Args:
        env_id: the id, which both have.
        num_envs: how many.
        single: one of Gymnasium's, for its spaces.
        limit: steps after which an episode is truncated.

    Raises:
        MissingExtraError: EnvPool is not installed.
        UsageError: EnvPool has no such environment, or another one by that name.
    """

    def __init__(self, env_id: str, num_envs: int, single: gymnasium.Env[Any, Any], limit: int | None) -> None:
        if not importlib.util.find_spec("envpool"):
            raise MissingExtraError("envpool", "envpool")
        import envpool

        if env_id not in envpool.list_all_envs():
            raise UsageError(
                f"EnvPool has no environment {env_id}", todo="Leave --vector out, or give it sync or async"
            )
        self._make = envpool.make
        self._id, self._limit = env_id, limit
        self.num_envs = num_envs
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.observation_space = batch_space(single.observation_space, num_envs)
        self.action_space = batch_space(single.action_space, num_envs)
        self._pool = self._made(0)
        _check_same(env_id, single.observation_space, self._pool.single_observation_space)
        _check_same(env_id, single.action_space, self._pool.single_action_space)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        """Start new episodes, from a new pool where there is a seed."""
        if seed is not None:
            self._pool.close()
            self._pool = self._made(int(seed) % _SEEDS)
        return self._pool.reset()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:  # noqa: ANN401
        """Step every environment."""
        return self._pool.step(np.asarray(actions, dtype=self._pool.single_action_space.dtype))

    def close_extras(self, **_: Any) -> None:  # noqa: ANN401 - Gymnasium's own
        """Close the pool."""
        self._pool.close()

    def _made(self, seed: int) -> Any:  # noqa: ANN401 - EnvPool makes a class for each environment
        limit = {"max_episode_steps": self._limit} if self._limit else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about bounds that lose precision in float32
            return self._make(self._id, env_type="gymnasium", num_envs=self.num_envs, seed=seed, **limit)


def _check_same(env_id: str, ours: gymnasium.Space[Any], theirs: gymnasium.Space[Any]) -> None:
    """Bounds may differ: EnvPool leaves them out of some spaces."""
    same = type(ours) is type(theirs) and ours.shape == theirs.shape
    if not same or getattr(ours, "n", None) != getattr(theirs, "n", None):
        raise UsageError(f"EnvPool's {env_id} is another one than Gymnasium's", expected=ours, got=theirs)
