import numpy as np
import pytest

import environments  # noqa: F401 - registers the environments
from paddleport.errors import PaddleportError, TrainingError, UsageError
from runs import untrained_run
from train.command import parse
from train.command import run as train
from train.environments import make_environment, make_vector
from train.episodes import play
from train.evaluate_command import Options as EvaluateOptions
from train.evaluate_command import run as evaluate


@pytest.mark.parametrize("env_id", ["Lists-v0", "Doubles-v0"])
def test_observations_come_in_their_spaces_own_type(env_id):
    obs, _ = make_environment(env_id).reset(seed=0)
    assert (obs.dtype, obs.shape) == (np.float32, (1,))
    played = play(lambda obs: [0] * len(obs["obs"]), env_id, 2, seed=0, keep=10)
    assert played.observations["obs"].dtype == np.float32


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("init", "cannot be made: got RuntimeError: no sensor here"),
        ("reset", "failed in reset: got RuntimeError: no sensor here"),
        ("step", "failed in step: got RuntimeError: no sensor here"),
        ("shape", "expected numbers of type float32 and shape [1], got shape [3]"),
    ],
)
def test_a_fault_of_the_environment_is_a_message_that_says_where(tmp_path, where, words):
    with pytest.raises(PaddleportError) as raised:
        train(parse(["--env", f"Breaks-{where}-v0", "--total-steps", "100", "--run-dir", str(tmp_path / "run")]))
    assert words in str(raised.value)
    assert where == "shape" or "environments.py:" in str(raised.value)


@pytest.mark.parametrize("env_id", [":", "a:b:c", "", "Cart-v1", "no_such_module:X-v0"])
def test_an_id_that_names_nothing_is_refused(env_id):
    with pytest.raises(UsageError, match="environment"):
        make_environment(env_id)


def test_a_policy_is_not_played_in_an_environment_that_it_does_not_fit(tmp_path):
    untrained_run(tmp_path / "run")
    with pytest.raises(UsageError, match=r"does not fit Pendulum-v1: other observations"):
        evaluate(EvaluateOptions(path=str(tmp_path / "run"), env="Pendulum-v1", episodes=2))


def test_vector_environments_ignore_the_step_after_an_end():
    envs = make_vector("Terminates-v0", 1)
    envs.reset(seed=0)
    shown = [envs.step(np.array([0]))[0][0, 0] for _ in range(5)]
    assert shown == [1, 2, 3, 0, 1]


def test_an_environment_that_fails_is_a_training_error():
    with pytest.raises(TrainingError):
        make_environment("Breaks-reset-v0").reset()


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("CartPol-v1", "Did you mean CartPole-v1"),
        ("train:Mine-v0", "the name of one of Paddleport's own packages"),
        ("no_such_module:X-v0", "from the folder that holds no_such_module.py"),
    ],
)
def test_a_wrong_id_gets_the_hint_that_helps(env_id, words):
    with pytest.raises(UsageError) as raised:
        make_environment(env_id)
    assert words in str(raised.value)


def test_a_module_that_exits_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "leaving.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="SystemExit"):
        make_environment("leaving:X-v0")
