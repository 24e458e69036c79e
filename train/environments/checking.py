"""A check of the environment before a training begins, by Gymnasium's own checker."""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from paddleport.errors import PaddleportError, UsageError
from train.environments.atari import AtariGame
from train.environments.guarded import what_was_raised
from train.environments.making import hush_gym, make_environment

_HARMLESS = (
    *("different from the unwrapped version", "probably too low", "probably too high", "symmetric and normalized"),
    *("`seed` function is dropped", "alternative render modes"),
)
"""Of the checker's warnings, what Paddleport takes care of."""
_TRAINABLE = (
    *("not within the observation space", "non-deterministic", "Deterministic step", "super().reset(seed=seed)"),
    *(".np_random", "random number generator", "share an object", "truncates after 1 step", "_np_random"),
)
"""Of what the checker refuses, what an environment can be trained in all the same."""
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


def check_environment(env_id: str) -> None:
    """Make one instance of an environment, try it, and say on stderr what is doubtful about it.

    ale-py's games are not tried: they are known to work, and they are slow.

    Raises:
        UsageError: it cannot be trained in.
        TrainingError: it fails or hangs.
    """
    for line in dict.fromkeys(doubts(env_id)):
        print(f"paddleport: the environment {env_id!r}: {line}", file=sys.stderr)


def doubts(env_id: str) -> list[str]:
    """What is doubtful about an environment, each in one line; raises as `check_environment` does."""
    env = make_environment(env_id)
    try:
        if isinstance(env.unwrapped, AtariGame):
            return []
        found: list[str] = []
        hush_gym()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                # The guarded one: what it mends (types of observations) is nothing to complain of.
                check_env(env, skip_render_check=True, skip_close_check=True)
                found = _type_doubts(env)
            except PaddleportError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the checker or the environment raises
                found = [_doubt_or_refusal(env_id, error)]
        said = [_plain(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
        return [line for line in said if not any(words in line for words in _HARMLESS)] + found
    finally:
        env.close()


def _type_doubts(env: gymnasium.Wrapper[Any, Any, Any, Any]) -> list[str]:
    """Whether the environment, unguarded, shows numbers of another type than its space's."""
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Box):
        return []
    shown = np.asarray(env.env.reset()[0]).dtype
    if shown == space.dtype:
        return []
    return [f"its observations are {shown} where its space says {space.dtype}; they are converted"]


def _doubt_or_refusal(env_id: str, error: Exception) -> str:
    line = _plain(error)
    if isinstance(error, AssertionError) and any(words in line for words in _TRAINABLE):
        return line
    raise UsageError(
        f"The environment {env_id!r} does not do what Gymnasium's checker asks for",
        got=line if isinstance(error, AssertionError) and line else what_was_raised(error),
    ) from error


def _plain(message: object) -> str:
    """Without colours, line breaks and the word WARN."""
    return " ".join(_COLOURS.sub("", str(message)).removeprefix("WARN: ").split())
