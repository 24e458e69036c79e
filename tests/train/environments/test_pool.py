"""EnvPool is an optional extra of 750 MB that the developer's environment leaves out: these tests run where it is."""

import importlib.util

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from paddleport.errors import MissingExtraError, UsageError
from train.environments import make_vector

installed = importlib.util.find_spec("envpool") is not None
with_envpool = pytest.mark.skipif(not installed, reason="EnvPool is an optional extra")


@pytest.mark.skipif(installed, reason="EnvPool is installed")
def test_a_missing_envpool_names_the_extra():
    with pytest.raises(MissingExtraError, match=r"\.\[envpool\]"):
        make_vector("CartPole-v1", 2, "envpool")


@with_envpool
def test_a_pool_resets_at_the_next_step_and_repeats_itself():
    envs = make_vector("CartPole-v1", 2, "envpool")
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP

    def rolled(seed):
        shown = [envs.reset(seed=seed)[0]]
        resetting = np.zeros(2, bool)
        for _ in range(60):
            obs, rewards, terminated, truncated, _ = envs.step(np.array([0, 1]))
            assert (rewards == ~resetting).all()
            assert (np.abs(obs[resetting]) <= 0.05).all()
            resetting = terminated | truncated
            shown.append(obs)
        return np.array(shown)

    assert np.array_equal(rolled(2**32 - 1), rolled(2**32 - 1))
    assert not np.array_equal(rolled(1), rolled(2))


@with_envpool
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "FrozenLake-v1", "Acrobot-v1"])
def test_a_pool_shows_what_the_space_says(env_id):
    envs = make_vector(env_id, 3, "envpool")
    obs, _ = envs.reset(seed=0)
    envs.action_space.seed(0)
    for _ in range(5):
        assert (obs.shape, obs.dtype) == (envs.observation_space.shape, envs.observation_space.dtype)
        obs, *_ = envs.step(envs.action_space.sample())


@with_envpool
def test_what_envpool_lacks_is_refused():
    with pytest.raises(UsageError, match="EnvPool has no environment gym:CartPole-v1"):
        make_vector("gym:CartPole-v1", 2, "envpool")
