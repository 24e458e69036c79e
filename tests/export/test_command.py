"""`paddleport export` from a run to a bundle, and what it refuses."""

import shutil
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest

import runs
from export import command
from paddleport import Bundle, Policy
from paddleport.checkpoint import QUANTIZATION, Run
from paddleport.errors import ArtifactError, GateError, UsageError
from paddleport.spaces import Space
from policies import change_policy

FEW = ["--episodes", "3"]


def export(run: Path, models: Path, *options: str, name: str = "cartpole") -> command.Result:
    return command.run(command.parse([str(run), "--name", name, "--models", str(models), *FEW, *options]))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def published(quantized_run, tmp_path_factory) -> tuple[Path, list[command.Result], dict[str, bytes]]:
    """The models folder after two exports, their results, and the first bundle's files before the second."""
    models = tmp_path_factory.mktemp("models")
    first = export(quantized_run, models)
    before = contents(models / "cartpole" / "1")
    return models, [first, export(quantized_run, models)], before


@pytest.fixture
def run(quantized_run, tmp_path) -> Path:
    return Path(shutil.copytree(quantized_run, tmp_path / "run"))


def test_versions_count_up_and_leave_the_earlier_ones_as_they_were(published):
    models, results, before = published
    assert [result.version for result in results] == [1, 2]
    assert [result.bundle for result in results] == [str(models / "cartpole" / version) for version in "12"]
    assert contents(models / "cartpole" / "1") == before
    assert sorted(path.name for path in (models / "cartpole").iterdir()) == ["1", "2"]


def test_the_same_checkpoint_gives_the_same_onnx_bytes(published):
    models, _, _ = published
    first, second = (contents(models / "cartpole" / version) for version in "12")
    for name in ("policy.onnx", "policy.int8.onnx", "policy.int8-trt.onnx", "golden.npz"):
        assert first[name] == second[name]


def test_a_bundle_opens_and_acts_in_both_precisions(published):
    models, _, _ = published
    manifest = Bundle.open(models / "cartpole").manifest
    assert manifest.version == 2
    assert manifest.opset == 13
    assert manifest.ir_version <= 8
    assert set(manifest.files) == {
        *("policy.onnx", "policy.int8.onnx", "policy.int8-trt.onnx"),
        *("golden.npz", "README.md", "quantization.png"),
    }
    policies = [Policy.load(models / "cartpole", precision=precision) for precision in ("float32", "int8")]
    obs = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    assert {policy.act(obs[0]) for policy in policies} <= {0, 1}
    assert np.mean(policies[0].act_batch(obs) == policies[1].act_batch(obs)) > 0.95


def test_the_result_and_the_manifest_give_the_figures(published):
    models, (result, _), _ = published
    plain = msgspec.json.decode(msgspec.json.encode(result))
    assert plain["precisions"]["int8"]["size"] < plain["precisions"]["float32"]["size"]
    assert plain["precisions"]["int8"]["agreement"] >= 0.95
    assert plain["precisions"]["float32"]["agreement"] == 1.0
    assert plain["precisions"]["float32"]["returns"]["mean"] == plain["trainer"]["mean"]
    assert plain["parity"]["observations"] >= 1000
    made = Bundle.open(models / "cartpole" / "1").manifest.quantization
    assert made["method"] == "ptq"
    assert made["layers"]["policy_trunk.layers.0"]["weight_axis"] == 1
    assert made["agreement_with_paddle"] >= 0.99


def test_the_model_card_says_how_to_call_it_and_nothing_of_this_machine(published, quantized_run):
    models, (result, _), _ = published
    card = (models / "cartpole" / "1" / "README.md").read_text()
    for text in ("/v1/policies/cartpole/act", "Policy.load(", "95 % interval", "trainer (Paddle)", "int8", "action"):
        assert text in card
    for path in (models, quantized_run, Path.home(), Path.cwd()):
        assert str(path) not in card
        assert str(path) not in (models / "cartpole" / "1" / "manifest.json").read_text()
    command.show(result)


def test_every_file_explains_itself(published):
    models, _, _ = published
    manifest = Bundle.open(models / "cartpole").manifest
    for info in manifest.precisions.values():
        entries = onnx.load(models / "cartpole" / "2" / info.file).metadata_props
        said = {entry.key.removeprefix("paddleport."): entry.value for entry in entries}
        assert said["product"].startswith("paddleport ")
        assert (said["algorithm"], said["environment"]) == ("ppo", "CartPole-v1")
        assert said["run_id"] == manifest.provenance.run_id
        assert msgspec.json.decode(said["inputs"]) == ["obs"]
        assert msgspec.json.decode(said["observation_space"], type=Space) == manifest.observation_space
        assert msgspec.json.decode(said["action_space"], type=Space) == manifest.action_space


def test_a_run_with_metrics_brings_its_learning_curve(run, tmp_path):
    rows = [{"step": step, "episode_return": float(step), "evaluation_mean": None} for step in (10, 20, 30)]
    (run / "metrics.jsonl").write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows) + b"\n")
    bundle = Path(export(run, tmp_path / "models", "--quantized", "none").bundle)
    assert (bundle / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert "learning_curve.png" in Bundle.open(bundle).manifest.files
    card = (bundle / "README.md").read_text()
    assert "![Returns over the training](learning_curve.png)" in card
    assert "policy_act(obs, action)" in card


def test_a_box_policy_without_scales_is_exported_in_float32_alone(tmp_path):
    runs.untrained_run(tmp_path / "run", "Pendulum-v1", activation="relu")
    result = export(tmp_path / "run", tmp_path / "models", "--quantized", "auto", name="pendulum")
    assert list(result.precisions) == ["float32"]
    policy = Policy.load(tmp_path / "models" / "pendulum")
    action = policy.act([1e6, -1e6, 1e6])
    assert action.shape == (1,)
    assert -2 <= action[0] <= 2


def refused(run: Path, models: Path, *options: str, error: type = ArtifactError, name: str = "cartpole") -> str:
    with pytest.raises(error) as caught:
        export(run, models, *options, name=name)
    assert not models.exists() or not any(models.rglob("manifest.json"))
    return str(caught.value)


def test_scales_of_another_checkpoint_are_refused(run, tmp_path):
    change_policy(run, 2000, lambda tensors: {**tensors, "value_head.bias": tensors["value_head.bias"] + 1})
    said = refused(run, tmp_path / "models")
    assert "made from another checkpoint: expected step 2000" in said
    assert "got step 1000" in said
    assert "--quantized none" in said
    assert "--checkpoint step-2000" in said


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("name", [QUANTIZATION, "policy.safetensors"])
@pytest.mark.parametrize(
    "damage", [flip, lambda path: path.write_bytes(path.read_bytes()[:-40]), Path.unlink], ids=["flip", "cut", "unlink"]
)
def test_damaged_scales_are_refused(run, tmp_path, name, damage):
    damage(run / "quantized" / "ptq" / name)
    assert name in refused(run, tmp_path / "models")


def test_a_conversion_that_takes_too_long_publishes_nothing(run, tmp_path):
    said = refused(run, tmp_path / "models", "--conversion-limit", "0.001", error=GateError)
    assert "nothing was published" in said


def test_options_that_make_no_sense_are_refused(run, tmp_path):
    models = tmp_path / "models"
    assert "name" in refused(run, models, error=UsageError, name="../elsewhere")
    assert "at least 2" in refused(run, models, "--episodes", "1", error=UsageError)
    assert "0 or more" in refused(run, models, "--seed", "-1", error=UsageError)
    assert "more than 0" in refused(run, models, "--conversion-limit", "0", error=UsageError)
    assert "best, last or step-N" in refused(run, models, "--checkpoint", "newest", error=UsageError)
    assert "no run directory" in refused(tmp_path / "nowhere", models)
    (tmp_path / "file").write_text("")
    assert "no folder" in refused(run, tmp_path / "file", error=UsageError)
    shutil.rmtree(run / "quantized")
    assert "was not quantized" in refused(run, models, "--quantized", "ptq")


def test_a_damaged_checkpoint_is_refused(run, tmp_path):
    flip(Run(run).checkpoint("last").path / "policy.safetensors")
    assert "damaged" in refused(run, tmp_path / "models")
