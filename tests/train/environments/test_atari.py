import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

from train.environments import describe_environment, make_environment, make_vector

BREAKOUT = "BreakoutNoFrameskip-v4"


def test_a_game_is_described_with_its_preprocessing():
    info, observation_space, action_space = describe_environment("ALE/Pong-v5")
    assert info.max_episode_steps == 27_000
    assert {"frame_skip=4", "max_pool=2", "grayscale", "resize=84x84", "frame_stack=4", "noop_max=30"} <= {
        *info.preprocessing
    }
    assert (observation_space.shape, observation_space.dtype) == ((4, 84, 84), "uint8")
    assert action_space.n == 6


def test_evaluation_shows_what_training_shows_and_neither_clips_nor_ends_with_a_life():
    envs, env = make_vector(BREAKOUT, 2), make_environment(BREAKOUT)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert "autoreset_mode" not in VectorEnv.metadata
    rng = np.random.default_rng(0)
    assert np.array_equal(envs.reset(seed=10)[0][1], env.reset(seed=11)[0])
    lives = 0
    for _ in range(250):
        actions = rng.integers(0, 4, 2)
        rows, row = envs.step(actions), env.step(int(actions[1]))
        assert np.array_equal(rows[0][1], row[0])
        assert rows[1][1] == np.sign(row[1])
        lives += rows[2][1] and not row[2]  # a life lost is an end to the learner alone
    assert lives >= 1


def test_the_stack_begins_with_zeros_and_moves_by_one_frame():
    env = make_environment(BREAKOUT)
    first, _ = env.reset(seed=0)
    assert [bool(frame.any()) for frame in first] == [False, False, False, True]
    second, *_ = env.step(2)
    assert np.array_equal(second[:3], first[1:])


@pytest.mark.parametrize("seed", [3, 2**32 - 1])
def test_a_seed_repeats_a_game_with_sticky_actions_and_resets(seed):
    def rolled():
        envs, rng = make_vector("ALE/Breakout-v5", 2), np.random.default_rng(0)
        shown = [envs.reset(seed=seed)[0]]
        shown += [envs.step(rng.integers(0, 4, 2))[0].copy() for _ in range(300)]
        return np.array(shown)

    assert np.array_equal(rolled(), rolled())
