"""Environments that are classes in a user's own file: `path/to/file.py:ClassName`."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
import re
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium

from paddleport.errors import UsageError
from train.environments.classic import Adapted, made_to_render, takes

_NAME = re.compile(r"(?P<path>.+\.py):(?P<name>[^:/]+)")


def is_file_name(env_id: str) -> bool:
    """Whether the name has the form `path/to/file.py:ClassName`."""
    return _NAME.fullmatch(env_id) is not None


def make_from_file(env_id: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make the environment that `path/to/file.py:ClassName` names; a relative path is relative to the current folder.

    `render_mode` is given to a class that takes it and has it among its `metadata["render_modes"]`.

    Raises:
        UsageError: there is no such file or class, it needs arguments, or it has no spaces.
    """
    match = _NAME.fullmatch(env_id)
    path, name = (match["path"], match["name"]) if match else (env_id, "")
    if not Path(path).is_file():
        raise UsageError(
            f"The environment {env_id!r} cannot be made",
            expected="a Python file",
            got=f"no file {path}",
            todo="A relative path is relative to the current folder",
        )
    found = getattr(load_module(str(Path(path).resolve())), name, None)
    if not callable(found):
        raise _no_class(env_id, path, name)
    if required := _required_arguments(found):
        raise UsageError(
            f"The environment {env_id!r} cannot be made",
            expected="a class that can be made without arguments",
            got=f"one that needs {', '.join(required)}",
            todo="Give them defaults, or write a subclass that fills them in",
        )
    made = made_to_render(found, render_mode if takes(found, "render_mode") else None)
    complete = isinstance(made, gymnasium.Env) and hasattr(made, "observation_space") and hasattr(made, "action_space")
    return made if complete else Adapted(made, env_id)  # which says what is missing


@functools.cache
def load_module(path: str) -> ModuleType:
    """The module in a file, run once in a process; modules beside it can be imported by it.

    Args:
        path: the absolute path.
    """
    # A name of its own, so that a user's `train.py` is not taken for our package.
    name = f"environment_{Path(path).stem}_{zlib.crc32(path.encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError("This is no Python file", got=path)
    module = importlib.util.module_from_spec(spec)
    folder = str(Path(path).parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module  # dataclasses and pickle look the module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _no_class(env_id: str, path: str, name: str) -> UsageError:
    module = load_module(str(Path(path).resolve()))
    offered = [key for key, value in vars(module).items() if _is_environment(value, module)]
    near = difflib.get_close_matches(name, offered, n=1)
    return UsageError(
        f"The environment {env_id!r} cannot be made",
        expected=f"a class in {path} with reset and step" + (f": {', '.join(offered)}" if offered else ""),
        got=f"no class {name}",
        todo=f"Did you mean {path}:{near[0]}?" if near else None,
    )


def _is_environment(value: object, module: ModuleType) -> bool:
    own = inspect.isclass(value) and value.__module__ == module.__name__
    return own and hasattr(value, "reset") and hasattr(value, "step")


def _required_arguments(made_by: Any) -> list[str]:  # noqa: ANN401 - a class or a function
    try:
        parameters = inspect.signature(made_by).parameters.values()
    except (TypeError, ValueError):  # written in C, without a signature
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [entry.name for entry in parameters if entry.default is entry.empty and entry.kind not in variable]
