"""What an environment is, without Gymnasium: its spaces, its time limit and its preprocessing."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces

from paddleport.errors import UsageError
from paddleport.frames import ZERO_PADDING
from paddleport.manifest import EnvironmentInfo
from paddleport.spaces import DictSpace, Discrete, MultiBinary, MultiDiscrete, Space, TupleSpace, box
from train.environments.atari import PREPROCESSING, AtariGame
from train.environments.making import make_environment
from train.environments.naming import named


def describe_environment(env_id: str) -> tuple[EnvironmentInfo, Space, Space]:
    """The environment, its observation space and its action space, as the contract describes them.

    Raises:
        UsageError: the environment cannot be made, or a space is of a kind that Paddleport does not know yet.
    """
    env = make_environment(env_id)
    try:
        info = EnvironmentInfo(id=env_id, max_episode_steps=_step_limit(env), preprocessing=_preprocessing(env))
        if _offers_mask(env):
            raise UsageError(f"{env_id} offers action masks, and Paddleport has no masked policies yet")
        observation = named(describe_space(env.observation_space), env, "observation")
        return info, observation, named(describe_space(env.action_space), env, "action")
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
        low = np.where(space.bounded_below & (space.low > -_most(space)), space.low, -np.inf)
        high = np.where(space.bounded_above & (space.high < _most(space)), space.high, np.inf)
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


def _most(space: gym_spaces.Box) -> float:
    """A bound as large as the type can hold is none: classic gym wrote it for infinity."""
    return float(np.finfo(str(space.dtype)).max) if np.issubdtype(space.dtype, np.floating) else np.inf


def _step_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """Steps after which an episode is truncated, where that can be told."""
    if env.spec is not None and env.spec.max_episode_steps:
        return env.spec.max_episode_steps
    limit: int | None = getattr(env.unwrapped, "max_episode_steps", None)  # of the environments that we adapt
    return limit if isinstance(limit, int) else None


def _preprocessing(env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
    """What is done to observations before a policy sees them, in that order."""
    if isinstance(env.unwrapped, AtariGame):
        return PREPROCESSING
    steps: list[str] = []
    while isinstance(env, gymnasium.Wrapper):
        steps = [*_steps_of(env), *steps]
        env = env.env
    return tuple(steps)


def _steps_of(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> list[str]:
    """What one of Gymnasium's wrappers does to observations; a wrapper of the user's own goes by its name."""
    if isinstance(wrapper, gymnasium.wrappers.FrameStackObservation):
        padding = [ZERO_PADDING] if wrapper.padding_type == "zero" else []
        return [f"frame_stack={wrapper.stack_size}", *padding]
    if isinstance(wrapper, gymnasium.wrappers.AtariPreprocessing):
        size = "x".join(map(str, reversed(wrapper.screen_size)))
        grey = ["grayscale"] if wrapper.grayscale_obs else []
        return [
            f"frame_skip={wrapper.frame_skip}",
            "max_pool=2",
            *grey,
            f"resize={size}",
            f"noop_max={wrapper.noop_max}",
        ]
    if isinstance(wrapper, gymnasium.wrappers.ResizeObservation):
        return [f"resize={'x'.join(map(str, wrapper.shape))}"]
    if isinstance(wrapper, gymnasium.wrappers.GrayscaleObservation):
        return ["grayscale"]
    return [type(wrapper).__name__] if isinstance(wrapper, gymnasium.ObservationWrapper) else []


def _offers_mask(env: gymnasium.Env[Any, Any]) -> bool:
    space = env.observation_space
    return isinstance(space, gym_spaces.Dict) and "action_mask" in space.spaces
