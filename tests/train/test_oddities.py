"""What environments and options do now and then, and what training makes of it."""

import sys

import msgspec
import numpy as np
import pytest

import environments  # noqa: F401 - registers the environments
from paddleport.checkpoint import Run
from paddleport.errors import ArtifactError, TrainingError, UsageError
from paddleport.spaces import Box
from train import configuration
from train.checkpointing import write_checkpoint
from train.command import parse
from train.command import run as train
from train.encoding import Encoder
from train.environments import describe_environment, make_environment, make_vector
from train.episodes import Stopped, play
from train.evaluate_command import Options as EvaluateOptions
from train.evaluate_command import run as evaluate
from train.stepping import Stepper

FEW = ("--total-steps", "300", "--n-steps", "16", "--batch-size", "64", "--evaluation-episodes", "1", "--num-envs", "4")


def test_a_vector_form_that_reuses_its_arrays_is_learnt_from_as_any_other(tmp_path):
    options = ("--total-steps", "3000", "--n-steps", "32", "--batch-size", "64", "--learning-rate", "1e-3")
    result = train(parse(["--env", "Reused-v0", "--vector", "own", *options, "--run-dir", str(tmp_path / "run")]))
    assert result.evaluation.mean > 3.9  # 2 is chance
    assert 3000 <= result.step < 3700


def test_ends_that_are_integers_are_told_from_transitions():
    _, space, _ = describe_environment("Reused-v0")
    stepper = Stepper(make_vector("Reused-v0", 2, "own"), space)
    stepper.reset(seed=0)
    steps = [stepper.take(np.zeros(2, np.int64) - 1) for _ in range(10)]
    assert [step.valid[0] for step in steps] == [True] * 4 + [False] + [True] * 4 + [False]
    assert stepper.step == 16


def test_an_environment_that_exits_is_an_error():
    with pytest.raises(TrainingError, match="SystemExit"):
        play(lambda obs: [0] * len(obs["obs.mode"]), "Odd-exits-v0", 1, seed=0)


def test_infos_of_different_kinds_harm_nobody(tmp_path):
    assert train(parse(["--env", "Odd-infos-v0", *FEW, "--run-dir", str(tmp_path / "run")])).finished


def test_a_choice_outside_its_space_is_an_error():
    env = make_environment("Odd-mode-v0")
    env.reset(seed=0)
    with pytest.raises(TrainingError, match=r"not of its observation space.*got -1"):
        for _ in range(10):
            env.step(0)


def test_a_stop_does_not_wait_for_an_evaluation():
    asked = iter([False, False, True])
    with pytest.raises(Stopped):
        play(lambda obs: [0] * len(obs["obs"]), "Forever-v0", 1, seed=0, stop=lambda: next(asked))


@pytest.mark.parametrize("env_id", ["NanObs-v0", "NanReward-v0"])
def test_what_is_not_finite_in_an_evaluation_names_itself(env_id):
    with pytest.raises(TrainingError, match=r"(observation|reward).* is not finite"):
        play(lambda obs: [0] * len(obs["obs"]), env_id, 1, seed=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--algo", "dqn", "--replay-capacity", "32"), "--replay-capacity is out of range"),
        (("--algo", "dqn", "--learning-starts", "60000"), "--learning-starts is out of range: expected under"),
        (("--keep-checkpoints", "1"), "expected 0, or 2 or more"),
    ],
)
def test_options_that_could_never_work_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        configuration.check(parse([*options, "--run-dir", "nowhere"]))


def test_tanh_is_for_box_actions(tmp_path):
    with pytest.raises(UsageError, match="Box actions"):
        train(parse(["--squash", "--run-dir", str(tmp_path / "run")]))


def test_an_offset_that_float32_loses_is_said_once(capsys):
    encoder = Encoder(Box(shape=(2,), dtype="float64", low=None, high=None), normalize=True)
    rows = np.random.default_rng(0).normal(size=(64, 2)) + np.array([0.0, 1e9])
    for _ in range(2):
        encoder.observe([{"obs": rows}])
    assert capsys.readouterr().err.count("float32 cannot tell") == 1
    near = Encoder(Box(shape=(2,), dtype="float64", low=None, high=None), normalize=True)
    near.observe([{"obs": rows - np.array([0.0, 1e9 - 100])}])
    assert capsys.readouterr().err == ""


def test_weights_that_are_no_numbers_are_not_kept(tmp_path):
    # Infinite in float32: the first update's loss is a number, and the weights behind it are none.
    options = ("--algo", "a2c", "--learning-rate", "1e39", "--checkpoint-every", "1", "--n-steps", "64")
    with pytest.raises(TrainingError, match="weights are not finite any more"):
        train(parse([*options, "--evaluation-episodes", "1", "--run-dir", str(tmp_path / "run")]))
    assert Run(tmp_path / "run").steps() == []


def test_a_checkpoint_that_lacks_what_training_needs_is_one_message(tmp_path):
    options = [
        "--algo",
        "a2c",
        "--total-steps",
        "300",
        "--evaluation-episodes",
        "1",
        "--run-dir",
        str(tmp_path / "run"),
    ]
    train(parse(options))
    whole = Run(tmp_path / "run").checkpoint("last")
    state = msgspec.structs.replace(whole.state, step=whole.state.step + 1, counters={}, files={})
    write_checkpoint(tmp_path / "run", state, whole.policy_tensors(), whole.optimizer_tensors())
    with pytest.raises(ArtifactError, match=r"does not hold what this training needs: got KeyError: 'updates'"):
        train(parse(["--run-dir", str(tmp_path / "run"), "--resume"]))


def test_a_run_is_played_where_its_config_says_or_not_at_all(tmp_path):
    from runs import untrained_run

    run = tmp_path / "run"
    untrained_run(run)
    (run / "config.yaml").write_text("algo: ppo\nenv: Acrobot-v1\nseed: 0\n")
    with pytest.raises(ArtifactError, match=r"expected Acrobot-v1, got CartPole-v1"):
        evaluate(EvaluateOptions(path=str(run), episodes=1))


def test_what_a_users_file_lacks_is_named(tmp_path, monkeypatch):
    (tmp_path / "lacking.py").write_text("import no_such_library\n")
    (tmp_path / "broken.py").write_text("def :\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"No module named 'no_such_library' \(.*lacking.py:1\)"):
        make_environment("lacking.py:Any")
    with pytest.raises(UsageError, match=r"SyntaxError: .*broken.py, line 1"):
        make_environment("broken.py:Any")
    assert "environment_lacking" not in " ".join(sys.modules)
