"""The int8 file: Paddle's scales written into the float graph as QuantizeLinear and DequantizeLinear.

One step of a grid is abs-max / 127. Activations are uint8 with zero point 128, weights int8 a channel with zero point
0, biases int32 with scale activation × weight. That is the form in which ONNX Runtime runs every linear layer on
integers (QGemm) on CPUs, whatever stands between two layers; the grid is the symmetric one that Paddle decided.

Where a layer's input has two digits, each goes through the same int8 weights, and the products are added:
x ≈ coarse + fine, x·W + b ≈ coarse·W + (fine·W + b), with fine a second grid's answer to x - coarse.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from export.canonical import check, constant_name, constants_of
from paddleport.errors import ArtifactError
from paddleport.spaces import Array
from quantize.grid import LayerGrid, layer_grid
from quantize.scales import LayerScales

ZERO_POINT = 128
_LINEAR = ("Gemm", "MatMul", "Conv")


class _Writer:
    """Nodes and constants of the graph that is being written."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.constants = constants_of(model)
        self.nodes: list[onnx.NodeProto] = []
        self._grids: dict[tuple[str, np.float32], str] = {}

    def constant(self, name: str, value: Array) -> str:
        """Add a constant; returns its name."""
        self.constants[name] = value
        return name

    def on_grid(self, tensor: str, step: np.float32) -> str:
        """Put a tensor on a uint8 grid, once for each step that is asked for; returns the dequantized tensor."""
        if (tensor, step) not in self._grids:
            same = sum(1 for name, _ in self._grids if name == tensor)
            stem = f"{tensor}.grid{same or ''}"
            grid = [
                self.constant(f"{stem}.scale", np.asarray(step)),
                self.constant(f"{stem}.zero_point", np.asarray(ZERO_POINT, np.uint8)),
            ]
            self.node("QuantizeLinear", [tensor, *grid], f"{stem}.uint8")
            self._grids[tensor, step] = self.node("DequantizeLinear", [f"{stem}.uint8", *grid], f"{stem}.float")
        return self._grids[tensor, step]

    def remainder(self, tensor: str, rounded: str) -> str:
        """What putting a tensor on a grid left of it; returns that tensor."""
        name = f"{rounded}.left"
        return name if any(name in node.output for node in self.nodes) else self.node("Sub", [tensor, rounded], name)

    def weight(self, name: str, grid: LayerGrid) -> list[str]:
        """Replace a float weight by int8 numbers and their steps; returns the dequantized tensor for each digit.

        ONNX Runtime fuses a layer only where the weight's zero point is written out (a bias needs none). On CPUs
        without VNNI it then rewrites both for its unsigned kernels, and fails where two layers share them.
        """
        numbers = grid.weight_numbers(self.constants.pop(name))
        scale = self.constant(f"{name}.scale", grid.weight)
        copies = []
        for stem in [name, f"{name}.fine"][: len(grid.activation)]:
            zero_point = self.constant(f"{stem}.zero_point", np.zeros(grid.weight.shape, np.int8))
            inputs = [self.constant(f"{stem}.int8", numbers), scale, zero_point]
            copies.append(self.node("DequantizeLinear", inputs, f"{stem}.float", axis=grid.weight_axis))
        return copies

    def bias(self, name: str, grid: LayerGrid) -> str:
        """Replace a float bias by int32 numbers and their steps; returns the dequantized tensor."""
        numbers = grid.bias_numbers(self.constants.pop(name))
        inputs = [self.constant(f"{name}.int32", numbers), self.constant(f"{name}.scale", grid.bias)]
        return self.node("DequantizeLinear", inputs, f"{name}.float", axis=0)

    def relu(self, node: onnx.NodeProto) -> None:
        """Write Relu as Max with zero.

        ONNX Runtime fuses Gemm and Relu before it looks for quantized layers, and would leave a float Gemm behind.
        """
        zero = self.constant("zero", np.zeros((), np.float32))
        self.node("Max", [node.input[0], zero], node.output[0], name=node.name)

    def node(self, kind: str, inputs: list[str], output: str, *, name: str = "", axis: int | None = None) -> str:
        """Add a node; returns its output."""
        self.nodes.append(helper.make_node(kind, inputs, [output], name or None, axis=axis))
        return output


def quantized(
    model: onnx.ModelProto, layers: Mapping[str, LayerScales], weights: Mapping[str, Array]
) -> onnx.ModelProto:
    """The int8 form of a canonical float32 model.

    Args:
        model: as `canonicalize` made it; it is left as it is.
        layers: Paddle's scales by structural path.
        weights: float weights of the quantized policy by structural path, which may differ from the model's own.

    Returns:
        A checked model with the same inputs and outputs.

    Raises:
        ArtifactError: scales or weights do not belong to this graph, or a layer has none.
    """
    writer = _Writer(model)
    outputs = [output.name for output in model.graph.output]
    _exchange(writer.constants, {constant_name(path, outputs): weight for path, weight in weights.items()})
    missing = layers.keys() - {node.name for node in model.graph.node}
    if missing:
        raise ArtifactError("These scales name layers that the graph does not have", got=", ".join(sorted(missing)))
    for node in model.graph.node:
        if node.op_type in _LINEAR:
            _quantize_linear(writer, node, layers)
        elif node.op_type == "Relu":
            writer.relu(node)
        else:
            writer.nodes.append(node)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:], result.graph.initializer[:]
    result.graph.node.extend(writer.nodes)
    result.graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in writer.constants.items())
    check(result)
    return result


def _exchange(constants: dict[str, Array], weights: Mapping[str, Array]) -> None:
    for name in constants.keys() & weights.keys():
        if constants[name].shape != weights[name].shape:
            raise ArtifactError("These quantized weights do not belong to this policy", got=name)
        constants[name] = weights[name]


def _quantize_linear(writer: _Writer, node: onnx.NodeProto, layers: Mapping[str, LayerScales]) -> None:
    scales = layers.get(node.name)
    if scales is None or node.op_type != "Gemm":
        raise ArtifactError(
            "A layer of this policy has no int8 form", got=f"{node.op_type} {node.name}", todo="Quantize the run again"
        )
    tensor, weight, bias = node.input
    grid = layer_grid(scales, writer.constants[bias])
    *coarse_weight, fine_weight = writer.weight(weight, grid)
    with_bias = [fine_weight, writer.bias(bias, grid)]
    coarse = writer.on_grid(tensor, grid.activation[0])
    if not coarse_weight:
        writer.node("Gemm", [coarse, *with_bias], node.output[0], name=node.name)
        return
    fine = writer.on_grid(writer.remainder(tensor, coarse), grid.activation[1])
    products = [
        writer.node("Gemm", [coarse, *coarse_weight], f"{node.name}.coarse", name=f"{node.name}.coarse"),
        writer.node("Gemm", [fine, *with_bias], f"{node.name}.fine", name=node.name),
    ]
    writer.node("Add", products, node.output[0], name=f"{node.name}.sum")
