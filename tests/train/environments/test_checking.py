import gymnasium
import numpy as np
import pytest

import environments
from paddleport.errors import PaddleportError
from train.command import parse
from train.command import run as train
from train.environments import check_environment


class Unseeded(environments.Counter):
    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.random.default_rng().normal(size=1).astype(np.float32), {}


class Bare(environments.Counter):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class Four(environments.Counter):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class OutOfBounds(environments.Counter):
    observation_space = gymnasium.spaces.Box(5.0, 6.0, (1,), np.float32)


class Choices(environments.Counter):
    """Choices among its parts, as Python's own integers."""

    observation_space = gymnasium.spaces.Dict(
        {"goal": gymnasium.spaces.Discrete(2), "place": gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return {"goal": 1, "place": np.zeros(1, np.float32)}, {}

    def step(self, action):
        _, *rest = super().step(action)
        return {"goal": 0, "place": np.zeros(1, np.float32)}, *rest


for checked in (Unseeded, Bare, Four, OutOfBounds, Choices):
    gymnasium.register(f"Checked{checked.__name__}-v0", entry_point=checked)


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Terminates-v0", "Target-v0", "Lists-v0", "gym:CartPole-v1", "CheckedChoices-v0"]
)
def test_a_good_environment_is_passed_in_silence(env_id, capfd):
    check_environment(env_id)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("CheckedUnseeded-v0", "super().reset(seed=seed)"),
        ("CheckedOutOfBounds-v0", "not within the observation space"),
        ("Doubles-v0", "its observations are float64 where its space says float32"),
    ],
)
def test_what_is_only_doubtful_is_a_line_on_stderr(env_id, words, capfd):
    check_environment(env_id)
    lines = capfd.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith(f"paddleport: the environment '{env_id}': ") for line in lines)
    assert any(words in line for line in lines)
    assert not any("Warning" in line or "\x1b" in line for line in lines)


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("CheckedBare-v0", "returned something else from reset: expected a pair (observation, info), got ndarray"),
        (
            "CheckedFour-v0",
            "expected (observation, reward, terminated, truncated, info), got (ndarray, float, bool, dict)",
        ),
        ("Breaks-step-v0", "failed in step: got RuntimeError: no sensor here"),
    ],
)
def test_what_cannot_be_trained_in_is_refused_before_the_folder_is_touched(env_id, words, tmp_path):
    with pytest.raises(PaddleportError) as raised:
        train(parse(["--env", env_id, "--run-dir", str(tmp_path / "run")]))
    assert words in str(raised.value)
    assert not (tmp_path / "run").exists()
