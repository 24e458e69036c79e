"""Environments whose faults become messages, single and vector."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces
from gymnasium.vector import VectorEnv, VectorWrapper

from paddleport.errors import PaddleportError, TrainingError
from train.environments.watchdog import Hung, watchdog

_RESET = "reset: a pair (observation, info)"
_STEP = "step: (observation, reward, terminated, truncated, info)"


class Guarded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose faults become messages, and whose observations have their space's own type and shape.

    Args:
        env: the environment.
        env_id: what to call it in messages.
        number: which one of several it is. One of several gives no info: nobody reads it in training, and Gymnasium
            fails to put infos of different kinds together.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: str, number: int | None = None) -> None:
        super().__init__(env)
        self._drops_info = number is not None
        self._label = label(env_id, number)
        self._space = env.observation_space
        watchdog.start()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset; TrainingError where the environment fails or hangs."""
        watchdog.begin(self._label)
        try:
            result = self.env.reset(seed=seed, options=options)
        except Hung:
            raise hung(self._label, "reset") from None
        except PaddleportError:
            raise  # it says what is wrong already
        except (Exception, SystemExit) as error:  # the environment is the user's, and may raise anything
            raise failed(self._label, "reset", error) from error
        finally:
            watchdog.end()
        if not (isinstance(result, tuple) and len(result) == 2):
            raise self._misshapen(_RESET, result)
        return self._in_space(self._space, result[0]), {} if self._drops_info else result[1]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401 - any environment's
        """Step; TrainingError where the environment fails or hangs."""
        watchdog.begin(self._label)
        try:
            result = self.env.step(action)
        except Hung:
            raise hung(self._label, "step") from None
        except PaddleportError:
            raise
        except (Exception, SystemExit) as error:  # as above
            raise failed(self._label, "step", error) from error
        finally:
            watchdog.end()
        try:
            obs, reward, terminated, truncated, info = result
            reward, terminated, truncated = float(reward), bool(terminated), bool(truncated)
        except (TypeError, ValueError):
            raise self._misshapen(_STEP, result) from None
        shown = self._in_space(self._space, obs)
        return shown, reward, terminated, truncated, {} if self._drops_info else info

    def render(self) -> Any:  # noqa: ANN401 - any environment's
        """Whatever it draws; TrainingError where it fails or hangs."""
        watchdog.begin(self._label)
        try:
            return self.env.render()
        except Hung:
            raise hung(self._label, "render") from None
        except PaddleportError:
            raise
        except Exception as error:  # as above
            raise failed(self._label, "render", error) from error
        finally:
            watchdog.end()

    def close(self) -> None:
        """Close; what goes wrong then no longer matters."""
        watchdog.begin(self._label)
        try:
            with contextlib.suppress(Hung, Exception):
                self.env.close()
        finally:
            watchdog.end()

    def _in_space(self, space: gymnasium.Space[Any], obs: Any) -> Any:  # noqa: ANN401 - as the space
        if isinstance(space, gym_spaces.Dict | gym_spaces.Tuple):
            return self._parts(space, obs)
        try:
            array = np.asarray(obs, dtype=space.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._strange(space, type(obs).__name__) from error
        if array.shape != space.shape:
            raise self._strange(space, f"shape {list(array.shape)}")
        if not isinstance(space, gym_spaces.Box) and not _is_choice_of(space, array):
            raise self._strange(space, f"{array.tolist()}")
        return array[()] if isinstance(space, gym_spaces.Discrete) else array  # Gymnasium's checker asks for a number

    def _parts(self, space: gym_spaces.Dict | gym_spaces.Tuple, obs: Any) -> Any:  # noqa: ANN401
        try:
            if isinstance(space, gym_spaces.Dict):
                return {name: self._in_space(part, obs[name]) for name, part in space.spaces.items()}
            return tuple(self._in_space(part, value) for part, value in zip(space.spaces, obs, strict=True))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            got = f"{type(obs).__name__} of {', '.join(map(str, obs))}" if isinstance(obs, dict) else type(obs).__name__
            raise self._strange(space, got) from error

    def _strange(self, space: gymnasium.Space[Any], got: str) -> TrainingError:
        numbers = f"numbers of type {space.dtype} and shape {list(space.shape or ())}"
        return TrainingError(
            f"The environment {self._label} showed an observation that is not of its observation space",
            expected=numbers if isinstance(space, gym_spaces.Box) else space,
            got=got,
        )

    def _misshapen(self, expected: str, result: object) -> TrainingError:
        where, _, values = expected.partition(": ")
        kinds = ", ".join(type(value).__name__ for value in result) if isinstance(result, tuple) else None
        return TrainingError(
            f"The environment {self._label} returned something else from {where}",
            expected=values,
            got=f"({kinds})" if kinds else type(result).__name__,
        )


class GuardedVector(VectorWrapper[Any, Any, Any, Any, Any]):
    """A vector environment that steps outside this process's Python, whose faults become messages.

    Args:
        envs: the vector environment.
        env_id: what to call it in messages.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], env_id: str) -> None:
        super().__init__(envs)
        self._id = env_id
        watchdog.start()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        """Reset all; TrainingError where one fails or hangs."""
        with self._guarded("reset"):
            obs, info = self.env.reset(seed=seed, options=options)
        return self._in_space(obs), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:  # noqa: ANN401 - any environment's
        """Step all; TrainingError where one fails or hangs."""
        space = self.env.action_space
        if isinstance(space, gym_spaces.Box | gym_spaces.MultiDiscrete):
            actions = np.asarray(actions, dtype=space.dtype)
        with self._guarded("step"):
            obs, rewards, terminated, truncated, info = self.env.step(actions)
        return self._in_space(obs), rewards, terminated, truncated, info

    def close(self, **kwargs: Any) -> None:  # noqa: ANN401 - Gymnasium's own
        """Close all; what goes wrong then no longer matters."""
        with contextlib.suppress(Exception):
            self.env.close(**kwargs)

    @contextlib.contextmanager
    def _guarded(self, where: str) -> Iterator[None]:
        watchdog.begin(label(self._id))
        try:
            yield
        except Hung:
            stuck = getattr(self.env, "stuck", None)  # worker processes can be told apart
            raise hung(label(self._id, stuck() if stuck else None), where) from None
        except PaddleportError:
            raise
        except (EOFError, ConnectionError) as error:
            raise TrainingError(
                f"A worker process of the environment {label(self._id)} ended in {where}",
                todo="Its own output may say why; the system ends processes that take too much memory",
            ) from error
        except (Exception, SystemExit) as error:  # the environment may raise anything
            raise failed(label(self._id), where, error) from error
        finally:
            watchdog.end()

    def _in_space(self, obs: Any) -> Any:  # noqa: ANN401
        space = self.env.observation_space
        single = isinstance(space, gym_spaces.Box | gym_spaces.MultiDiscrete)
        return np.asarray(obs, dtype=space.dtype) if single else obs


def _is_choice_of(space: Any, array: Any) -> bool:  # noqa: ANN401 - Discrete, MultiDiscrete or MultiBinary
    """Whether whole numbers lie in their space: what is one-hot later would be another choice, or none."""
    if isinstance(space, gym_spaces.Discrete):
        return bool(space.start <= array < space.start + space.n)
    if isinstance(space, gym_spaces.MultiDiscrete):
        return bool(((space.start <= array) & (array < space.start + space.nvec)).all())
    return bool(((array == 0) | (array == 1)).all()) if isinstance(space, gym_spaces.MultiBinary) else True


def label(env_id: str, number: int | None = None) -> str:
    """What to call an environment in messages."""
    return repr(env_id) if number is None else f"{env_id!r} (number {number})"


def failed(name: str, where: str, error: BaseException) -> TrainingError:
    """What to raise where an environment raised."""
    return TrainingError(f"The environment {name} failed in {where}", got=what_was_raised(error))


def hung(name: str, where: str) -> TrainingError:
    """What to raise where an environment did not return."""
    return TrainingError(
        f"The environment {name} did not return from {where} within {watchdog.limit:g} seconds",
        todo="If it is only slow, give it longer with --step-limit-seconds; "
        "--resume continues from the last checkpoint, if there is one",
    )


def what_was_raised(error: BaseException) -> str:
    """An exception in one line, with the place in the code that raised it."""
    places = [place for place in traceback.extract_tb(error.__traceback__) if not place.filename.startswith("<frozen")]
    said = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, SyntaxError) or not places:
        return said  # which names the file and the line itself
    return f"{said} ({places[-1].filename}:{places[-1].lineno})"
