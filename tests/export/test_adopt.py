"""Policies that other tools wrote: stable-baselines3's documented export, and graphs made by hand."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export import adopt_command
from export.adopt import adopt, parse_outputs, read_model
from paddleport import Policy
from paddleport.errors import ArtifactError, GateError, UsageError
from paddleport.session import Session
from paddleport.spaces import Box, Discrete, TupleSpace

FILES = Path(__file__).parent / "files"
OBSERVATION = Box(shape=(3,), dtype="float32", low=None, high=None)
ACTION = Box(shape=(2,), dtype="float32", low=(-2.0, 0.0), high=(2.0, 1.0))
# What benchmarks/peers/sb3_onnx.py wrote with stable-baselines3: its forward pass gives action, value, log probability.
SB3 = {
    "ppo-cartpole": ("CartPole-v1", ("56:action", "24:value")),
    "ppo-pendulum": ("Pendulum-v1", ("53:action", "24:value")),
}


def adopted(models: Path, name: str, *more: str) -> adopt_command.Result:
    environment, outputs = SB3[name]
    arguments = [str(FILES / f"{name}.onnx"), "--env", environment, "--models", str(models), "--episodes", "2"]
    return adopt_command.run(adopt_command.parse([*arguments, "--output", *outputs, *more]))


def foreign(outputs, nodes, constants=(), given=("input", TensorProto.FLOAT, [1, 3]), opset=17) -> onnx.ModelProto:
    """A model as another tool writes it: its own names, a batch that is fixed at one."""
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info(*given)],
        [helper.make_tensor_value_info(*output) for output in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def mean_of(weight) -> onnx.ModelProto:
    """actions = input @ weight."""
    node = helper.make_node("MatMul", ["input", "w"], ["actions"])
    return foreign([("actions", TensorProto.FLOAT, [1, len(weight[0])])], [node], [("w", np.float32(weight))])


def run(model, action, obs, roles=(), scale="env", observation=OBSERVATION):
    wrapped = adopt(model, observation, action, parse_outputs(roles, model, action), scale)
    return dict(
        zip(wrapped.outputs, Session(wrapped.model.SerializeToString()).run({"obs": obs}, wrapped.outputs), strict=True)
    )


@pytest.mark.parametrize("name", SB3)
def test_a_policy_of_stable_baselines3_acts_as_it_does_there(tmp_path, name):
    result = adopted(tmp_path, name)
    answered = np.load(FILES / f"{name}.npz")
    policy = Policy.load(result.bundle)
    np.testing.assert_allclose(policy.act_batch(answered["obs"]), answered["actions"], rtol=1e-5, atol=1e-6)
    assert result.outputs == ("action", "value")
    assert result.returns.episodes == 2
    manifest = policy.manifest
    assert manifest.parity is None
    assert any("no trainer" in sentence for sentence in manifest.not_checked)
    assert "Not checked" in (Path(result.bundle) / "README.md").read_text()


def test_the_adopted_file_explains_itself(tmp_path):
    model = onnx.load(Path(adopted(tmp_path, "ppo-cartpole", "--algorithm", "ppo").bundle) / "policy.onnx")
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert said["paddleport.environment"] == "CartPole-v1"
    assert said["paddleport.algorithm"] == "ppo"
    assert json.loads(said["paddleport.action_space"])["n"] == 2
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_actions_are_clipped_to_each_dimensions_own_bounds():
    obs = np.float32([[1e6, 1, 0], [-1e6, -1e6, 0], [1, 0.5, 0]])
    found = run(mean_of([[1, 0], [0, 1], [0, 0]]), ACTION, obs)
    assert found["action"].tolist() == [[2, 1], [-2, 0], [1, 0.5]]


def test_actions_in_the_unit_interval_are_mapped_to_the_bounds():
    obs = np.float32([[1, -1, 0], [0, 0, 0], [-0.5, 5, 0]])
    found = run(mean_of([[1, 0], [0, 1], [0, 0]]), ACTION, obs, scale="unit")
    assert found["action"].tolist() == [[2, 0], [0, 0.5], [-1, 1]]


def test_the_action_is_the_largest_of_logits_from_where_the_space_starts():
    found = run(mean_of([[1, 0], [0, 1], [0, 0]]), Discrete(2, start=5), np.float32([[1, 0, 0], [0, 1, 0]]),
                ["actions:logits"])  # fmt: skip
    assert found["action"].tolist() == [5, 6]
    assert found["logits"].tolist() == [[1, 0], [0, 1]]


def test_an_observation_of_another_type_is_converted():
    space = Box(shape=(3,), dtype="uint8", low=0.0, high=255.0)
    found = run(mean_of([[1], [0], [0]]), Box(shape=(1,), dtype="float64", low=None, high=None),
                np.uint8([[200, 0, 0]]), observation=space)  # fmt: skip
    assert found["action"].dtype == np.float64
    assert found["action"].tolist() == [[200]]


@pytest.mark.parametrize(
    ("observation", "action", "roles", "said"),
    [
        (Box(shape=(4,), dtype="float32", low=None, high=None), ACTION, [], r"expected an input of shape \[batch, 4\]"),
        (TupleSpace(spaces=(Discrete(2),)), ACTION, [], "cannot be adopted yet"),
        (OBSERVATION, Discrete(2), [], "--output actions:logits"),
        (OBSERVATION, Discrete(3), ["actions:logits"], "expected 3 numbers an observation"),
        (OBSERVATION, ACTION, ["nothing:action"], "NAME one of actions"),
        (OBSERVATION, ACTION, ["actions:actor"], "ROLE one of action, logits"),
    ],
)
def test_what_does_not_fit_the_environment_is_refused(observation, action, roles, said):
    model = mean_of([[1, 0], [0, 1], [0, 0]])
    with pytest.raises(UsageError, match=said):
        adopt(model, observation, action, parse_outputs(roles, model, action), "env")


def test_actions_without_bounds_cannot_be_in_the_unit_interval():
    action = Box(shape=(2,), dtype="float32", low=None, high=1.0)
    with pytest.raises(UsageError, match="finite bounds"):
        run(mean_of([[1, 0], [0, 1], [0, 0]]), action, np.zeros((1, 3), np.float32), scale="unit")


def test_an_output_that_cannot_be_told_is_asked_for():
    outputs = [("a", TensorProto.FLOAT, [1, 3]), ("b", TensorProto.FLOAT, [1, 3])]
    model = foreign(outputs, [helper.make_node("Identity", ["input"], [name]) for name in "ab"])
    with pytest.raises(UsageError, match=r"--output NAME:action .* got a \(float\[1, 3\]\), b"):
        parse_outputs([], model, ACTION)


def test_weights_in_other_files_are_refused():
    model = mean_of([[1, 0], [0, 1], [0, 0]])
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    tensor.ClearField("raw_data")
    with pytest.raises(ArtifactError, match="keeps weights in other files"):
        read_model(model.SerializeToString())


@pytest.mark.parametrize("data", [b"", b"no model", b"\x08\x01"])
def test_what_is_no_onnx_file_is_refused(data):
    with pytest.raises(ArtifactError, match="no ONNX file"):
        read_model(data)


def test_a_policy_whose_rows_depend_on_each_other_is_not_published(tmp_path):
    # As batch normalisation in training mode: the mean over the batch is taken away.
    nodes = [
        helper.make_node("ReduceMean", ["input"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["input", "mean"], ["centred"]),
        helper.make_node("ReduceSum", ["centred", "axis"], ["actions"], keepdims=1),
    ]
    model = foreign([("actions", TensorProto.FLOAT, [1, 1])], nodes, [("axis", np.array([1]))])
    path = tmp_path / "policy.onnx"
    path.write_bytes(model.SerializeToString())
    chosen = adopt_command.parse([str(path), "--env", "Pendulum-v1", "--models", str(tmp_path / "models"),
                                  "--episodes", "2"])  # fmt: skip
    with pytest.raises(GateError, match="depends on what else is in its batch"):
        adopt_command.run(chosen)
    assert not list((tmp_path / "models").rglob("*.json"))


def test_an_adopted_policy_is_compared_and_served_like_any_other(tmp_path):
    from paddleport import diff_command, verify_command

    first = adopted(tmp_path, "ppo-cartpole").bundle
    second = adopted(tmp_path, "ppo-cartpole").bundle
    verified = verify_command.run(verify_command.parse([str(Path(first).parent), "--all"])).bundles
    assert [each.version for each in verified] == [1, 2]
    difference = diff_command.run(diff_command.parse([first, second]))
    assert [change.what for change in difference.changes] == ["version"]
    assert difference.agreement[0].actions == 1.0


PENDULUM = ("Pendulum-v1", (3,))
CARTPOLE = ("CartPole-v1", (4,))


def publish_foreign(tmp_path, task, model, *options):
    """Adopt a model for an environment; the published policy."""
    environment, _ = task
    path = tmp_path / "their.onnx"
    onnx.save(model, path)
    arguments = [str(path), "--env", environment, "--models", str(tmp_path / "models"), "--episodes", "2", *options]
    return Policy.load(adopt_command.run(adopt_command.parse(arguments)).bundle)


def linear(task, outputs, nodes, constants=()):
    return foreign(outputs, nodes, constants, given=("input", TensorProto.FLOAT, ["n", *task[1]]))


def gaussian(log_std, shape):
    """A mean in the environment's units, and a log_std that is a parameter, of this shape."""
    nodes = [
        helper.make_node("MatMul", ["input", "w"], ["mean"]),
        helper.make_node("Identity", ["parameter"], ["log_std"]),
    ]
    outputs = [("mean", TensorProto.FLOAT, ["n", 1]), ("log_std", TensorProto.FLOAT, shape)]
    constants = [("w", np.float32([[1.0], [0.5], [0.25]])), ("parameter", np.full(shape, log_std, np.float32))]
    return linear(PENDULUM, outputs, nodes, constants)


@pytest.mark.parametrize("shape", [[1], [1, 1]])
def test_actions_are_drawn_in_the_units_that_the_mean_has(tmp_path, shape):
    policy = publish_foreign(tmp_path, PENDULUM, gaussian(-20.0, shape))
    obs = np.float32([[0.1, 0.2, 0.3], [0.5, 0.5, 0.5], [-3, -3, -3]])
    np.testing.assert_allclose(policy.act_batch(obs), [[0.275], [0.875], [-2.0]], rtol=1e-6)
    drawn = policy.act_batch(obs, deterministic=False, rng=np.random.default_rng(0))
    np.testing.assert_allclose(drawn, policy.act_batch(obs), rtol=1e-6)
    wide = publish_foreign(tmp_path, PENDULUM, gaussian(np.log(0.5), shape))
    many = wide.act_batch(np.zeros((4000, 3), np.float32), deterministic=False, rng=np.random.default_rng(0))
    assert abs(many.std() - 0.5) < 0.02


def test_a_mean_in_the_unit_interval_is_drawn_there_too(tmp_path):
    policy = publish_foreign(tmp_path, PENDULUM, gaussian(-20.0, [1]), "--actions", "unit")
    obs = np.float32([[0.1, 0.2, 0.3]])
    np.testing.assert_allclose(policy.act_batch(obs), [[0.55]], rtol=1e-6)
    drawn = policy.act_batch(obs, deterministic=False, rng=np.random.default_rng(0))
    np.testing.assert_allclose(drawn, [[0.55]], rtol=1e-6)


def choosing(kind):
    """Logits, and an action that is the largest or the smallest of them."""
    nodes = [
        helper.make_node("MatMul", ["input", "w"], ["logits"]),
        helper.make_node(kind, ["logits"], ["action"], axis=1, keepdims=0),
    ]
    outputs = [("action", TensorProto.INT64, ["n"]), ("logits", TensorProto.FLOAT, ["n", 2])]
    return linear(CARTPOLE, outputs, nodes, [("w", np.float32(np.eye(4, 2)))])


def test_an_action_that_its_logits_contradict_is_refused(tmp_path):
    assert publish_foreign(tmp_path, CARTPOLE, choosing("ArgMax")).act(np.float32([1, 0, 0, 0])) == 0
    with pytest.raises(GateError, match="not the one that its other outputs lead to"):
        publish_foreign(tmp_path, CARTPOLE, choosing("ArgMin"))


def wide_action(declared):
    """Two numbers where Pendulum takes one."""
    node = helper.make_node("MatMul", ["input", "w"], ["action"])
    return linear(PENDULUM, [("action", TensorProto.FLOAT, declared)], [node], [("w", np.float32(np.eye(3, 2)))])


def two_choices(declared):
    """Two choices where CartPole takes one."""
    nodes = [
        helper.make_node("MatMul", ["input", "w"], ["x"]),
        helper.make_node("Cast", ["x"], ["action"], to=TensorProto.INT64),
    ]
    return linear(CARTPOLE, [("action", TensorProto.INT64, declared)], nodes, [("w", np.float32(np.eye(4, 2)))])


@pytest.mark.parametrize(
    ("task", "model"),
    [(PENDULUM, wide_action(["n", 2])), (PENDULUM, wide_action(["n", "k"])), (CARTPOLE, two_choices(["n", "k"]))],
)
def test_an_action_of_another_size_is_refused(tmp_path, task, model):
    with pytest.raises(UsageError, match=r"another size|other sizes"):
        publish_foreign(tmp_path, task, model)
    assert not (tmp_path / "models").exists()


def test_an_action_that_is_not_finite_is_the_policy_s_fault_and_not_the_environment_s(tmp_path):
    node = helper.make_node("Div", ["input", "zero"], ["all"])
    take = helper.make_node("Gather", ["all", "first"], ["action"], axis=1)
    constants = [("zero", np.float32([0.0])), ("first", np.array([0]))]
    model = linear(PENDULUM, [("action", TensorProto.FLOAT, ["n", 1])], [node, take], constants)
    with pytest.raises(GateError, match=r"policy.s .action. is not finite|acts outside"):
        publish_foreign(tmp_path, PENDULUM, model)


def test_what_draws_at_random_is_refused(tmp_path):
    constants = [("w", np.float32(np.eye(3, 1))), ("ratio", np.float32(0.5)), ("training", np.array(True))]
    nodes = [
        helper.make_node("MatMul", ["input", "w"], ["x"]),
        helper.make_node("Dropout", ["x", "ratio", "training"], ["action"]),
    ]
    model = linear(PENDULUM, [("action", TensorProto.FLOAT, ["n", 1])], nodes, constants)
    with pytest.raises(GateError, match="drops at random"):
        publish_foreign(tmp_path, PENDULUM, model)


def test_a_choice_alone_says_that_its_scores_were_not_seen(tmp_path):
    manifest = Policy.load(adopted(tmp_path, "ppo-cartpole").bundle).manifest
    assert any("scores behind its choice" in sentence for sentence in manifest.not_checked)


def test_the_card_of_an_adopted_policy_says_what_it_gives(tmp_path):
    card = (Path(adopted(tmp_path, "ppo-pendulum").bundle) / "README.md").read_text()
    assert "in the environment's units and bounds; there is no distribution" in card
    assert "clipped to [-1, 1]" not in card
