"""The int8 file: int8 weights everywhere, integer kernels everywhere, Paddle's numbers."""

from collections import Counter

import msgspec
import numpy as np
import pytest

from export import qdq
from export.canonical import constants_of
from export.kernels import float_layers, optimized
from export.parity import run_onnx
from paddleport.bundle import row_error
from paddleport.errors import ArtifactError
from paddleport.session import Session
from paddleport.spaces import rows_of
from policies import KINDS, build, make_example
from quantize.fake import fake_quantized
from quantize.gate import action_agreement
from quantize.grid import signed
from train.network import load_arrays, run_network, state_arrays


def test_every_gemm_is_fed_by_int8_weights_and_uint8_activations(example):
    made_by = {name: node for node in example.int8.graph.node for name in node.output}
    constants = constants_of(example.int8)
    gemms = [node for node in example.int8.graph.node if node.op_type in ("Gemm", "MatMul")]
    assert len(gemms) >= 2 * (len(example.kind.hidden_sizes) + 1)
    for gemm in gemms:
        activation, weight = (made_by[name] for name in gemm.input[:2])
        assert activation.op_type == weight.op_type == "DequantizeLinear"
        assert constants[weight.input[0]].dtype == np.int8
        assert constants[weight.input[1]].shape == constants[weight.input[0]].shape[1:]
        assert not constants[weight.input[2]].any()
        path = gemm.name.removesuffix(".coarse")
        assert constants[activation.input[2]] == (0 if example.layers[path].activation_unsigned else 128)
        if len(gemm.input) == 3:
            assert constants[made_by[gemm.input[2]].input[0]].dtype == np.int32
    assert not any(array.dtype == np.float32 and array.ndim == 2 for array in constants.values())


def test_every_layer_runs_on_integers_in_onnx_runtime(example):
    data = example.int8.SerializeToString()
    assert float_layers(data) == []
    kinds = Counter(node.op_type for node in optimized(data).graph.node)
    layers = 2 * (len(example.kind.hidden_sizes) + 1)
    assert kinds["QGemm"] == layers + 2  # the two layers that read the observation have two digits each
    assert not kinds.keys() & {"Gemm", "FusedGemm", "MatMul"}


def test_a_float_layer_behind_dequantize_is_found(examples):
    example = examples["discrete-from-5"]
    # ONNX Runtime fuses Gemm and Relu before it looks for quantized layers, unless the Relu ends in a grid from zero.
    plain = qdq.Form(signed=False, float_biases=False, relu_as_max=False)
    model = qdq.quantized(example.model, signed(example.layers), {}, form=plain)
    assert len(float_layers(model.SerializeToString())) == 2


def test_where_a_relu_ends_in_no_grid_from_zero_the_layers_still_run_on_integers(examples):
    example = examples["discrete-from-5"]
    model = qdq.quantized(example.model, signed(example.layers), {})
    assert float_layers(model.SerializeToString()) == []
    assert Counter(node.op_type for node in model.graph.node)["Max"] == 4


@pytest.mark.parametrize(("name", "ratio"), [("discrete", 0.56), ("box-asymmetric", 0.57), ("discrete-from-5", 0.31)])
def test_it_is_smaller_than_float32(examples, name, ratio):
    size, float_size = (len(model.SerializeToString()) for model in (examples[name].int8, examples[name].model))
    assert size < ratio * float_size


def test_it_computes_what_fake_quantized_paddle_computes(example):
    got = run_onnx(example.session("int8"), example.sets.visited, example.names)
    expected = run_network(fake_quantized(example.network, example.layers), example.sets.visited)
    assert action_agreement(example.kind.action_space, expected["action"], got["action"]) >= 0.999
    for name in example.names:
        if expected[name].dtype.kind == "f":
            # The grids are the same: only a number right on a rounding boundary may fall to its other side.
            errors = np.array([row_error(got[name][[row]], expected[name][[row]]) for row in range(len(got[name]))])
            assert errors.max() < 0.1
            assert (errors > 1e-4).mean() < 0.02


def test_it_stays_near_float32(example):
    visited = example.sets.visited
    got = run_onnx(example.session("int8"), visited, example.names)["action"]
    expected = run_network(example.network, visited)["action"]
    assert action_agreement(example.kind.action_space, expected, got) > 0.98


def test_it_takes_every_batch_size(example):
    whole = run_onnx(example.session("int8"), rows_of(example.sets.visited, slice(64)), example.names, batch=64)
    for batch in (1, 2, 7):
        parts = run_onnx(example.session("int8"), rows_of(example.sets.visited, slice(64)), example.names, batch=batch)
        assert all(row_error(parts[name], whole[name]) < 0.1 for name in example.names)


def test_a_bias_far_larger_than_its_weights_survives(tmp_path):
    kind = KINDS["discrete"]
    network = build(kind)
    weights = state_arrays(network)
    weights["value_head.weight"] = weights["value_head.weight"] * 1e-9
    weights["value_head.bias"] = np.full(1, 1234.5, np.float32)
    weights["policy_trunk.layers.0.weight"][:, 3] = 0
    weights["policy_trunk.layers.0.bias"][3] = 0.7
    load_arrays(network, weights)
    example = make_example(kind, tmp_path / "converted", network)
    got = run_onnx(example.session("int8"), example.sets.visited, example.names)
    expected = run_network(network, example.sets.visited)
    assert np.allclose(got["value"], 1234.5, rtol=1e-6)
    assert (got["action"] == expected["action"]).mean() > 0.98


def test_the_quantized_policys_own_weights_are_the_ones_written(examples):
    example = examples["box-asymmetric"]
    changed = {**example.weights, "log_std": np.full(4, -1.5, np.float32)}
    changed["value_head.bias"] = changed["value_head.bias"] + 3
    session = Session(qdq.quantized(example.model, example.layers, changed).SerializeToString())
    got, before = (run_onnx(s, example.sets.visited, example.names) for s in (session, example.session("int8")))
    assert np.allclose(got["log_std"], -1.5)
    assert np.allclose(got["value"], before["value"] + 3, atol=1e-3)


def test_scales_of_another_network_are_refused(examples):
    box, discrete = examples["box"], examples["discrete"]
    layers = dict(box.layers)
    scales = layers.pop("value_head")
    with pytest.raises(ArtifactError, match=r"no int8 form.*value_head"):
        qdq.quantized(box.model, layers, {})
    with pytest.raises(ArtifactError, match="elsewhere"):
        qdq.quantized(box.model, {**box.layers, "elsewhere": scales}, {})
    with pytest.raises(ArtifactError, match="do not belong"):
        qdq.quantized(box.model, box.layers, discrete.weights)


def test_one_digit_is_coarser_than_two(examples):
    example = examples["far-away"]
    one = {path: msgspec.structs.replace(scales, activation_digits=1) for path, scales in example.layers.items()}
    session = Session(qdq.quantized(example.model, one, {}).SerializeToString())
    exact = run_network(example.network, example.sets.visited)
    errors = [
        np.abs(run_onnx(s, example.sets.visited, ("logits",))["logits"] - exact["logits"]).mean()
        for s in (session, example.session("int8"))
    ]
    assert errors[1] < errors[0] / 3
