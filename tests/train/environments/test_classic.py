import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import environments
from paddleport.errors import TrainingError, UsageError
from train.environments import describe_environment, make_environment, make_vector
from train.environments.classic import Adapted, gymnasium_space

OLD = f"{environments.__file__}:Old"


def test_gyms_cartpole_is_gymnasiums():
    theirs, ours = make_environment("gym:CartPole-v1"), make_environment("CartPole-v1")
    seen = [[env.reset(seed=3)[0], *(env.step(action)[0] for action in (0, 1, 1, 1, 0))] for env in (theirs, ours)]
    assert np.array_equal(seen[0], seen[1])
    assert describe_environment("gym:CartPole-v1")[0].max_episode_steps == 500
    assert describe_environment("gym:CartPole-v1")[1:] == describe_environment("CartPole-v1")[1:]


def test_gym_truncates_at_its_time_limit():
    env = make_environment("gym:MountainCar-v0")
    env.reset(seed=0)
    ends = [env.step(1)[2:4] for _ in range(200)]
    assert ends[-2:] == [(False, False), (False, True)]


def test_an_id_that_gymnasium_lacks_is_asked_of_gym():
    import gym

    gym.register("OnlyInGym-v0", entry_point="gym.envs.classic_control:PendulumEnv")
    assert make_environment("OnlyInGym-v0").reset(seed=0)[0].shape == (3,)


def test_gym_says_nothing_when_it_is_imported():
    code = "from train.environments import make_environment; make_environment('gym:CartPole-v1').reset(seed=0)"
    done = subprocess.run([sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("end", "expected"), [("terminated", (True, False)), ("truncated", (False, True))])
def test_four_values_become_five(end, expected):
    env = Adapted(environments.Old(end), "old")
    assert env.reset(seed=7) == (np.array([7.0]), {})
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), expected]


def test_environments_of_the_old_shape_step_together():
    envs = make_vector(OLD, 2)
    assert envs.reset(seed=5)[0][:, 0].tolist() == [5, 6]
    assert [envs.step(np.array([0, 0]))[0][0, 0] for _ in range(5)] == [6, 7, 8, 5, 6]


def test_a_step_of_three_values_is_refused():
    old = environments.Old()
    old.step = lambda action: (np.zeros(1), 0.0, False)
    env = Adapted(old, "old")
    env.reset()
    with pytest.raises(TrainingError, match="got 3 values"):
        env.step(0)


def test_spaces_of_gym_become_gymnasiums():
    from gym import spaces as theirs

    low, high = np.array([-1.0, 0.0], np.float32), np.array([1.0, np.inf], np.float32)
    ours = gymnasium.spaces
    pairs = [
        (theirs.Box(low, high), ours.Box(low, high)),
        (theirs.Box(0, 255, (4, 4, 3), np.uint8), ours.Box(0, 255, (4, 4, 3), np.uint8)),
        (theirs.Discrete(3, start=2), ours.Discrete(3, start=2)),
        (theirs.MultiDiscrete([2, 3]), ours.MultiDiscrete([2, 3])),
        (theirs.MultiBinary(4), ours.MultiBinary(4)),
        (theirs.Dict({"a": theirs.Discrete(2)}), ours.Dict({"a": ours.Discrete(2)})),
        (theirs.Tuple([theirs.Discrete(2)]), ours.Tuple([ours.Discrete(2)])),
    ]
    assert [gymnasium_space(space, "x") for space, _ in pairs] == [space for _, space in pairs]
    with pytest.raises(UsageError, match="a space of an unknown kind"):
        gymnasium_space(object(), "x")
