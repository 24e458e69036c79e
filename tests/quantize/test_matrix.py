"""Every policy that training makes, by both methods: int8 ONNX computes what fake-quantized Paddle computes.

Algorithms × action spaces × trunks × methods. Runs are trained for a moment only: what is compared is not how well a
policy acts, but whether the file is the policy that Paddle decided, on 1,000 observations that it visits.
"""

import functools
from collections import Counter

import numpy as np
import pytest

import environments  # noqa: F401 - registers the environments
from export import paddle_child, qdq
from export.canonical import canonicalize, constants_of
from export.convert import OPSET, read_converted
from export.kernels import float_layers, optimized
from export.parity import run_onnx
from paddleport.checkpoint import Run
from paddleport.session import Session
from paddleport.spaces import Box, batch_size, leaf_spaces, rows_of
from quantize import command
from quantize.comparison import answers
from quantize.fake import fake_quantized
from quantize.layers import quantizable
from quantize.scales import Quantized, folder_of
from train.command import parse as parse_train
from train.command import run as train
from train.episodes import play
from train.network import network_of, run_network

EPISODES = {"CartPole-v1": 200, "Pendulum-v1": 5, "Snow-discrete-v0": 20, "Snow-box-v0": 20}
"""So many give 1,000 observations, also of a policy that has learnt nothing."""
ACTOR_CRITIC = [(algo, env_id) for algo in ("ppo", "a2c") for env_id in EPISODES]
Q_VALUES = [("dqn", env_id) for env_id in ("CartPole-v1", "Snow-discrete-v0")]
CASES = [
    pytest.param(algo, env_id, method, marks=[pytest.mark.slow] if algo == "a2c" else [])
    for algo, env_id in (*ACTOR_CRITIC, *Q_VALUES)
    for method in ("ptq", "qat")
]
OPTIONS = {
    "ppo": ("--num-envs", "2", "--n-steps", "64", "--batch-size", "64", "--epochs", "2"),
    "a2c": ("--num-envs", "4", "--n-steps", "8", "--trunk", "shared", "--activation", "tanh"),
    "dqn": ("--learning-starts", "64", "--replay-capacity", "500", "--num-envs", "1", "--dueling"),
}
ANY = ("--min-agreement", "0", "--max-drop", "1000000", "--episodes", "2", "--calibration-episodes", "5")
QAT = ("--qat-rounds", "2", "--qat-updates", "10")
FLIPS = 4
"""Where the best choice leads by more than so many flipped roundings move an output, it has to be the same.

One number in a head's input, rounded to its grid's next step, moves an output by step × weight: at most by the step
times the largest weight."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    @functools.cache
    def make(algo, env_id):
        folder = tmp_path_factory.mktemp("runs") / f"{algo}-{env_id}"
        sizes = ("--hidden-sizes",) if env_id.startswith("Snow") and algo != "a2c" else ("--hidden-sizes", "32", "32")
        options = ["--algo", algo, "--env", env_id, "--total-steps", "256", *OPTIONS[algo], *sizes]
        train(parse_train([*options, "--checkpoint-every", "100000", "--run-dir", str(folder)]))
        return folder

    return make


@pytest.fixture(scope="module")
def written(trained, tmp_path_factory):
    """The fake-quantized policy, its int8 form, its scales, and 1,000 observations that it visits."""

    @functools.cache
    def make(algo, env_id, method):
        run = trained(algo, env_id)
        command.run(command.parse([str(run), "--method", method, *ANY, *QAT]))
        found = Quantized.open(folder_of(run, method))
        checkpoint = Run(run).checkpoint()
        network = network_of(checkpoint, found.tensors())
        folder = tmp_path_factory.mktemp("converted")
        paddle_child.save(network, checkpoint.state.observation_space, folder)
        paddle_child.to_onnx(folder, OPSET)
        inputs = leaf_spaces(checkpoint.state.observation_space)
        model = canonicalize(read_converted(folder), inputs, network.output_names)
        int8 = qdq.quantized(model, found.document.layers, found.tensors())
        twin = fake_quantized(network, found.document.layers)
        visited = play(
            lambda obs: run_network(twin, obs)["action"], env_id, EPISODES[env_id], 5, keep=4000
        ).observations
        return twin, int8, found.document.layers, rows_of(visited, slice(1000))

    return make


@pytest.mark.parametrize(("algo", "env_id", "method"), CASES)
class TestEveryPolicy:
    def test_paddle_and_onnx_agree_on_visited_observations(self, written, algo, env_id, method):
        twin, int8, layers, obs = written(algo, env_id, method)
        assert batch_size(obs) == 1000
        expected = answers(twin, obs)
        got = run_onnx(Session(int8.SerializeToString()), obs, twin.output_names)
        if isinstance(twin.action_space, Box):
            low, high = twin.action_space.bounds()
            difference = np.abs(expected["action"] - got["action"]) / (high - low)
            assert (difference <= 0.01).mean() >= 0.99
            assert difference.max() <= 0.03  # the worst that is allowed
        else:
            name = "q_values" if "q_values" in expected else "logits"
            values = np.sort(expected[name], axis=1)
            clear = values[:, -1] - values[:, -2] > FLIPS * one_flip(layers["head" if algo == "dqn" else "policy_head"])
            assert (expected["action"] == got["action"])[clear].all()

    def test_every_weight_is_int8(self, written, algo, env_id, method):
        twin, int8, layers, _ = written(algo, env_id, method)
        assert set(layers) == set(quantizable(twin))
        constants = constants_of(int8)
        made_by = {name: node for node in int8.graph.node for name in node.output}
        linear = [node for node in int8.graph.node if node.op_type in ("Gemm", "MatMul", "Conv")]
        assert len(linear) == len(layers) + sum(scales.activation_digits - 1 for scales in layers.values())
        for node in linear:
            weight = made_by[node.input[1]]
            assert weight.op_type == "DequantizeLinear"
            assert constants[weight.input[0]].dtype == np.int8
        assert not [name for name, array in constants.items() if array.dtype == np.float32 and array.ndim > 1]

    def test_every_layer_runs_on_integers(self, written, algo, env_id, method):
        _, int8, layers, _ = written(algo, env_id, method)
        data = int8.SerializeToString()
        assert float_layers(data) == []
        kinds = Counter(node.op_type for node in optimized(data).graph.node)
        convolutions = sum(scales.weight_axis == 0 for scales in layers.values())
        assert kinds["QLinearConv"] == convolutions
        assert kinds["QGemm"] == sum(scales.activation_digits for scales in layers.values()) - convolutions
        assert not kinds.keys() & {"Gemm", "FusedGemm", "MatMul", "Conv", "FusedConv"}


def one_flip(scales):
    """How far one flipped rounding in a head's input moves an output, at most."""
    levels = 255 if scales.activation_unsigned else 127
    return scales.activation_abs_max / levels * max(scales.weight_abs_max)
