"""A trunk of the user's own: from training to a bundle, and every way in which one can be wrong."""

import shutil
import sys

import numpy as np
import pytest

import environments  # noqa: F401 - registers the environments
from export import command as export_command
from paddleport import Policy
from paddleport.checkpoint import Run
from paddleport.errors import GateError, UsageError
from quantize import command as quantize_command
from train.command import parse
from train.command import run as train
from train.evaluate_command import Options as EvaluateOptions
from train.evaluate_command import run as evaluate
from train.network import network_of, run_network

QUICK = ("--total-steps", "600", "--n-steps", "32", "--batch-size", "64", "--evaluation-episodes", "1", "--epochs", "2")
QUICK_DQN = ("--total-steps", "600", "--learning-starts", "300", "--evaluation-episodes", "1", "--hidden-sizes", "8")
NORMED, CAMERA = "trunks_of_users:Normed", "Cue-picture-and-speed-v0"


def trained(folder, trunk=NORMED, env="CartPole-v1", *options):
    quick = QUICK_DQN if "dqn" in options else QUICK
    train(parse(["--env", env, "--trunk-class", trunk, *quick, *options, "--run-dir", str(folder)]))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("trunk") / "run")


def weights(folder):
    return Run(folder).checkpoint("last").policy_tensors()


def test_the_same_seed_gives_the_same_weights_in_both_engines(run, tmp_path):
    again = weights(trained(tmp_path / "again"))
    eager = weights(trained(tmp_path / "eager", NORMED, "CartPole-v1", "--engine", "eager"))
    other = weights(trained(tmp_path / "other", NORMED, "CartPole-v1", "--seed", "1"))
    for name, array in weights(run).items():
        assert (again[name] == array).all(), name
        assert eager[name] == pytest.approx(array, abs=1e-4), name
    assert (other["policy_trunk.layer.first.weight"] != weights(run)["policy_trunk.layer.first.weight"]).any()


@pytest.mark.parametrize("engine", ["compiled", "eager"])
@pytest.mark.parametrize("algorithm", ["a2c", "dqn"])
def test_it_trains_on_pictures_and_numbers(tmp_path, algorithm, engine):
    options = ("--algo", algorithm, "--engine", engine, "--total-steps", "300")
    folder = tmp_path / "run"
    few = (
        ("--learning-starts", "200", "--replay-capacity", "1000", "--gradient-steps", "1") if algorithm == "dqn" else ()
    )
    trunk = ("--env", CAMERA, "--trunk-class", "trunks_of_users:Looking", "--evaluation-episodes", "1")
    train(parse([*trunk, *options, *few, "--run-dir", str(folder)]))
    name = "trunk" if algorithm == "dqn" else "policy_trunk"
    assert f"{name}.layer.look.weight" in weights(folder)


def test_what_acts_is_what_was_trained(run):
    made = network_of(Run(run).checkpoint("last"), trust_code=True)
    outputs = run_network(made, {"obs": np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)})
    assert outputs["logits"].shape == (5, 2)


def test_without_trust_nobody_imports_it(run, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "trunks_of_users")
    models = str(tmp_path / "models")
    told = r"names a trunk of its maker's own, and importing it runs its code: got trunks_of_users:Normed.*--trust-code"
    with pytest.raises(UsageError, match=told):
        evaluate(EvaluateOptions(path=str(run), episodes=1))
    with pytest.raises(UsageError, match=told):
        quantize_command.run(quantize_command.parse([str(run)]))
    with pytest.raises(UsageError, match=told):
        export_command.run(export_command.parse([str(run), "--name", "x", "--models", models]))
    with pytest.raises(UsageError, match=told):
        parse(["--run-dir", str(run), "--resume"])
    assert "trunks_of_users" not in sys.modules
    assert not (tmp_path / "models").exists()


def test_with_trust_it_is_evaluated_quantized_and_exported(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    assert evaluate(EvaluateOptions(path=str(folder), episodes=2, trust_code=True)).episodes == 2
    few = ("--episodes", "3", "--trust-code")
    quantize_command.run(quantize_command.parse([str(folder), *few, "--calibration-episodes", "3"]))
    export_command.run(export_command.parse([str(folder), "--name", "x", "--models", str(tmp_path / "models"), *few]))
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    expected = run_network(network_of(Run(folder).checkpoint(), trust_code=True), {"obs": obs})["action"]
    assert (Policy.load(tmp_path / "models" / "x").act_batch(obs) == expected).all()
    assert np.mean(Policy.load(tmp_path / "models" / "x", precision="int8").act_batch(obs) == expected) > 0.9


@pytest.mark.parametrize("trust", [("--trust-code",), ("--trunk-class", NORMED)])
def test_whoever_trusts_or_names_it_resumes_exactly(run, tmp_path, trust):
    folder = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(Run(folder).checkpoint("last").path)
    (folder / "checkpoints" / "last").unlink()
    before = Run(folder).steps()
    train(parse(["--run-dir", str(folder), "--resume", *trust]))
    assert Run(folder).steps() == Run(run).steps() != before
    for name, array in weights(run).items():
        assert (weights(folder)[name] == array).all(), name


def test_another_trunk_is_another_run(run):
    with pytest.raises(UsageError, match="trunk_class 'trunks_of_users:Normed' → 'trunks_of_users:Bare'"):
        parse(["--run-dir", str(run), "--resume", "--trunk-class", "trunks_of_users:Bare"])


@pytest.mark.parametrize(
    ("trunk", "words"),
    [
        ("trunks_of_users:Nothing", "Cannot import this trunk: expected module:Class"),
        ("no_such_module:Normed", "Run the command from the folder that holds no_such_module.py"),
        ("trunks_of_users", "Cannot import this trunk"),
        (":Normed", "Cannot import this trunk"),
        ("trunks_of_users:NoLayer", "This trunk is no layer"),
        ("trunks_of_users:paddle", "This trunk is no layer"),
        ("trunks_of_users:Widthless", "does not say how wide it is"),
        ("trunks_of_users:Raising", "cannot be made.*RuntimeError: no sensor here"),
        ("trunks_of_users:Dropping", "acts otherwise than it learns.*got Dropout"),
        ("trunks_of_users:Counting", "acts otherwise than it learns.*got BatchNorm1D"),
        ("trunks_of_users:Random", r"expected \[batch, 16\].*got other numbers when it acts"),
        ("trunks_of_users:Narrow", r"expected \[batch, 8\].*got \[2, 16\] and \[2, 16\]"),
        ("trunks_of_users:Failing", r"expected \[batch, 16\].*got KeyError: 'sonar'"),
    ],
)
def test_a_wrong_trunk_is_refused_before_there_is_a_folder(tmp_path, trunk, words):
    with pytest.raises(UsageError, match=words) as caught:
        trained(tmp_path / "run", trunk)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_would_stay_float_in_an_int8_file_is_refused(tmp_path):
    trained(tmp_path / "run", "trunks_of_users:Bare", "CartPole-v1", "--total-steps", "256")
    with pytest.raises(UsageError, match=r"no int8 form.*got policy_trunk\.layer\.first \(Linear\).*--quantized none"):
        quantize_command.run(quantize_command.parse([str(tmp_path / "run"), "--trust-code", "--episodes", "2"]))
    assert not (tmp_path / "run" / "quantized").exists()


def test_a_convolution_that_ends_in_no_grid_is_named_and_can_stay_float(tmp_path):
    trained(tmp_path / "run", "trunks_of_users:Looking", CAMERA, "--total-steps", "256")
    anything = ("--trust-code", "--episodes", "2", "--min-agreement", "0", "--max-drop", "1000")
    export = [
        str(tmp_path / "run"),
        "--name",
        "x",
        "--models",
        str(tmp_path / "models"),
        "--trust-code",
        "--episodes",
        "2",
    ]
    look = "policy_trunk.layer.look"  # of the one trunk that both heads share, as ever behind a camera
    quantize_command.run(quantize_command.parse([str(tmp_path / "run"), *anything]))
    with pytest.raises(GateError, match=r"on integers: got policy_trunk\.layer\.look.*--keep-float"):
        export_command.run(export_command.parse(export))
    quantize_command.run(quantize_command.parse([str(tmp_path / "run"), *anything, "--keep-float", look]))
    assert "int8" in export_command.run(export_command.parse(export)).precisions
