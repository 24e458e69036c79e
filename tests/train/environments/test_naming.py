"""What numbers mean, from the environment into the contract's spaces."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gym_spaces

from paddleport.errors import UsageError
from paddleport.spaces import Box, DictSpace, Discrete
from train.environments import describe_environment
from train.environments.describing import describe_space
from train.environments.naming import named


class Room(gymnasium.Env):
    def __init__(self, observation_space, action_space, **said):
        self.observation_space, self.action_space = observation_space, action_space
        for name, value in said.items():
            setattr(self, name, value)


def vector(size):
    return gym_spaces.Box(-1, 1, (size,), np.float32)


def observed(space, **said):
    env = Room(space, gym_spaces.Discrete(2), **said)
    return named(describe_space(space), env, "observation")


def test_a_vector_is_named_with_units():
    space = observed(vector(2), observation_names=["room", "hour"], observation_units=["°C", "h"])
    assert (space.names, space.units) == (("room", "hour"), ("°C", "h"))
    assert observed(vector(2), observation_names=("a", "b")).units == ()
    assert observed(vector(2)) == describe_space(vector(2))


def test_the_parts_of_a_dict_are_named_each():
    parts = gym_spaces.Dict({"goal": gym_spaces.Discrete(2), "speed": vector(2)})
    space = observed(
        parts,
        observation_names={"goal": ["near", "far"], "speed": ["x", "y"]},
        observation_units={"speed": ["m/s", "m/s"]},
    )
    assert isinstance(space, DictSpace)
    assert space.spaces["goal"].names == ("near", "far")
    assert (space.spaces["speed"].names, space.spaces["speed"].units) == (("x", "y"), ("m/s", "m/s"))


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (vector(2), ["one"]),
        (vector(2), ["one", "two", "three"]),
        (vector(2), "ab"),
        (vector(2), ["same", "same"]),
        (vector(2), [1, 2]),
        (vector(2), 7),
        (gym_spaces.Box(0, 1, (2, 2), np.float32), ["a", "b", "c", "d"]),
        (gym_spaces.Dict({"x": vector(1)}), ["a"]),
        (gym_spaces.Dict({"x": vector(1)}), {"y": ["a"]}),
    ],
)
def test_names_that_do_not_fit_are_refused(space, names):
    with pytest.raises(UsageError, match=r"observation_names.* cannot be meant: expected"):
        observed(space, observation_names=names)


def test_gymnasium_s_own_environments_are_known():
    _, observation, action = describe_environment("CartPole-v1")
    assert isinstance(observation, Box)
    assert observation.names[2] == "pole angle"
    assert observation.units == ("m", "m/s", "rad", "rad/s")
    assert isinstance(action, Discrete)
    assert action.names == ("push left", "push right")


@pytest.mark.parametrize(
    "env_id",
    ["CartPole-v0", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "LunarLander-v3",
     "LunarLanderContinuous-v3"],
)  # fmt: skip
def test_what_is_known_fits_the_environments(env_id):
    try:
        _, observation, action = describe_environment(env_id)
    except UsageError as error:
        assert "LunarLanderContinuous" in env_id, error  # Gymnasium has it no longer
        return
    assert isinstance(observation, Box)
    assert len(observation.names) in (0, observation.size)
    assert action is not None


def test_a_user_s_environment_of_a_known_name_is_not_taken_for_it():
    env = Room(vector(4), gym_spaces.Discrete(2))
    env.spec = gymnasium.spec("CartPole-v1")
    assert named(describe_space(env.observation_space), env, "observation").names == ()


def test_a_class_without_a_base_names_its_numbers_too(tmp_path):
    path = tmp_path / "room.py"
    path.write_text(
        "import numpy as np\n"
        "from gymnasium import spaces\n"
        "class Room:\n"
        "    observation_space = spaces.Box(-1, 1, (2,), np.float32)\n"
        "    action_space = spaces.Discrete(2)\n"
        "    observation_names = ('room', 'hour')\n"
        "    def reset(self, seed=None):\n"
        "        return np.zeros(2, np.float32)\n"
        "    def step(self, action):\n"
        "        return np.zeros(2, np.float32), 0.0, False, {}\n"
    )
    assert describe_environment(f"{path}:Room")[1].names == ("room", "hour")
