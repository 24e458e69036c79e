"""Gymnasium environments: making them by id, and describing their spaces without Gymnasium."""

from __future__ import annotations

import difflib
import traceback
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from paddleport.errors import TrainingError, UsageError
from paddleport.manifest import EnvironmentInfo
from paddleport.spaces import DictSpace, Discrete, MultiBinary, MultiDiscrete, Space, TupleSpace, box

_OURS = ("paddleport", "train", "quantize", "export", "serve")


def make_environment(env_id: str) -> gymnasium.Env[Any, Any]:
    """Make one environment by its Gymnasium id, or `module:id` where a module registers it.

    Raises:
        UsageError: nobody registered it, or it cannot be made.
    """
    try:
        return Guarded(gymnasium.make(env_id), env_id)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        hint = _hint(env_id) if isinstance(error, gymnasium.error.UnregisteredEnv | ModuleNotFoundError) else None
        reason = " ".join(str(error).split())
        raise UsageError(
            "Cannot make this environment",
            expected="the id of a registered Gymnasium environment, or module:id",
            got=f"{env_id!r} ({reason})",
            todo=hint,
        ) from error
    except (Exception, SystemExit) as error:  # the module or the environment is the user's, and may raise anything
        raise UsageError(f"The environment {env_id!r} cannot be made", got=_what_was_raised(error)) from error


def _hint(env_id: str) -> str | None:
    module, _, name = env_id.rpartition(":")
    if module in _OURS:
        return f"{module} is the name of one of Paddleport's own packages: give your module another one"
    if module:
        return f"Run the command from the folder that holds {module}.py, and see that it registers {name}"
    near = difflib.get_close_matches(env_id, list(gymnasium.registry), n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else None


class Guarded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose faults become messages, and whose observations have their space's own type and shape.

    Args:
        env: the environment.
        env_id: what to call it in messages.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        self._name = env_id

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset; TrainingError where the environment fails."""
        try:
            obs, info = self.env.reset(seed=seed, options=options)
        except Exception as error:  # as above
            raise self._failed("reset", error) from error
        return self._in_space(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: ANN401 - any environment's
        """Step; TrainingError where the environment fails."""
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
        except Exception as error:  # as above
            raise self._failed("step", error) from error
        return self._in_space(obs), reward, terminated, truncated, info

    def _in_space(self, obs: Any) -> Any:  # noqa: ANN401
        space = self.env.observation_space
        if not isinstance(space, gym_spaces.Box):
            return obs
        try:
            array = np.asarray(obs, dtype=space.dtype)
        except (TypeError, ValueError) as error:
            raise self._strange(space, type(obs).__name__) from error
        if array.shape != space.shape:
            raise self._strange(space, f"shape {list(array.shape)}")
        return array

    def _strange(self, space: gym_spaces.Box, got: str) -> TrainingError:
        return TrainingError(
            f"The environment {self._name!r} showed an observation that is not of its observation space",
            expected=f"numbers of type {space.dtype} and shape {list(space.shape)}",
            got=got,
        )

    def _failed(self, where: str, error: Exception) -> TrainingError:
        return TrainingError(f"The environment {self._name!r} failed in {where}", got=_what_was_raised(error))


def _what_was_raised(error: BaseException) -> str:
    """An exception in one line, with the place in the user's code that raised it."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({place.filename}:{place.lineno})"


def make_vector(env_id: str, num_envs: int) -> SyncVectorEnv:
    """`num_envs` copies that step together in this process, with next-step autoreset.

    After an episode's end the next step ignores its action and returns the first observation of a new episode: that
    row is no transition (Gymnasium 1.x, `AutoresetMode.NEXT_STEP`).
    """
    makers = [lambda: make_environment(env_id) for _ in range(num_envs)]
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
    if isinstance(space, gym_spaces.MultiDiscrete) and space.nvec.ndim == 1:
        start = tuple(space.start.tolist())
        return MultiDiscrete(nvec=tuple(space.nvec.tolist()), start=start if any(start) else ())
    if isinstance(space, gym_spaces.MultiBinary):
        return MultiBinary(shape=space.shape)
    if isinstance(space, gym_spaces.Dict):
        return DictSpace(spaces={name: describe_space(part) for name, part in space.spaces.items()})
    if isinstance(space, gym_spaces.Tuple):
        return TupleSpace(spaces=tuple(describe_space(part) for part in space.spaces))
    raise UsageError(
        "Paddleport does not know this kind of space",
        expected="Box, Discrete, MultiDiscrete (a vector), MultiBinary, or a Dict or Tuple of these",
        got=space,
    )


def _offers_mask(env: gymnasium.Env[Any, Any]) -> bool:
    space = env.observation_space
    return isinstance(space, gym_spaces.Dict) and "action_mask" in space.spaces
