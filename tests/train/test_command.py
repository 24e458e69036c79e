import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import environments  # noqa: F401 - registers the environments
from paddleport.checkpoint import Run
from paddleport.errors import UsageError
from train import configuration
from train.command import parse
from train.command import run as train
from train.config import PPOConfig, RunOptions, TrainConfig
from train.evaluate_command import Options as EvaluateOptions
from train.evaluate_command import run as evaluate
from train.network import network_of, run_network

QUICK = ("--total-steps", "600", "--evaluation-episodes", "2", "--epochs", "2")

FOLDER = Path(configuration.__file__).parent / "presets"
PRESETS = {path.stem: yaml.safe_load(path.read_text()) for path in FOLDER.glob("*.yaml")}


def paddleport(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "paddleport", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    done = paddleport("train", *QUICK, "--run-dir", folder, "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_a_run_holds_what_the_later_stages_read(trained):
    folder, report = trained
    assert report["finished"]
    assert report["step"] >= 600
    state = Run(folder).checkpoint("last").state
    assert state.step == report["step"]
    assert state.environment.id == "CartPole-v1"
    assert state.network.normalize_obs
    assert (folder / "logs").is_dir()
    assert yaml.safe_load((folder / "config.yaml").read_text())["learning_rate"] == 1e-3
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    named = {"policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance"}
    assert named <= rows[0].keys()


def test_the_trainers_policy_is_the_networks(trained):
    folder, _ = trained
    made = network_of(Run(folder).checkpoint("last"))
    assert "obs_mean" in Run(folder).checkpoint("last").policy_tensors()
    outputs = run_network(made, {"obs": np.zeros((3, 4), dtype=np.float32)})
    assert set(outputs) == {"action", "logits", "value"}


def test_evaluate_gives_the_figures_that_are_promised(trained):
    folder, _ = trained
    done = paddleport("evaluate", folder, "--episodes", "3", "--seed", "7", "--json", "--checkpoint", "last")
    figures = json.loads(done.stdout)
    assert {"mean", "std", "min", "max", "episodes"} <= figures.keys()
    assert figures["episodes"] == 3
    assert figures["min"] <= figures["mean"] <= figures["max"]


def test_a_run_directory_that_is_not_empty_is_left_as_it_is(trained):
    folder, _ = trained
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = paddleport("train", *QUICK, "--run-dir", folder)
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert "--resume" in done.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_resuming_with_other_options_names_them(trained):
    folder, _ = trained
    done = paddleport("train", *QUICK, "--run-dir", folder, "--resume", "--gamma", "0.5")
    assert done.returncode == 2
    assert "gamma 0.98 → 0.5" in done.stderr


def test_resuming_a_finished_run_says_so_and_changes_no_checkpoint(trained):
    folder, _ = trained
    before = Run(folder).checkpoint("last").sha256
    done = paddleport("train", "--run-dir", folder, "--resume")
    assert done.returncode == 0
    assert "finished at step" in done.stderr
    assert Run(folder).checkpoint("last").sha256 == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--algo", "ppq"), 2, "expected one of ppo"),
        (("--env", "CartPol-v1"), 2, "Did you mean CartPole-v1"),
        (("--env", "no_such_module:X-v0"), 2, "no_such_module"),
        (("--learning-rat", "1"), 2, "--learning-rate"),
        (("--gamma", "1.5"), 2, "--gamma is out of range: expected 0 … 1, got 1.5"),
        (("--total-steps", "many"), 2, "many"),
        (("--batch-size", "100000"), 2, "--batch-size is out of range"),
        (("--device", "gpu"), 2, "--device gpu needs a GPU"),
    ],
)
def test_bad_options_get_one_message_and_leave_no_folder(tmp_path, arguments, code, words):
    done = paddleport("train", *arguments, "--run-dir", tmp_path / "run")
    assert done.returncode == code
    assert words in " ".join(done.stderr.replace("│", " ").split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nothing-here",), 1, "expected a run directory"),
        (("nothing-here", "--episodes", "0"), 2, "--episodes is out of range"),
    ],
)
def test_evaluating_what_is_not_there_is_refused(arguments, code, words):
    done = paddleport("evaluate", *arguments)
    assert done.returncode == code
    assert words in done.stderr


def test_a_run_that_never_wrote_a_checkpoint_is_named(tmp_path):
    config = TrainConfig(RunOptions(), PPOConfig())
    configuration.save(config, "id", tmp_path / "config.yaml")
    done = paddleport("evaluate", tmp_path)
    assert done.returncode == 1
    assert "has no checkpoint yet" in done.stderr


def test_help_explains_every_option():
    done = paddleport("train", "--help")
    assert done.returncode == 0
    for words in ("--gae-lambda", "generalised advantage estimation", "--engine", "one compiled program"):
        assert words in " ".join(done.stdout.replace("│", " ").split())


def test_defaults_come_from_the_environments_preset():
    assert parse(["--env", "CartPole-v1"]).algorithm.gae_lambda == 0.8
    assert parse(["--env", "Pendulum-v1"]).algorithm.gae_lambda == 0.95
    assert parse(["--env", "CartPole-v1", "--gae-lambda", "0.5"]).algorithm.gae_lambda == 0.5


@pytest.mark.parametrize(("algo", "env"), [(algo, env) for env in PRESETS for algo in PRESETS[env]])
def test_every_preset_holds_known_options_in_their_ranges(algo, env):
    chosen = configuration.preset(algo, "ALE/Pong-v5" if env == "Atari" else env)
    configuration.check(chosen)
    for name, value in PRESETS[env][algo].items():
        expected = tuple(value) if isinstance(value, list) else value
        assert getattr(chosen.run, name, getattr(chosen.algorithm, name, None)) == expected, name


def test_an_unknown_key_in_a_config_suggests_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'gae_lambda'"):
        configuration.from_mapping(PPOConfig, {"gae_lamda": 0.9}, "x.yaml")


@pytest.mark.parametrize(
    "text",
    [
        *("algo: [", "nonsense", "algo: ppo\ngamma: [1]\n", "algo: ppo\nwhat: 1\n", ""),
        *("algo: [ppo]", "algo: ppo\n1: 2\n", "algo: ppo\nenv: 2024-13-45\n"),
    ],
)
def test_a_damaged_config_is_one_message(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    done = paddleport("train", "--run-dir", tmp_path, "--resume")
    assert done.returncode in (1, 2)
    assert "config.yaml" in done.stderr


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path):
    def weights(name, seed):
        train(parse([*QUICK, "--seed", str(seed), "--run-dir", str(tmp_path / name)]))
        return Run(tmp_path / name).checkpoint("last").sha256

    assert weights("a", 1) == weights("b", 1) != weights("c", 2)


def test_box_actions_are_learnt_within_asymmetric_bounds(tmp_path):
    options = ("--total-steps", "8000", "--n-steps", "32", "--batch-size", "128", "--learning-rate", "3e-3")
    result = train(parse(["--env", "Target-v0", *options, "--run-dir", str(tmp_path / "run")]))
    assert result.evaluation.mean > -0.15  # the middle of the bounds, where it starts, is worth -0.5


def test_observations_far_from_zero_are_learnt_through_the_normaliser(tmp_path):
    options = ("--num-envs", "8", "--n-steps", "32", "--batch-size", "256", "--epochs", "10", "--gamma", "0.98")
    rates = ("--gae-lambda", "0.8", "--learning-rate", "1e-3", "--total-steps", "25000")
    train(parse(["--env", "Shifted-v0", *options, *rates, "--run-dir", str(tmp_path / "run")]))
    assert evaluate(EvaluateOptions(path=str(tmp_path / "run"), episodes=20)).mean > 150


@pytest.mark.parametrize("env_id", ["NanObs-v0", "NanReward-v0"])
def test_a_nan_stops_the_run_and_keeps_the_last_checkpoint(tmp_path, env_id):
    from paddleport.errors import TrainingError

    with pytest.raises(TrainingError, match="not finite"):
        train(parse(["--env", env_id, *QUICK, "--run-dir", str(tmp_path / "run")]))


@pytest.mark.parametrize("where", [(), ("--run-dir", "runs/typo")])
def test_resuming_what_is_not_there_trains_nothing(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="nothing to resume"):
        parse(["--resume", *where])
    assert list(tmp_path.iterdir()) == []
