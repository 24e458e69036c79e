import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import environments
from paddleport.errors import UsageError
from train.environments import describe_environment, make_vector


def rolled(envs, steps=60, seed=0):
    """Observations, ends of a vector environment under fixed actions."""
    rng = np.random.default_rng(1)
    seen = [envs.reset(seed=seed)[0].copy()]
    seen += [envs.step(rng.integers(0, 2, envs.num_envs))[0].copy() for _ in range(steps)]
    envs.close()
    return np.array(seen)


@pytest.mark.parametrize("kind", ["auto", "sync", "async", "own"])
def test_every_kind_resets_at_the_next_step_and_repeats_itself(kind):
    assert make_vector("CartPole-v1", 1, "sync").metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    first, second = make_vector("CartPole-v1", 2, kind), make_vector("CartPole-v1", 2, kind)
    assert first.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert np.array_equal(rolled(first), rolled(second))


def test_processes_show_what_this_process_shows():
    assert np.array_equal(rolled(make_vector("CartPole-v1", 2, "sync")), rolled(make_vector("CartPole-v1", 2, "async")))


def test_cartpoles_own_vector_form_has_other_episodes():
    """Which is why auto does not take it; the physics are the same (its reset draws for all environments at once)."""
    sync, own = make_vector("CartPole-v1", 2, "sync"), make_vector("CartPole-v1", 2, "own")
    assert not np.array_equal(sync.reset(seed=5)[0], own.reset(seed=5)[0])
    own.unwrapped.state = np.array([env.unwrapped.state for env in sync.envs], dtype=np.float64).T
    for action in ([0, 1], [1, 1], [1, 0], [0, 0]):
        assert np.array_equal(sync.step(np.array(action))[0], own.step(np.array(action))[0])


def test_an_own_vector_form_truncates_and_starts_anew():
    envs = make_vector("CartPole-v1", 4, "own")
    obs, _ = envs.reset(seed=0)
    age, resetting = np.zeros(4, int), np.zeros(4, bool)
    for _ in range(1100):
        actions = (obs @ np.array([0.3, 0.5, 3.0, 1.0]) > 0).astype(np.int64)  # balances for ever
        obs, rewards, terminated, truncated, _ = envs.step(actions)
        age = np.where(resetting, 0, age + 1)
        assert not terminated.any()
        assert (truncated == (age == 500)).all()
        assert (rewards == ~resetting).all()
        assert (np.abs(obs[resetting]) <= 0.05).all()
        resetting = truncated


def test_same_step_autoreset_gives_the_last_observation_apart():
    envs = environments.same_step("Terminates-v0", 1)
    envs.reset(seed=0)
    rows = [envs.step(np.array([0])) for _ in range(3)]
    assert rows[-1][0].tolist() == [[0.0]]
    assert rows[-1][2].tolist() == [True]
    assert rows[-1][4]["final_obs"][0].tolist() == [3.0]


def test_preprocessing_by_wrappers_is_described_in_its_order():
    wrappers = gymnasium.wrappers
    gymnasium.register("Wrapped-v0", entry_point=lambda: wrappers.FrameStackObservation(_coloured(), 4))
    assert describe_environment("Wrapped-v0")[0].preprocessing == ("grayscale", "frame_stack=4")


def _coloured():
    env = environments.Counter()
    env.observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    return gymnasium.wrappers.GrayscaleObservation(env)


@pytest.mark.parametrize(
    ("env_id", "kind", "words"),
    [
        ("Pendulum-v1", "own", "no vector form of its own"),
        ("CartPol-v1", "own", "Did you mean CartPole-v1"),
        ("ALE/Pong-v5", "sync", "ale-py's own vector environment"),
    ],
)
def test_a_kind_that_an_environment_lacks_is_refused(env_id, kind, words):
    with pytest.raises(UsageError) as raised:
        make_vector(env_id, 2, kind)
    assert words in str(raised.value)
