"""Exact resume after SIGKILL where more than a vector of numbers has to come back: frames, parts, scales, processes."""

import contextlib
import random
import signal

import pytest

import environments  # noqa: F401 - registers the environments
from paddleport.checkpoint import Run
from resuming import LAUNCH, final_bytes, kill_when_logged
from train.command import parse
from train.command import run as train
from train.environments import describe_environment, make_vector
from train.task import Task

COMMON = ("--seed", "5", "--evaluation-episodes", "1", "--hidden-sizes", "16")
SETTINGS = {
    "dqn, stacked frames, past the ring's wrap": (
        *("--algo", "dqn", "--env", "environments:Stacked-v0", "--num-envs", "2", "--replay-capacity", "300"),
        *("--learning-starts", "100", "--train-every", "32", "--gradient-steps", "2", "--batch-size", "16"),
        *("--prioritized", "--n-steps", "2", "--total-steps", "1000", "--checkpoint-every", "250"),
    ),
    "ppo, parts and scaled rewards": (
        *("--env", "environments:Cue-dict-v0", "--normalize-reward", "--num-envs", "4", "--n-steps", "16"),
        *("--batch-size", "32", "--epochs", "2", "--total-steps", "2000", "--checkpoint-every", "400"),
    ),
    "ppo, environments in processes": (
        *("--env", "CartPole-v1", "--vector", "async", "--num-envs", "2", "--n-steps", "32", "--batch-size", "32"),
        *("--epochs", "2", "--total-steps", "1500", "--checkpoint-every", "300"),
    ),
}
CASES = [
    pytest.param(name, engine, marks=() if engine == "compiled" else pytest.mark.slow)
    for name in SETTINGS
    for engine in ("compiled", "eager")
]


@pytest.mark.parametrize(("name", "engine"), CASES)
def test_a_run_killed_at_a_random_moment_ends_with_the_same_bytes(name, engine, tmp_path):
    through, folder = tmp_path / "through", tmp_path / "run"
    options = [*SETTINGS[name], *COMMON, "--engine", engine]
    finished = train(parse([*options, "--run-dir", str(through)]))
    moment = random.randrange(1, finished.step)
    killed = [*LAUNCH, "train", *options, "--run-dir", str(folder)]
    kill_when_logged(killed, folder, moment, signal.SIGKILL)
    train(parse([*options, "--run-dir", str(folder), "--resume"]))
    assert final_bytes(folder) == final_bytes(through), f"killed at {moment}"
    assert Run(folder).steps() == Run(through).steps()


def test_the_frames_of_a_stack_are_stored_once():
    """Else what the test above resumes would be no stack."""
    info, *spaces = describe_environment("environments:Stacked-v0")
    assert info.preprocessing == ("frame_stack=3",)
    with contextlib.closing(make_vector("environments:Stacked-v0", 1)) as envs:
        assert Task(envs, *spaces, info.preprocessing).stacks() == {"obs": 3}
