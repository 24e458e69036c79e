"""What the numbers of an environment mean: said by the environment itself, or known of Gymnasium's own.

An environment says it by attributes, each a sequence with a word for every number, in order:

    observation_names = ("room", "outside", "hour")
    observation_units = ("°C", "°C", "h")
    action_names = ("heat",)            # of a Box: what each number is; of a Discrete: what each choice is
    action_units = ("kW",)              # of a Box

For a Dict of observations the first two are dictionaries, by part. Units may be left out; "" is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import msgspec

from paddleport.errors import UsageError
from paddleport.spaces import Box, DictSpace, Discrete, Space
from train.environments.classic import Adapted

_KNOWN: dict[str, dict[str, tuple[str, ...]]] = {
    "CartPole": {
        "observation_names": ("cart position", "cart velocity", "pole angle", "pole angular velocity"),
        "observation_units": ("m", "m/s", "rad", "rad/s"),
        "action_names": ("push left", "push right"),
    },
    "Acrobot": {
        "observation_names": (
            *("cos of joint 1", "sin of joint 1", "cos of joint 2", "sin of joint 2"),
            *("angular velocity of joint 1", "angular velocity of joint 2"),
        ),
        "observation_units": ("", "", "", "", "rad/s", "rad/s"),
        "action_names": ("torque -1", "no torque", "torque 1"),
    },
    "MountainCar": {
        "observation_names": ("position", "velocity"),
        "action_names": ("accelerate left", "coast", "accelerate right"),
    },
    "MountainCarContinuous": {"observation_names": ("position", "velocity"), "action_names": ("force",)},
    "Pendulum": {
        "observation_names": ("cos of angle", "sin of angle", "angular velocity"),
        "observation_units": ("", "", "rad/s"),
        "action_names": ("torque",),
        "action_units": ("N m",),
    },
    "LunarLander": {
        "observation_names": (
            *("x", "y", "x velocity", "y velocity", "angle", "angular velocity"),
            *("left leg touches", "right leg touches"),
        ),
        "action_names": ("nothing", "left engine", "main engine", "right engine"),
    },
}


def named(space: Space, env: gymnasium.Env[Any, Any], role: str) -> Space:
    """A space with the names and units that are known for it.

    Args:
        space: as the environment has it.
        env: the environment.
        role: `observation` or `action`.

    Raises:
        UsageError: the environment names more numbers than there are, or fewer, or in another form.
    """
    found = _said(env, role)
    names, units = found.get(f"{role}_names"), found.get(f"{role}_units")
    return space if names is None and units is None else _with(space, names, units, f"{role}_names")


def _said(env: gymnasium.Env[Any, Any], role: str) -> dict[str, Any]:
    attributes = (f"{role}_names", f"{role}_units")
    made = env.unwrapped
    if isinstance(made, Adapted):
        made = getattr(made.inner, "unwrapped", made.inner)
    own = {name: getattr(made, name) for name in attributes if hasattr(made, name)}
    spec = getattr(made, "spec", None)
    if own or not type(made).__module__.startswith(("gymnasium.", "gym.")) or spec is None:
        return own
    # A wrapper may have changed the observation: names of other numbers are worse than none.
    changed = made.observation_space.shape != env.observation_space.shape
    known = _KNOWN.get(spec.id.rpartition("/")[2].rpartition("-v")[0], {})
    return {} if role == "observation" and changed else known


def _with(space: Space, names: Any, units: Any, attribute: str) -> Space:  # noqa: ANN401 - what a user wrote
    if isinstance(space, DictSpace):
        for given in (names, units):
            if given is not None and not (isinstance(given, Mapping) and set(given) <= set(space.spaces)):
                raise _wrong(attribute, f"a dictionary by part, of {', '.join(space.spaces)}", given)
        return DictSpace(
            spaces={
                part: _with(inner, (names or {}).get(part), (units or {}).get(part), f"{attribute}[{part!r}]")
                for part, inner in space.spaces.items()
            }
        )
    if names is None and units is None:
        return space
    if isinstance(space, Box) and len(space.shape) == 1:
        words = _words(names, space.size, attribute)
        if len(set(words)) < len(words):
            raise _wrong(attribute, f"{space.size} different words", names)
        return msgspec.structs.replace(
            space, names=words, units=_words(units, space.size, attribute.replace("_names", "_units", 1))
        )
    if isinstance(space, Discrete) and units is None:
        return msgspec.structs.replace(space, names=_words(names, space.n, attribute))
    raise _wrong(attribute, "names for a vector or for a Discrete's choices, units for a vector", type(space).__name__)


def _words(given: Any, count: int, attribute: str) -> tuple[str, ...]:  # noqa: ANN401 - as above
    if given is None:
        return ()
    fits = isinstance(given, Sequence) and not isinstance(given, str) and len(given) == count
    if not fits or not all(isinstance(word, str) for word in given):
        raise _wrong(attribute, f"{count} words", given)
    return tuple(given)


def _wrong(attribute: str, expected: str, got: object) -> UsageError:
    return UsageError(f"The environment's {attribute} cannot be meant", expected=expected, got=got)
