"""Policies beyond two layers on a vector: images, dueling streams, squashed actions; and what is refused."""

import numpy as np
import onnx
import pytest
from onnx import helper

import bundles
from c_policies import CPolicy, make, need, publish_model, write
from export import paddle_child
from export.canonical import canonicalize
from export.convert import OPSET, read_converted
from export.edge.reading import read_program
from paddleport import Bundle
from paddleport.bundle import row_error
from paddleport.checkpoint import NetworkInfo
from paddleport.errors import GateError
from paddleport.session import Session
from paddleport.spaces import Box, Discrete
from spaces_drawn import drawn
from train.initialization import initial_weights
from train.network import load_arrays, policy_network, state_arrays

VECTOR = Box(shape=(3,), dtype="float64", low=None, high=None)
IMAGES = {
    "hwc": Box(shape=(36, 40, 3), dtype="uint8", low=0.0, high=255.0),
    "chw": Box(shape=(4, 44, 36), dtype="uint8", low=0.0, high=255.0),
    "grey": Box(shape=(36, 40), dtype="uint8", low=0.0, high=255.0),
}
ACTIONS = {
    "discrete": Discrete(5),
    "box": Box(shape=(2, 2), dtype="float32", low=(-1.0, 0.5, None, 0.0), high=(3.0, 2.5, None, None)),
    "double": Box(shape=(2,), dtype="float64", low=-1.0, high=3.0),
}
CASES = {
    "hwc": (IMAGES["hwc"], "discrete", {"hidden_sizes": ()}),
    "chw": (IMAGES["chw"], "discrete", {"hidden_sizes": (24,)}),
    "grey": (IMAGES["grey"], "box", {"hidden_sizes": ()}),
    "small picture": (Box(shape=(5, 5, 3), dtype="uint8", low=0.0, high=255.0), "discrete", {}),
    "integers": (Box(shape=(3,), dtype="int32", low=0.0, high=9.0), "discrete", {}),
    "dueling": (VECTOR, "discrete", {"kind": "q_values", "dueling": True}),
    "squash": (VECTOR, "box", {"squash": True}),
    "shared": (VECTOR, "double", {"shared_trunk": True}),
    "odd widths": (VECTOR, "double", {"hidden_sizes": (7, 70, 130)}),
}


def made(case, folder):
    """Spaces, canonical model and visited observations of a policy with random weights."""
    space, action, options = CASES[case]
    rng = np.random.default_rng(0)
    info = NetworkInfo(**{"hidden_sizes": (16,), "activation": "tanh", "normalize_obs": True} | options)
    network = policy_network(space, ACTIONS[action], info)
    load_arrays(network, {**state_arrays(network), **initial_weights(network, rng)})
    network.eval()
    folder.mkdir()
    paddle_child.save(network, space, folder)
    paddle_child.to_onnx(folder, OPSET)
    return (
        (space, ACTIONS[action]),
        canonicalize(read_converted(folder), ["obs"], network.output_names),
        drawn(space, 40, rng),
    )


@pytest.mark.parametrize("case", sorted(CASES))
def test_float32_is_the_onnx_policy(tmp_path, case):
    need("gcc")
    spaces, model, visited = made(case, tmp_path / "onnx")
    head = next(output.name for output in model.graph.output if output.name in ("logits", "mean", "q_values"))
    bundle = publish_model(tmp_path / "models", "made", spaces, {"float32": model}, visited, 0.0)
    folder = write(bundle, "float32", tmp_path / "edge")
    assert "PASS" in make(folder, "selftest")
    action, outputs, codes = CPolicy(folder, bundle, head).evaluate(visited["obs"])
    expected_action, expected = Session(model.SerializeToString()).run(visited, ["action", head])
    assert set(codes) == {0}
    assert row_error(outputs, expected.reshape(outputs.shape)) <= 1e-5
    if isinstance(spaces[1], Box):
        assert row_error(action, expected_action) <= 1e-5
    else:
        assert (action == expected_action).all()


def test_observations_that_are_not_finite_or_too_large_are_refused(tmp_path):
    bundle = Bundle.open(bundles.publish_box(tmp_path / "models"))
    policy = CPolicy(write(bundle, "float32", tmp_path / "edge"), bundle, "mean")
    good = np.zeros(4, np.float32)
    obs = np.stack([good, good, good])
    obs[0, 3], obs[1, 0] = np.nan, -np.inf
    _, _, codes = policy.evaluate(obs)
    assert codes == [1, 1, 0]


def test_a_float64_beyond_float32_is_refused(tmp_path):
    spaces, model, visited = made("shared", tmp_path / "onnx")
    bundle = publish_model(tmp_path / "models", "made", spaces, {"float32": model}, visited, 0.0)
    policy = CPolicy(write(bundle, "float32", tmp_path / "edge"), bundle, "mean")
    _, _, codes = policy.evaluate(np.array([[1e300, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    assert codes == [1, 0]


def test_an_operator_without_a_form_in_c_is_refused_by_name(tmp_path):
    bundle = Bundle.open(bundles.publish_discrete(tmp_path / "models"))
    model = onnx.load_model_from_string(bundle.onnx())
    at = next(index for index, node in enumerate(model.graph.node) if node.op_type == "ArgMax")
    model.graph.node[at].input[0] = "soft"
    model.graph.node.insert(at, helper.make_node("Softplus", ["logits"], ["soft"], "softly"))
    with pytest.raises(GateError, match="The layer Softplus softly cannot be turned into C"):
        read_program(model, bundle.manifest)


@pytest.mark.parametrize("publish", [bundles.publish_parts, bundles.publish_binary])
def test_spaces_without_a_form_in_c_are_refused(tmp_path, publish):
    with pytest.raises(GateError, match="The target c does not take this policy"):
        write(Bundle.open(publish(tmp_path / "models")), "float32", tmp_path / "edge")
    assert not (tmp_path / "edge").exists()
