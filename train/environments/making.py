"""From the name that a user gives to an environment."""

from __future__ import annotations

import contextlib
import difflib
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium

from paddleport.errors import PaddleportError, UsageError
from train.environments.atari import AtariGame, atari_keywords
from train.environments.classic import Adapted, gym_knows, hush_gym, made_to_render, make_by_gym
from train.environments.files import is_file_name, make_from_file
from train.environments.guarded import Guarded, what_was_raised

_OURS = ("paddleport", "train", "quantize", "export", "serve")
_GYM = "gym:"


def make_environment(env_id: str, number: int | None = None, render_mode: str | None = None) -> Guarded:
    """Make one environment.

    Args:
        env_id: a Gymnasium id; `module:id` where a module registers it; `path/to/file.py:ClassName` for a class with
            `reset` and `step`; `gym:id` for classic gym, which is asked for ids that Gymnasium lacks as well.
        number: which one of several it is, for messages.
        render_mode: how to draw it, such as "rgb_array", where it can be made to; otherwise it is made as ever.

    Raises:
        UsageError: nothing goes by that name, or it cannot be made.
    """
    try:
        with quiet():
            made = _make(env_id, render_mode)
    except PaddleportError:
        raise
    except gymnasium.error.Error as error:
        raise _unknown(env_id, error) from error
    except ModuleNotFoundError as error:
        if is_file_name(env_id) or not _is_missing(env_id, error):  # something that the user's own code imports
            raise UsageError(f"The environment {env_id!r} cannot be made", got=what_was_raised(error)) from error
        raise _unknown(env_id, error) from error
    except (Exception, SystemExit) as error:  # the module or the environment is the user's, and may raise anything
        raise UsageError(f"The environment {env_id!r} cannot be made", got=what_was_raised(error)) from error
    return Guarded(made, env_id, number)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within the block the yellow warnings of Gymnasium and gym are not shown; those of the user's own code are."""
    hush_gym()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\x1b\[\d+mWARN: ")
        yield


def _make(env_id: str, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    if is_file_name(env_id):
        return make_from_file(env_id, render_mode)
    if env_id.startswith(_GYM):
        return make_by_gym(env_id.removeprefix(_GYM), render_mode)
    if (keywords := atari_keywords(env_id)) is not None:
        return AtariGame(keywords, render_mode)
    try:
        # `check_environment` does the checker's work, and says it better.
        made = made_to_render(partial(gymnasium.make, env_id, disable_env_checker=True), render_mode)
    except gymnasium.error.UnregisteredEnv:
        if not gym_knows(env_id):
            raise
        return make_by_gym(env_id, render_mode)
    if getattr(made, "observation_space", None) is None or getattr(made, "action_space", None) is None:
        return Adapted(made, env_id)  # which says what is missing
    return made


def _unknown(env_id: str, error: Exception) -> UsageError:
    hint = _hint(env_id) if isinstance(error, gymnasium.error.UnregisteredEnv | ModuleNotFoundError) else None
    reason = " ".join(str(error).split())
    return UsageError(
        "Cannot make this environment",
        expected="the id of a registered Gymnasium environment, module:id, or path/to/file.py:ClassName",
        got=f"{env_id!r} ({reason})",
        todo=hint,
    )


def _is_missing(env_id: str, error: ModuleNotFoundError) -> bool:
    """Whether what is missing is the module that the id names, or a package that it lies in."""
    module = env_id.rpartition(":")[0]
    return not error.name or module == error.name or module.startswith(f"{error.name}.")


def _hint(env_id: str) -> str | None:
    if env_id in gymnasium.registry:
        return None  # it is known, and lacks something that the reason names
    module, _, name = env_id.rpartition(":")
    if module in _OURS:
        return f"{module} is the name of one of Paddleport's own packages: give your module another one"
    if module:
        where = f"{module.replace('.', '/')}.py"
        return f"Run the command from the folder that holds {where}, and see that it registers {name}"
    near = difflib.get_close_matches(env_id, list(gymnasium.registry), n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else None
