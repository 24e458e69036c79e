"""Quantization-aware training: what the student sees, what it is taught, and that a killed one ends the same."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import paddle
import pytest

import runs
from paddleport.checkpoint import Run
from paddleport.errors import ArtifactError, GateError, UsageError
from paddleport.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from policies import IMAGE_KINDS, KINDS, build, change_policy, observations_of
from quantize import command, gate, qat_state
from quantize.distillation import distillation_loss, spreads
from quantize.fake import fake_quantized
from quantize.ptq import calibrate
from quantize.scales import Quantized, folder_of
from quantize.student import float_weights, learnt_scales, student_of
from train.network import load_arrays, run_network, state_arrays

SHORT = ["--method", "qat", "--calibration-episodes", "2", "--episodes", "2", "--qat-rounds", "3", "--qat-updates", "8"]
ANY = ["--min-agreement", "0", "--max-drop", "1000"]


def quantize(run: Path, *options: str) -> command.Result:
    return command.run(command.parse([str(run), *SHORT, *options]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that was trained on by QAT without an interruption."""
    run = tmp_path_factory.mktemp("runs") / "pendulum"
    runs.untrained_run(run, "Pendulum-v1", hidden_sizes=(16, 16), activation="relu")
    quantize(run, *ANY)
    return run


@pytest.fixture
def run(whole, tmp_path) -> Path:
    copy = Path(shutil.copytree(whole, tmp_path / "run"))
    shutil.rmtree(copy / "quantized")
    return copy


def of(kind):
    return {**KINDS, **IMAGE_KINDS}[kind]


@pytest.mark.parametrize("kind", ["box", "discrete-from-5", "picture"])
def test_the_student_computes_what_its_twin_will(kind):
    kind = of(kind)
    network = build(kind)
    obs = {"obs": observations_of(kind, np.random.default_rng(0), 300)}
    layers = calibrate(network, obs, "absmax")
    student = student_of(network, layers)
    with paddle.no_grad():
        student.train()
        for _ in range(3):
            student(paddle.to_tensor(obs["obs"]))  # its quanters watch
        student.eval()
    copy = build(kind)
    load_arrays(copy, float_weights(student))
    twin = fake_quantized(copy, learnt_scales(student, layers))
    expected, got = run_network(student, obs), run_network(twin, obs)
    assert gate.action_agreement(kind.action_space, expected["action"], got["action"]) > 0.99
    assert np.abs(expected["value"] - got["value"]).max() < 0.05


def test_the_student_starts_from_the_policys_weights_and_scales():
    network = build(KINDS["box"])
    layers = calibrate(network, {"obs": observations_of(KINDS["box"], np.random.default_rng(0), 300)}, "absmax")
    student = student_of(network, layers)
    assert all(np.array_equal(array, state_arrays(network)[name]) for name, array in float_weights(student).items())
    learnt = learnt_scales(student, layers)
    assert {path: scales.activation_abs_max for path, scales in learnt.items()} == pytest.approx(
        {path: scales.activation_abs_max for path, scales in layers.items()}
    )
    for path, scales in layers.items():
        assert learnt[path].weight_abs_max == pytest.approx(scales.weight_abs_max)


def loss_of(space, student: dict, teacher: dict) -> dict[str, float]:
    targets = {name: np.asarray(values, np.float32) for name, values in teacher.items()}
    outputs = {name: paddle.to_tensor(np.asarray(values, np.float32)) for name, values in student.items()}
    batch = {f"target.{name}": paddle.to_tensor(values) for name, values in targets.items()}
    terms = distillation_loss(space, outputs, batch, {**spreads(targets)})
    return {name: float(value) for name, value in terms.items()}


def test_the_loss_is_the_divergence_from_the_teacher():
    teacher = {"logits": [[0.0, 0.0], [np.log(3), 0.0]], "value": [0.0, 2.0]}
    student = {"logits": [[0.0, 0.0], [0.0, 0.0]], "value": [[0.0], [2.0]]}
    expected = (0.75 * np.log(0.75 / 0.5) + 0.25 * np.log(0.25 / 0.5)) / 2
    assert loss_of(Discrete(2), student, teacher)["loss"] == pytest.approx(expected, abs=1e-6)
    assert loss_of(Discrete(2), {**teacher, "value": [[0.0], [2.0]]}, teacher)["loss"] == pytest.approx(0, abs=1e-6)


def test_several_choices_add_up():
    teacher = {"logits": [[0.0, 0.0, 1.0, 2.0, 3.0]], "value": [1.0]}
    student = {"logits": [[np.log(3), 0.0, 1.0, 2.0, 3.0]], "value": [[1.0]]}
    expected = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    space = MultiDiscrete(nvec=(2, 3))
    assert loss_of(space, student, teacher)["action_loss"] == pytest.approx(expected, abs=1e-6)
    one = {"logits": [[np.log(3)]], "value": [1.0]}
    even = {"logits": [[0.0]], "value": [[1.0]]}
    expected = 0.75 * np.log(0.75 / 0.5) + 0.25 * np.log(0.25 / 0.5)
    assert loss_of(MultiBinary(shape=(1,)), even, one)["action_loss"] == pytest.approx(expected, abs=1e-6)


def test_means_are_measured_by_their_deviation_and_values_by_theirs():
    space = Box(shape=(1,), dtype="float32", low=-1.0, high=1.0)
    teacher = {"mean": [[0.0], [4.0]], "value": [0.0, 20.0]}  # deviations 2 and 10
    student = {"mean": [[1.0], [4.0]], "value": [[5.0], [20.0]]}
    terms = loss_of(space, student, teacher)
    assert terms["action_loss"] == pytest.approx((1 / 2) ** 2 / 2)
    assert terms["value_loss"] == pytest.approx(0.5 * (5 / 10) ** 2 / 2)
    assert terms["loss"] == pytest.approx(terms["action_loss"] + 0.1 * terms["value_loss"])


def test_what_decides_between_q_values_counts_beside_their_size():
    teacher = {"q_values": [[100.0, 100.2], [120.0, 119.8]]}
    turned = {"q_values": [[100.2, 100.0], [119.8, 120.0]]}
    shifted = {"q_values": [[100.4, 100.6], [120.4, 120.2]]}
    assert loss_of(Discrete(2), turned, teacher)["loss"] > 10 * loss_of(Discrete(2), shifted, teacher)["loss"]


def test_the_result_says_how_it_was_trained(whole):
    found = Quantized.open(folder_of(whole, "qat"))
    document = found.document
    assert document.method == "qat"
    assert (document.training.rounds, document.training.updates) == (3, 24)
    assert document.training.observations > document.calibration_observations
    before = Run(whole).checkpoint().policy_tensors()
    after = found.tensors()
    assert after.keys() == before.keys()
    assert not np.array_equal(before["policy_head.weight"], after["policy_head.weight"])
    assert np.array_equal(before["obs_mean"], after["obs_mean"])
    assert not qat_state.folder_of(whole).exists()


def test_a_killed_training_ends_with_the_same_weights(whole, run):
    arguments = ["quantize", str(run), *SHORT, *ANY]
    code = f"from paddleport.cli import main; import sys; sys.exit(main({arguments!r}))"
    killed = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    state = qat_state.folder_of(run) / qat_state.STATE
    began = time.monotonic()
    while not state.exists() and killed.poll() is None and time.monotonic() - began < 120:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    assert state.exists()
    assert not folder_of(run, "qat").exists()
    quantize(run, *ANY, "--resume")
    resumed, expected = (Quantized.open(folder_of(each, "qat")) for each in (run, whole))
    assert resumed.document.layers == expected.document.layers
    assert resumed.document.training == expected.document.training
    assert resumed.document.report == expected.document.report
    weights = expected.tensors()
    assert all(np.array_equal(tensor, weights[name]) for name, tensor in resumed.tensors().items())
    assert not qat_state.folder_of(run).exists()


@pytest.fixture(scope="module")
def refused(whole, tmp_path_factory) -> Path:
    """A run whose student was trained and refused: its training is kept."""
    run = Path(shutil.copytree(whole, tmp_path_factory.mktemp("runs") / "run"))
    shutil.rmtree(run / "quantized")
    with pytest.raises(GateError, match="acts too differently"):
        quantize(run, "--min-agreement", "1")
    assert qat_state.folder_of(run).is_dir()
    return run


@pytest.fixture
def unfinished(refused, tmp_path) -> Path:
    return Path(shutil.copytree(refused, tmp_path / "run"))


def test_a_training_is_not_resumed_under_other_settings_or_of_another_policy(unfinished):
    with pytest.raises(UsageError, match="seed 7"):
        quantize(unfinished, *ANY, "--resume", "--seed", "8")
    change_policy(unfinished, 2000, lambda tensors: {**tensors, "value_head.bias": tensors["value_head.bias"] + 1})
    with pytest.raises(UsageError, match="begun otherwise: got checkpoint_sha256"):
        quantize(unfinished, *ANY, "--resume")


@pytest.mark.parametrize("name", ["state.json", "student.safetensors", "observations.safetensors"])
def test_a_damaged_training_is_refused(unfinished, name):
    path = qat_state.folder_of(unfinished) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))
    with pytest.raises(ArtifactError, match=name):
        quantize(unfinished, *ANY, "--resume")


def test_a_training_that_was_done_is_resumed_to_its_gate(unfinished):
    assert quantize(unfinished, *ANY, "--resume").method == "qat"


def test_auto_trains_only_what_the_gate_refuses(run):
    easy = msgspec.structs.asdict(quantize(run, "--method", "auto", "--min-agreement", "0.5", "--max-drop", "1000"))
    assert easy["method"] == "ptq"
    with pytest.raises(GateError, match="more --qat-rounds"):
        quantize(run, "--method", "auto", "--min-agreement", "1")
