"""Every kind of space through Paddle, paddle2onnx and the canonical graph: proven equal, as the export does."""

import numpy as np
import pytest

from export import paddle_child, parity
from export.canonical import canonicalize
from export.convert import OPSET, read_converted
from export.observations import observation_sets
from paddleport.checkpoint import NetworkInfo
from paddleport.session import Session
from paddleport.spaces import Box, DictSpace, Discrete, MultiBinary, MultiDiscrete, TupleSpace, leaf_spaces
from spaces_drawn import drawn
from train.initialization import initial_weights
from train.network import load_arrays, policy_network, state_arrays

VECTOR = Box(shape=(3,), dtype="float64", low=None, high=None)
CHW = Box(shape=(4, 36, 36), dtype="uint8", low=0.0, high=255.0)
OBSERVATIONS = {
    "hwc": Box(shape=(36, 40, 3), dtype="uint8", low=0.0, high=255.0),
    "grey": Box(shape=(36, 40), dtype="uint8", low=0.0, high=255.0),
    "discrete": Discrete(5, start=2),
    "multi-discrete": MultiDiscrete(nvec=(3, 2), start=(1, 0)),
    "multi-binary": MultiBinary(shape=(2, 2)),
    "integers": Box(shape=(3,), dtype="int32", low=0.0, high=9.0),
    "small picture": Box(shape=(5, 5, 3), dtype="uint8", low=0.0, high=255.0),
    "nested": DictSpace(
        spaces={
            "a": VECTOR,
            "camera": CHW,
            "mode": Discrete(3),
            "rest": TupleSpace(
                spaces=(MultiDiscrete(nvec=(2, 2)), Box(shape=(2, 2), dtype="float32", low=-1.0, high=1.0))
            ),
        }
    ),
}
ACTIONS = {
    "discrete": Discrete(4, start=1),
    "multi-discrete": MultiDiscrete(nvec=(3, 2), start=(0, 5)),
    "multi-binary": MultiBinary(shape=(2, 3)),
    "box": Box(shape=(2, 2), dtype="float32", low=(-1.0, 0.5, None, 0.0), high=(3.0, 2.5, None, None)),
}
WITH_CAMERA = DictSpace(
    spaces={"camera": Box(shape=(36, 36, 1), dtype="uint8", low=0.0, high=255.0), "speed": VECTOR},
)
CASES = [
    *((space, "discrete", {}) for name, space in OBSERVATIONS.items() if name != "nested"),
    *((VECTOR, action, {}) for action in ("multi-discrete", "multi-binary")),
    (VECTOR, "box", {"squash": True}),
    (CHW, "discrete", {"kind": "q_values", "dueling": True}),
    (OBSERVATIONS["nested"], "box", {"shared_trunk": True}),
    (WITH_CAMERA, "discrete", {"trunk_class": "trunks_of_users:Looking"}),
]


@pytest.mark.parametrize(("space", "action", "options"), CASES)
def test_the_graph_is_the_policy(tmp_path, space, action, options):
    rng = np.random.default_rng(0)
    info = NetworkInfo(**{"hidden_sizes": (16,), "activation": "tanh", "normalize_obs": True} | options)
    network = policy_network(space, ACTIONS[action], info)
    weights = {**state_arrays(network), **initial_weights(network, rng)}
    for name in weights:
        weights[name] = weights[name] * 100 if name == "policy_head.weight" else weights[name]
        weights[name] = (
            rng.uniform(0.5, 2, weights[name].shape).astype(np.float32) if name == "obs_std" else weights[name]
        )
    load_arrays(network, weights)
    network.eval()
    paddle_child.save(network, space, tmp_path)
    paddle_child.to_onnx(tmp_path, OPSET)
    model = canonicalize(read_converted(tmp_path), leaf_spaces(space), network.output_names)
    assert [given.name for given in model.graph.input] == list(leaf_spaces(space))
    session = Session(model.SerializeToString())
    proof = parity.prove_float32(network, session, observation_sets(space, drawn(space, 30, rng), 0))
    assert proof.worst_visited <= parity.TOLERANCE
