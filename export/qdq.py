"""The int8 files: Paddle's scales written into the float graph as QuantizeLinear and DequantizeLinear.

One step of a grid is abs-max / 127, weights are int8 a channel with zero point 0. There are two forms of one set of
scales, for two consumers:

- ONNX Runtime on CPUs: activations are uint8, with zero point 128 where they may be negative (the symmetric grid that
  Paddle decided) and 0 where they never are (a step is then abs-max / 255); biases are int32 with scale activation ×
  weight. In that form it runs every layer on integers (QGemm, QLinearConv), whatever stands between two layers.
- TensorRT: activations are int8 with zero point 0, biases stay float. Its rules for explicit quantization are in
  `tests/export/test_tensorrt.py`.

Where a layer's input has two digits, each goes through the same int8 weights, and the products are added:
x ≈ coarse + fine, x·W + b ≈ coarse·W + (fine·W + b), with fine a second grid's answer to x - coarse.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from export.canonical import check, constant_name
from export.qdq_graph import Graph, without_unused
from paddleport.errors import ArtifactError
from paddleport.spaces import Array
from quantize.grid import LayerGrid, layer_grid
from quantize.grid import signed as signed_scales
from quantize.scales import LayerScales

_LINEAR = ("Gemm", "MatMul", "Conv")


@dataclass(frozen=True)
class Form:
    """How grids are written."""

    signed: bool
    """int8 with zero point 0 for every activation; otherwise uint8."""
    float_biases: bool
    relu_as_max: bool
    """Whether a Relu that no grid from zero upwards follows becomes Max.

    ONNX Runtime fuses Gemm and Relu before it looks for quantized layers, and would leave a float Gemm behind."""


CPU = Form(signed=False, float_biases=False, relu_as_max=True)
TENSORRT = Form(signed=True, float_biases=True, relu_as_max=False)


def quantized(
    model: onnx.ModelProto,
    layers: Mapping[str, LayerScales],
    weights: Mapping[str, Array],
    *,
    kept_float: Collection[str] = (),
    form: Form = CPU,
) -> onnx.ModelProto:
    """The int8 form of a canonical float32 model.

    Args:
        model: as `canonicalize` made it; it is left as it is.
        layers: Paddle's scales by structural path.
        weights: float weights of the quantized policy by structural path, which may differ from the model's own.
        kept_float: structural paths of the layers that stay in float.
        form: whom it is for.

    Returns:
        A checked model with the same inputs and outputs.

    Raises:
        ArtifactError: scales or weights do not belong to this graph, or a layer has none and was not named to stay.
    """
    graph = Graph(model)
    outputs = [output.name for output in model.graph.output]
    _exchange(graph.constants, {constant_name(path, outputs): weight for path, weight in weights.items()})
    missing = layers.keys() - {node.name for node in model.graph.node}
    if missing:
        raise ArtifactError("These scales name layers that the graph does not have", got=", ".join(sorted(missing)))
    writer = _Writer(graph, signed_scales(layers) if form.signed else layers, set(kept_float), form)
    for node in model.graph.node:
        writer.add(node)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:], result.graph.initializer[:]
    result.graph.node.extend(without_unused(graph.nodes, outputs))
    used = {name for node in result.graph.node for name in node.input}
    result.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in graph.constants.items() if k in used)
    check(result)
    return result


def _exchange(constants: dict[str, Array], weights: Mapping[str, Array]) -> None:
    for name in constants.keys() & weights.keys():
        if constants[name].shape != weights[name].shape:
            raise ArtifactError("These quantized weights do not belong to this policy", got=name)
        constants[name] = weights[name]


class _Writer:
    """Writes one node after the other, layers on their grids."""

    def __init__(self, graph: Graph, layers: Mapping[str, LayerScales], kept_float: set[str], form: Form) -> None:
        self._graph = graph
        self._layers = layers
        self._kept_float = kept_float
        self._form = form

    def add(self, node: onnx.NodeProto) -> None:
        """Write a node, or what stands for it."""
        if node.op_type in _LINEAR and not self._stays_float(node):
            self._layer(node)
        elif node.op_type == "Relu" and self._form.relu_as_max and not self._ends_in_grids(node.output[0]):
            zero = self._graph.constant("zero", np.zeros((), np.float32))
            self._graph.node("Max", [node.input[0], zero], node.output[0], name=node.name)
        else:
            self._graph.nodes.append(node)

    def _stays_float(self, node: onnx.NodeProto) -> bool:
        path = next((name for name in node.input if name.endswith(".weight")), node.name)
        named = path.removesuffix(".weight")
        return any(named == kept or named.startswith(f"{kept}.") for kept in self._kept_float)

    def _ends_in_grids(self, tensor: str) -> bool:
        """Whether every reader of a tensor is a layer that takes it on one grid from zero upwards.

        ONNX Runtime then drops a Relu in front, which such a grid does anyway.
        """
        readers = [self._layers.get(node.name) for node in self._graph.readers(tensor)]
        return bool(readers) and all(s and s.activation_unsigned and s.activation_digits == 1 for s in readers)

    def _layer(self, node: onnx.NodeProto) -> None:
        scales = self._layers.get(node.name)
        if scales is None or node.op_type == "MatMul" or len(node.input) != 3:
            raise ArtifactError(
                "A layer of this policy has no int8 form",
                got=f"{node.op_type} {node.name}",
                todo="Quantize the run again",
            )
        tensor, weight, bias = node.input
        grid = layer_grid(scales, self._graph.constants[bias])
        *coarse_weight, fine_weight = self._weight(weight, grid)
        with_bias = [fine_weight, bias if self._form.float_biases else self._bias(bias, grid)]
        coarse = self._activation(tensor, scales, grid)
        if not coarse_weight:
            self._graph.copy(node, [coarse, *with_bias], node.output[0])
            return
        rest = self._graph.remainder(tensor, coarse)
        fine = self._graph.on_grid(rest, grid.activation[1], self._zero_point(unsigned=False))
        products = [
            self._graph.copy(node, [coarse, *coarse_weight], f"{node.name}.coarse", name=f"{node.name}.coarse"),
            self._graph.copy(node, [fine, *with_bias], f"{node.name}.fine"),
        ]
        self._graph.node("Add", products, node.output[0], name=f"{node.name}.sum")

    def _activation(self, tensor: str, scales: LayerScales, grid: LayerGrid) -> str:
        """A layer's input on its grid; returns the dequantized tensor.

        The grid stands before what only rearranges the tensor, where the layer that made it can end in it. An image of
        the environment's is on its grid as it comes.
        """
        step, zero_point = grid.activation[0], self._zero_point(unsigned=grid.unsigned)
        image = self._graph.image(tensor) if scales.reads_image else None
        if image is not None:
            return self._graph.dequantized(image, step, zero_point)
        source, layouts = self._graph.before_layout(tensor)
        rounded = self._graph.on_grid(source, step, zero_point)
        for layout in layouts:
            rounded = self._graph.copy(layout, [rounded, *layout.input[1:]], f"{rounded}.{layout.op_type.lower()}")
        return self._graph.on_grid(rounded, step, zero_point) if layouts else rounded

    def _zero_point(self, *, unsigned: bool) -> Array:
        if self._form.signed:
            return np.asarray(0, np.int8)
        return np.asarray(0 if unsigned else 128, np.uint8)

    def _weight(self, name: str, grid: LayerGrid) -> list[str]:
        """Replace a float weight by int8 numbers and their steps; returns the dequantized tensor for each digit.

        ONNX Runtime fuses a layer only where the weight's zero point is written out (a bias needs none). On CPUs
        without VNNI it then rewrites both for its unsigned kernels, and fails where two layers share them.
        """
        graph = self._graph
        numbers = grid.weight_numbers(graph.constants.pop(name))
        scale = graph.constant(f"{name}.scale", grid.weight)
        copies = []
        for stem in [name, f"{name}.fine"][: len(grid.activation)]:
            zero_point = graph.constant(f"{stem}.zero_point", np.zeros(grid.weight.shape, np.int8))
            inputs = [graph.constant(f"{stem}.int8", numbers), scale, zero_point]
            copies.append(graph.node("DequantizeLinear", inputs, f"{stem}.float", axis=grid.weight_axis))
        return copies

    def _bias(self, name: str, grid: LayerGrid) -> str:
        """Replace a float bias by int32 numbers and their steps; returns the dequantized tensor."""
        graph = self._graph
        numbers = grid.bias_numbers(graph.constants.pop(name))
        inputs = [graph.constant(f"{name}.int32", numbers), graph.constant(f"{name}.scale", grid.bias)]
        return graph.node("DequantizeLinear", inputs, f"{name}.float", axis=0)
