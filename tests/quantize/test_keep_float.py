"""What each layer costs, and leaving some in float."""

from pathlib import Path

import numpy as np
import pytest

import runs
from export import command as export_command
from paddleport.errors import GateError
from policies import KINDS, build, change_policy, observations_of
from quantize import command
from quantize.comparison import answers, layer_errors, output_error
from quantize.ptq import calibrate
from quantize.scales import Quantized, folder_of
from quantize.sensitivity import keep_fewest
from train.network import load_arrays, state_arrays

FEW = ["--calibration-episodes", "3", "--episodes", "4"]


def hostile(tensors: dict) -> dict:
    """One weight of the head is ten thousand times what it was: what else that channel weighs is lost to its steps."""
    changed = {name: tensor.copy() for name, tensor in tensors.items()}
    changed["policy_head.weight"][0, 0] *= 1e4
    return changed


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "cartpole"
    runs.untrained_run(run, "CartPole-v1", hidden_sizes=(32, 32), activation="relu")
    change_policy(run, 2000, hostile)
    return run


def test_a_hostile_policy_is_refused_with_a_message_that_helps(run):
    with pytest.raises(GateError) as caught:
        command.run(command.parse([str(run), *FEW]))
    said = str(caught.value)
    assert "an action agreement of at least 0.98" in said
    assert "--keep-float policy_head (the layer that costs most)" in said
    assert not (run / "quantized").exists()


def test_auto_keeps_one_layer_in_float_and_passes_both_halves_of_the_gate(run, tmp_path):
    result = command.run(command.parse([str(run), *FEW, "--keep-float", "auto"]))
    assert result.kept_float == ("policy_head",)
    assert result.agreement >= 0.98
    document = Quantized.open(folder_of(run, "ptq")).document
    assert set(document.report.layer_errors) == {*document.layers, "policy_head"}
    models = ["--name", "x", "--models", str(tmp_path / "models"), "--episodes", "4"]
    exported = export_command.run(export_command.parse([str(run), *models]))
    assert exported.precisions["int8"].agreement >= 0.98
    card = (tmp_path / "models" / "x" / "1" / "README.md").read_text()
    assert "`policy_head` (kept in float)" in card


def test_layers_are_kept_by_name_or_by_the_name_of_what_holds_them(run):
    kept = ["--keep-float", "policy_head", "value_trunk"]
    result = command.run(command.parse([str(run), *FEW, *kept]))
    assert result.kept_float == ("policy_head", "value_trunk.layers.0", "value_trunk.layers.1")
    assert result.layers == 3


@pytest.fixture(scope="module")
def policy():
    kind = KINDS["discrete-from-5"]
    network = build(kind)
    obs = {"obs": observations_of(kind, np.random.default_rng(0), 200)}
    return network, calibrate(network, obs, "absmax"), obs


def test_a_layers_error_is_what_it_alone_changes(policy):
    network, layers, obs = policy
    errors = layer_errors(network, layers, obs)
    assert errors.keys() == layers.keys()
    assert all(0 < each.error < 0.1 for each in errors.values())
    assert errors["value_head"].agreement == 1.0  # the value decides no action
    exact = answers(network, obs)
    moved = {**exact, "logits": exact["logits"] + 2 * exact["logits"].std(axis=0).max()}
    assert output_error(exact, moved) == pytest.approx(2, rel=1e-3)
    assert output_error(exact, exact) == 0


def test_as_few_are_kept_as_it_takes_and_what_was_not_needed_is_taken_back(policy):
    network, layers, obs = policy
    weights = state_arrays(network)
    weights["policy_head.weight"][0, 0] *= 1e4
    ruined = build(KINDS["discrete-from-5"])
    load_arrays(ruined, weights)

    def passes(tried):
        if not {"policy_trunk.layers.0", "policy_trunk.layers.1"}.isdisjoint(tried):
            raise GateError("no")

    # The head costs most and is left out first; it was not the one that the gate minded.
    assert keep_fewest(ruined, layers, obs, passes) == ("policy_trunk.layers.0", "policy_trunk.layers.1")


def test_a_gate_that_nothing_passes_ends_the_search(policy):
    network, layers, obs = policy

    def passes(tried):
        raise GateError("no")

    few = {path: layers[path] for path in ("policy_head", "value_head")}
    with pytest.raises(GateError, match="No layer of this policy can be quantized"):
        keep_fewest(network, few, obs, passes)
