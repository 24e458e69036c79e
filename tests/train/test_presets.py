"""Whole trainings by their presets, judged on 100 episodes that chose nothing: minutes each, in `make test-slow`."""

import pytest

from train.command import parse
from train.command import run as train
from train.evaluate_command import Options
from train.evaluate_command import run as evaluate

SEEDS = (0, 1, 2)


def mean_return(tmp_path, algo, env, seed):
    """Of the best checkpoint, on other episodes than those that chose it."""
    folder = str(tmp_path / "run")
    train(parse(["--algo", algo, "--env", env, "--seed", str(seed), "--run-dir", folder]))
    return evaluate(Options(path=folder, episodes=100)).mean


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algo", ["ppo", "a2c", "dqn"])
def test_cartpole_is_solved(tmp_path, algo, seed):
    assert mean_return(tmp_path, algo, "CartPole-v1", seed) >= 475


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_pendulum_swings_up(tmp_path, algo, seed):
    assert mean_return(tmp_path, algo, "Pendulum-v1", seed) >= -200
