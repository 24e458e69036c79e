"""Gymnasium environments: making them by id, and describing their spaces without Gymnasium."""

from __future__ import annotations

import difflib
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from paddleport.errors import UsageError
from paddleport.manifest import EnvironmentInfo
from paddleport.spaces import Discrete, Space, box


def make_environment(env_id: str) -> gymnasium.Env[Any, Any]:
    """Make one environment by its Gymnasium id, or `module:id` where a module registers it.

    Raises:
        UsageError: nobody registered it, or it cannot be made.
    """
    try:
        return gymnasium.make(env_id)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        near = difflib.get_close_matches(env_id, list(gymnasium.registry), n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else None
        reason = " ".join(str(error).split())
        raise UsageError(
            "Cannot make this environment",
            expected="the id of a registered Gymnasium environment, or module:id",
            got=f"{env_id!r} ({reason})",
            todo=hint.rstrip("?") + "?" if hint else None,
        ) from error


def make_vector(env_id: str, num_envs: int) -> SyncVectorEnv:
    """`num_envs` copies that step together in this process, with next-step autoreset.

    After an episode's end the next step ignores its action and returns the first observation of a new episode: that
    row is no transition (Gymnasium 1.x, `AutoresetMode.NEXT_STEP`).
    """
    make_environment(env_id).close()  # its error message is better than a vector's
    makers = [lambda: gymnasium.make(env_id) for _ in range(num_envs)]
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP)


def describe_environment(env_id: str) -> tuple[EnvironmentInfo, Space, Space]:
    """The environment, its observation space and its action space, as the contract describes them.

    Raises:
        UsageError: the environment cannot be made, or a space is of a kind that Paddleport does not know yet.
    """
    env = make_environment(env_id)
    try:
        limit = env.spec.max_episode_steps if env.spec else None
        info = EnvironmentInfo(id=env_id, max_episode_steps=limit)
        if _offers_mask(env):
            raise UsageError(f"{env_id} offers action masks, and Paddleport has no masked policies yet")
        return info, describe_space(env.observation_space), describe_space(env.action_space)
    finally:
        env.close()


def describe_space(space: gymnasium.Space[Any]) -> Space:
    """A Gymnasium space as the contract's.

    Raises:
        UsageError: it is of a kind that the contract does not know yet.
    """
    if isinstance(space, gym_spaces.Discrete):
        return Discrete(n=int(space.n), start=int(space.start))
    if isinstance(space, gym_spaces.Box):
        low = np.where(space.bounded_below, space.low, -np.inf)
        high = np.where(space.bounded_above, space.high, np.inf)
        return box(low, high, str(space.dtype))
    raise UsageError("Paddleport does not know this kind of space yet", expected="Box or Discrete", got=space)


def _offers_mask(env: gymnasium.Env[Any, Any]) -> bool:
    space = env.observation_space
    return isinstance(space, gym_spaces.Dict) and "action_mask" in space.spaces
