"""The int8 file for TensorRT follows its published rules for explicit quantization.

The rules are those of NVIDIA's TensorRT documentation, "Working with Quantized Types" and "Explicit Quantization":
symmetric quantization alone (zero point 0), signed 8-bit integers, scales that are constants and above zero, one scale
a tensor for activations and one a channel for weights (of the output channels), pre-quantized weights only through a
DequantizeLinear, and biases in the layers' own floating-point type.
"""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from export import qdq
from export.canonical import constants_of
from export.parity import run_onnx
from paddleport.session import Session
from policies import IMAGE_KINDS, KINDS, make_example
from quantize.fake import fake_quantized
from quantize.gate import action_agreement
from quantize.grid import signed
from train.network import run_network

_WEIGHT_AXIS = {"Conv": 0, "Gemm": 1}
_PAIR = ("QuantizeLinear", "DequantizeLinear")


def violations(model: onnx.ModelProto) -> list[str]:
    """What of a model TensorRT would not take, in words."""
    constants = constants_of(model)
    made_by = {name: node for node in model.graph.node for name in node.output}
    found = []
    for node in model.graph.node:
        if node.op_type in _PAIR:
            found += [f"{node.output[0]}: {what}" for what in _of_grid(node, constants, made_by)]
        if node.op_type in _WEIGHT_AXIS:
            found += [f"{node.name}: {what}" for what in _of_layer(node, constants, made_by)]
    return found


def _of_grid(node, constants, made_by):
    if len(node.input) != 3 or node.input[1] not in constants or node.input[2] not in constants:
        yield "scale or zero point is no constant, or left to a default"
        return
    scale, zero_point = constants[node.input[1]], constants[node.input[2]]
    if zero_point.dtype != np.int8:
        yield f"{zero_point.dtype} is not int8"
    if zero_point.any():
        yield "its zero point is not 0"
    if scale.dtype != np.float32 or not (scale > 0).all() or not np.isfinite(scale).all():
        yield "its scales are not float32 above zero"
    is_weight = node.input[0] in constants
    if scale.ndim > (1 if is_weight else 0):
        yield "more than one scale for an activation"
    maker = made_by.get(node.input[0])
    if node.op_type == "DequantizeLinear" and not is_weight and (maker is None or maker.op_type != "QuantizeLinear"):
        yield "it dequantizes what no QuantizeLinear made"


def _of_layer(node, constants, made_by):
    activation, weight = made_by.get(node.input[0]), made_by.get(node.input[1])
    if activation is None or activation.op_type != "DequantizeLinear":
        yield "its input is not quantized"
    if weight is None or weight.op_type != "DequantizeLinear" or weight.input[0] not in constants:
        yield "its weight is no constant behind a DequantizeLinear"
        return
    axes = [attribute.i for attribute in weight.attribute if attribute.name == "axis"]
    if axes != [_WEIGHT_AXIS[node.op_type]]:
        yield f"its weight has scales along axis {axes}"
    if len(node.input) == 3 and (node.input[2] not in constants or constants[node.input[2]].dtype != np.float32):
        yield "its bias is not a float constant"


@pytest.fixture(scope="module", params=["discrete", "box", "discrete-from-5", *IMAGE_KINDS])
def example(request, tmp_path_factory):
    kind = {**KINDS, **IMAGE_KINDS}[request.param]
    return make_example(kind, tmp_path_factory.mktemp("converted") / "model")


@pytest.fixture(scope="module")
def model(example):
    return qdq.quantized(example.model, example.layers, example.weights, form=qdq.TENSORRT)


def test_it_keeps_the_rules(model):
    assert violations(model) == []


def test_the_file_for_cpus_does_not(example):
    assert len(violations(example.int8)) > 5


def test_a_bias_of_integers_breaks_them(example):
    form = qdq.Form(signed=True, float_biases=False, relu_as_max=False)
    found = violations(qdq.quantized(example.model, example.layers, example.weights, form=form))
    assert any("bias is not a float constant" in each for each in found)


def test_a_zero_point_and_an_axis_that_are_wrong_break_them(model):
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model)
    weight = next(node for node in wrong.graph.node if node.output[0].endswith("weight.float"))
    del weight.attribute[:]
    weight.attribute.append(helper.make_attribute("axis", 3))
    grid = next(node for node in wrong.graph.node if node.op_type == "QuantizeLinear")
    wrong.graph.initializer.append(helper.make_tensor("moved", TensorProto.INT8, [], [5]))
    grid.input[2] = "moved"
    found = violations(wrong)
    assert any("axis [3]" in each for each in found)
    assert any("zero point is not 0" in each for each in found)


def test_it_acts_as_paddle_does_on_symmetric_grids(example, model):
    visited = example.sets.visited
    got = run_onnx(Session(model.SerializeToString()), visited, ("action",))["action"]
    expected = run_network(fake_quantized(example.network, signed(example.layers)), visited)["action"]
    assert action_agreement(example.kind.action_space, expected, got) >= 0.99
