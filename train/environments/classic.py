"""Environments that are not Gymnasium's: of classic `gym`, and classes that merely have the methods."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces

from paddleport.errors import MissingExtraError, TrainingError, UsageError


class Adapted(gymnasium.Env[Any, Any]):
    """An environment with `reset` and `step`, of whichever of gym's interfaces, as a Gymnasium one.

    `reset` may return `(obs, info)` or `obs`, and may take a seed itself or by a method `seed`. `step` may return five
    values or gym's older four, whose `info["TimeLimit.truncated"]` says that a time limit ended the episode.

    Args:
        inner: the environment.
        name: what to call it in messages.

    Raises:
        UsageError: it lacks a method or a space.
    """

    def __init__(self, inner: Any, name: str) -> None:  # noqa: ANN401 - whatever the user has
        needed = ("reset", "step", "observation_space", "action_space")
        if missing := [attribute for attribute in needed if getattr(inner, attribute, None) is None]:
            raise UsageError(
                f"The environment {name!r} is not complete",
                expected="methods reset and step, and observation_space and action_space, which are spaces",
                got=f"none named {' or '.join(missing)}",
            )
        self.inner, self._name = inner, name
        self.observation_space = gymnasium_space(inner.observation_space, name)
        self.action_space = gymnasium_space(inner.action_space, name)
        self.metadata = {"render_modes": [], **(getattr(inner, "metadata", None) or {})}
        self.render_mode = getattr(inner, "render_mode", None)
        limit = getattr(getattr(inner, "spec", None), "max_episode_steps", None)
        self.max_episode_steps: int | None = limit
        """Where a time limit of gym's truncates, if one does."""
        resets = [inner.reset, getattr(inner, "unwrapped", inner).reset]
        self._takes = {word: all(takes(reset, word) for reset in resets) for word in ("seed", "options")}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset by whatever the environment's own `reset` takes."""
        super().reset(seed=seed)
        given = {"seed": seed, "options": options}
        keywords = {word: value for word, value in given.items() if value is not None and self._takes[word]}
        if seed is not None and not self._takes["seed"] and callable(getattr(self.inner, "seed", None)):
            self.inner.seed(seed)
        result = self.inner.reset(**keywords)
        pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)
        return result if pair else (result, {})

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: ANN401 - the environment's own
        """Step; four values become five."""
        result = self.inner.step(action)
        if not isinstance(result, tuple) or len(result) not in (4, 5):
            raise TrainingError(
                f"The environment {self._name!r} returned something else from step",
                expected="(obs, reward, terminated, truncated, info), or the older (obs, reward, done, info)",
                got=f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__,
            )
        if len(result) == 5:
            return result
        obs, reward, done, info = result
        truncated = bool(done) and bool(info.get("TimeLimit.truncated", False))
        return obs, reward, bool(done) and not truncated, truncated, info

    def render(self) -> Any:  # noqa: ANN401
        """Whatever the environment's own gives, of the older `render(mode)` the pixels; None where it has none."""
        render = getattr(self.inner, "render", None)
        if not render:
            return None
        older = takes(getattr(getattr(self.inner, "unwrapped", self.inner), "render", render), "mode")
        return render(mode="rgb_array") if older else render()

    def close(self) -> None:
        """Close what can be closed."""
        if close := getattr(self.inner, "close", None):
            close()


def gymnasium_space(space: Any, name: str) -> gymnasium.Space[Any]:  # noqa: ANN401
    """A space of gym's as one of Gymnasium's, by its attributes; Gymnasium's own stay.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(space, gymnasium.Space):
        return space
    for kind in type(space).__mro__:
        if kind.__module__.startswith("gym.") and (convert := _CONVERSIONS.get(kind.__name__)):
            return convert(space, name)
    raise UsageError(
        f"The environment {name!r} has a space of an unknown kind", expected="a gymnasium.Space", got=space
    )


_CONVERSIONS: dict[str, Callable[[Any, str], gymnasium.Space[Any]]] = {
    "Box": lambda space, _: gym_spaces.Box(space.low, space.high, space.shape, np.dtype(space.dtype).type),
    "Discrete": lambda space, _: gym_spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0))),
    "MultiDiscrete": lambda space, _: gym_spaces.MultiDiscrete(space.nvec),
    "MultiBinary": lambda space, _: gym_spaces.MultiBinary(space.n),
    "Dict": lambda space, name: gym_spaces.Dict({k: gymnasium_space(v, name) for k, v in space.spaces.items()}),
    "Tuple": lambda space, name: gym_spaces.Tuple([gymnasium_space(part, name) for part in space.spaces]),
}


def hush_gym() -> None:
    """Keep off stderr what classic gym prints when it is imported: that it is unmaintained."""
    if "gym" not in sys.modules and importlib.util.find_spec("gym_notices"):
        from gym_notices import notices

        notices.notices.clear()


def gym_knows(env_id: str) -> bool:
    """Whether classic gym is installed and has this id registered; `module:` in front is looked through."""
    if not importlib.util.find_spec("gym"):
        return False
    import gym

    return env_id.rpartition(":")[2] in gym.envs.registry


def made_to_render(make: Callable[..., Any], render_mode: str | None) -> Any:  # noqa: ANN401 - gym's or Gymnasium's
    """What `make()` gives, made anew with `render_mode` where its metadata says that it can be drawn so."""
    made = make()
    if render_mode is None or render_mode not in (getattr(made, "metadata", None) or {}).get("render_modes", ()):
        return made
    if close := getattr(made, "close", None):
        close()
    return make(render_mode=render_mode)


def make_by_gym(env_id: str, render_mode: str | None = None) -> Adapted:
    """An environment that classic gym makes.

    Raises:
        MissingExtraError: gym is not installed.
    """
    if not importlib.util.find_spec("gym"):
        raise MissingExtraError("gym", "train")
    import gym

    return Adapted(made_to_render(partial(gym.make, env_id, disable_env_checker=True), render_mode), env_id)


def takes(function: Callable[..., Any], word: str) -> bool:
    """Whether a function or a class can be given the keyword."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C, without a signature
        return False
    return word in parameters or any(entry.kind is entry.VAR_KEYWORD for entry in parameters.values())
