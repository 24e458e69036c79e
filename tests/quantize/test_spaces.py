"""Which policies can be quantized: those of fully connected layers and convolutions, whatever they see and do."""

import numpy as np
import pytest

import environments  # noqa: F401 - registers the environments
from export import command as export_command
from paddleport import Policy
from paddleport.checkpoint import Run
from paddleport.errors import UsageError
from paddleport.spaces import leaf_spaces
from quantize import command
from train.command import parse
from train.command import run as train
from train.episodes import play
from train.network import network_of, run_network

FEW = ("--episodes", "10")
WHOLE_WAY = [
    "Answer-multi-discrete-v0",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("Cue-tuple-v0", "Answer-multi-binary-v0")),
]


def trained(folder, env_id, *options):
    quick = ("--algo", "a2c", "--learning-rate", "2e-3", "--hidden-sizes", "32", "--checkpoint-every", "100000")
    train(parse(["--env", env_id, *quick, *options, "--run-dir", str(folder)]))
    return folder


@pytest.mark.parametrize("env_id", WHOLE_WAY)
def test_parts_and_several_choices_go_the_whole_way_in_both_precisions(tmp_path, env_id):
    run = trained(tmp_path / "run", env_id, "--total-steps", "2000")
    command.run(command.parse([str(run), *FEW, "--calibration-episodes", "5"]))
    models = tmp_path / "models"
    result = export_command.run(export_command.parse([str(run), "--name", "x", "--models", str(models), *FEW]))
    assert set(result.precisions) == {"float32", "int8", "int8-trt"}
    network = network_of(Run(run).checkpoint())
    obs = play(lambda rows: run_network(network, rows)["action"], env_id, 10, 3, keep=64).observations
    assert obs.keys() == leaf_spaces(network_space(run)).keys()
    expected = run_network(network, obs)["action"]
    exact, coarse = (Policy.load(models / "x", precision=precision) for precision in ("float32", "int8"))
    assert (exact.act_checked(obs) == expected).all()
    assert np.mean(coarse.act_checked(obs) == expected) > 0.9


def network_space(run):
    return Run(run).checkpoint().state.observation_space


@pytest.mark.parametrize("env_id", ["Cue-chw-v0", pytest.param("Cue-picture-and-speed-v0", marks=pytest.mark.slow)])
def test_pictures_go_the_whole_way_in_a_quarter_of_the_bytes(tmp_path, env_id):
    run = trained(tmp_path / "run", env_id, "--total-steps", "400")
    anything = ("--min-agreement", "0.5", "--max-drop", "10")  # a policy that has learnt little chooses between equals
    command.run(command.parse([str(run), *FEW, *anything]))
    options = ["--name", "x", "--models", str(tmp_path / "models"), "--episodes", "5"]
    result = export_command.run(export_command.parse([str(run), *options, "--quantized", "ptq", "--fp16"]))
    assert set(result.precisions) == {"float32", "int8", "int8-trt", "fp16"}
    sizes = {name: info.size for name, info in result.precisions.items()}
    assert sizes["int8"] < 0.3 * sizes["float32"]
    assert sizes["fp16"] < 0.53 * sizes["float32"]


def test_layers_without_an_int8_form_are_refused_unless_they_are_named(tmp_path):
    run = trained(tmp_path / "run", "CartPole-v1", "--total-steps", "40", "--trunk-class", "trunks_of_users:Bare")
    with pytest.raises(UsageError, match=r"policy_trunk\.layer\.first \(Linear\).*--keep-float"):
        command.run(command.parse([str(run), *FEW, "--trust-code"]))
    assert not (run / "quantized").exists()
    named = ("policy_trunk.layer.first", "value_trunk.layer.first")
    anything = ("--min-agreement", "0", "--max-drop", "10")
    made = command.run(command.parse([str(run), *FEW, "--keep-float", *named, *anything, "--trust-code"]))
    assert made.kept_float == named
    models = ["--name", "x", "--models", str(tmp_path / "models"), "--episodes", "2", "--trust-code"]
    assert "int8" in export_command.run(export_command.parse([str(run), *models])).precisions
