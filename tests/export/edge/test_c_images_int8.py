"""Convolutions on integers: an image that is on its grid as it comes, grids from zero behind Relu, layouts between."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from c_policies import CPolicy, make, need, publish_model, write
from export.edge.reading import read_program
from paddleport.errors import GateError
from paddleport.spaces import Box, Discrete

HIGH, WIDE, CHANNELS, FILTERS, CHOICES = 20, 24, 3, 10, 5
SPACE = Box(shape=(HIGH, WIDE, CHANNELS), dtype="uint8", low=0.0, high=255.0)
ROWS, COLUMNS = (HIGH - 8) // 4 + 1, (WIDE - 8) // 4 + 1
FLAT = FILTERS * ROWS * COLUMNS


class Writer:
    """An ONNX graph in the making."""

    def __init__(self):
        self.nodes, self.constants = [], {}
        self.rng = np.random.default_rng(3)

    def constant(self, name, value):
        self.constants[name] = np.asarray(value)
        return name

    def node(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def grid(self, name, step, zero_point=0):
        return [
            self.constant(f"{name}.step", np.float32(step)),
            self.constant(f"{name}.zero_point", np.uint8(zero_point)),
        ]

    def on_grid(self, tensor, step, zero_point=0):
        grid = self.grid(tensor, step, zero_point)
        self.node("QuantizeLinear", [tensor, *grid], f"{tensor}.uint8")
        return self.node("DequantizeLinear", [f"{tensor}.uint8", *grid], f"{tensor}.real")

    def weights(self, name, shape, axis, step):
        """Int8 weights and int32 biases, each behind DequantizeLinear."""
        outputs = shape[axis]
        scale = self.rng.uniform(0.002, 0.01, outputs).astype(np.float32)
        weight = [
            self.constant(f"{name}.int8", self.rng.integers(-127, 128, shape).astype(np.int8)),
            self.constant(f"{name}.scale", scale),
            self.constant(f"{name}.zero", np.zeros(outputs, np.int8)),
        ]
        bias = [
            self.constant(f"{name}.bias.int32", self.rng.integers(-9000, 9000, outputs).astype(np.int32)),
            self.constant(f"{name}.bias.scale", scale * np.float32(step)),
        ]
        self.node("DequantizeLinear", weight, f"{name}.real", axis=axis)
        self.node("DequantizeLinear", bias, f"{name}.bias.real", axis=0)
        return [f"{name}.real", f"{name}.bias.real"]

    def model(self):
        graph = helper.make_graph(
            self.nodes,
            "policy",
            [helper.make_tensor_value_info("obs", TensorProto.UINT8, ["batch", *SPACE.shape])],
            [
                helper.make_tensor_value_info("action", TensorProto.INT64, ["batch"]),
                helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CHOICES]),
            ],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


def policy(zero_point=0, pads=(0, 0, 0, 0)):
    """obs → Conv 8×8, stride 4, Relu → Gemm, as export/qdq.py writes it."""
    writer = Writer()
    step, hidden = np.float32(1 / 255), np.float32(0.01)
    writer.node("DequantizeLinear", ["obs", *writer.grid("image", step)], "image")
    writer.node("Transpose", ["image"], "planes", perm=[0, 3, 1, 2])
    layer = writer.weights("conv", (FILTERS, CHANNELS, 8, 8), 0, step)
    writer.node("Conv", [writer.on_grid("planes", step), *layer], "features", strides=[4, 4], pads=list(pads))
    real = writer.on_grid("features", hidden, zero_point)
    writer.node("Reshape", [real, writer.constant("flat", np.array([-1, FLAT], np.int64))], "vector")
    layer = writer.weights("head", (FLAT, CHOICES), 1, hidden)
    writer.node("Gemm", [writer.on_grid("vector", hidden, zero_point), *layer], "logits")
    writer.node("ArgMax", ["logits"], "action", axis=-1, keepdims=0)
    return writer.model()


@pytest.mark.parametrize("zero_point", [0, 128])
def test_int8_convolutions_are_the_onnx_policys_to_the_last_digit(tmp_path, zero_point):
    need("gcc")
    model = policy(zero_point)
    obs = np.random.default_rng(0).integers(0, 256, (50, *SPACE.shape), dtype=np.uint8)
    obs[0], obs[1] = 0, 255
    forms = {"float32": model, "int8": model}
    bundle = publish_model(tmp_path / "models", "seeing", (SPACE, Discrete(CHOICES)), forms, {"obs": obs}, 1e-6)
    folder = write(bundle, "int8", tmp_path / "edge")
    flags = "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
    assert "PASS" in make(folder, "selftest", CFLAGS=flags)
    make(folder, "clean")
    action, logits, codes = CPolicy(folder, bundle, "logits").evaluate(obs)
    expected_action, expected = bundle.session("int8").run({"obs": obs}, ["action", "logits"])
    np.testing.assert_allclose(logits, expected, rtol=1e-6)
    assert (action == expected_action).all()
    assert set(codes) == {0}
    # The image is read where it lies, and numbers between layers are bytes.
    program = read_program(model, bundle.manifest)
    assert program.steps[0].source is program.obs
    assert {step.source.dtype for step in program.steps[:2]} == {"uint8", "uint8" if zero_point == 0 else "int8"}


def test_padding_is_refused_by_the_layers_name(tmp_path):
    model = policy()
    obs = np.zeros((2, *SPACE.shape), np.uint8)
    spaces = (SPACE, Discrete(CHOICES))
    bundle = publish_model(tmp_path / "models", "seeing", spaces, {"float32": model}, {"obs": obs}, 0.0)
    conv = next(node for node in model.graph.node if node.op_type == "Conv")
    next(each for each in conv.attribute if each.name == "pads").ints[:] = [1, 1, 1, 1]
    with pytest.raises(GateError, match=r"The layer Conv features cannot be turned into C: expected .* no padding"):
        read_program(model, bundle.manifest)


def test_sums_that_could_overflow_are_refused_by_the_layers_name(tmp_path):
    model = policy()
    bias = next(each for each in model.graph.initializer if each.name == "head.bias.int32")
    bias.CopyFrom(numpy_helper.from_array(np.full(CHOICES, 2**31 - 1, np.int32), bias.name))
    obs = np.zeros((2, *SPACE.shape), np.uint8)
    spaces = (SPACE, Discrete(CHOICES))
    bundle = publish_model(tmp_path / "models", "seeing", spaces, {"float32": model}, {"obs": obs}, 0.0)
    with pytest.raises(GateError, match="The layer Gemm logits can overflow 32-bit sums"):
        write(bundle, "float32", tmp_path / "edge")
