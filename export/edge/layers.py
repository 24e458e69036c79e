"""Linear layers and convolutions of an ONNX graph, in float32 and on integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from export.edge import views
from export.edge.graph import Graph, attribute, refused, title
from export.edge.program import Activation, FloatLayer, Grid, IntegerLayer, Operation, Patches, Tensor, Value
from paddleport.spaces import Array

LAYERS = frozenset({"Gemm", "Conv"})
_ZERO_POINTS = (0, 128)


@dataclass(frozen=True)
class IntegerSum:
    """A linear layer on integers as the graph says it: Σ source × weight + bias, one unit of it worth `scale`."""

    node: onnx.NodeProto
    tensor: str
    """The layer's input."""
    grid: Grid
    """Which it is on."""
    weight: Array
    """int8 [outputs, inputs], or [outputs, channels, height, width]."""
    bias: Array
    scale: Array


def float_layer(
    graph: Graph, node: onnx.NodeProto, source: Tensor, prepare: tuple[Operation, ...]
) -> tuple[FloatLayer, Array]:
    """A Gemm or Conv with constant weights; returns it with the index of its output."""
    weight = graph.constant(node, 1)
    weight = _outputs_first(node, weight).astype(np.float32)
    bias = graph.constant(node, 2) if len(node.input) > 2 else np.zeros(len(weight), np.float32)
    rows, patches, index = _laid_out(node, weight, source)
    result = Value("float32", index.size)
    layer = FloatLayer(title(node), source.value, result, rows.T, bias.reshape(-1), patches, prepare)
    return layer, index


def is_integer(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether a layer's weights are int8."""
    return (
        node.op_type in LAYERS
        and graph.is_computed(node.input[1])
        and graph.producer(node.input[1]).op_type == "DequantizeLinear"
    )


def integer_sum(graph: Graph, node: onnx.NodeProto) -> IntegerSum | None:
    """Read a layer on integers, in one digit or in two; None where the node is none."""
    if is_integer(graph, node):
        return _one_digit(graph, node)
    if node.op_type != "Add" or not all(graph.is_computed(name) for name in node.input):
        return None
    coarse, fine = (graph.producer(name) for name in node.input)
    if not (is_integer(graph, coarse) and is_integer(graph, fine)):
        return None
    first, second = _one_digit(graph, coarse), _one_digit(graph, fine)
    rounded, left = source_of(graph, first.tensor), graph.producer(source_of(graph, second.tensor))
    if left.op_type != "Sub" or list(left.input) != [rounded, first.tensor] or first.grid.unsigned:
        raise refused(fine, "the second digit of the layer beside it", title(left))
    if (first.weight != second.weight).any() or first.bias.any():
        raise refused(node, "the same weights for both digits, and one bias", "others")
    grid = Grid(first.grid.steps + second.grid.steps)
    return IntegerSum(node, rounded, grid, second.weight, second.bias, second.scale)


def grid_of(graph: Graph, node: onnx.NodeProto) -> Grid:
    """The grid of a DequantizeLinear or QuantizeLinear of activations.

    Raises:
        GateError: it is none of uint8 around 0 or 128.
    """
    step, zero_point = np.float32(graph.constant(node, 1)), graph.constant(node, 2)
    if zero_point.dtype != np.uint8 or zero_point.size != 1 or int(zero_point) not in _ZERO_POINTS:
        raise refused(node, "a grid of uint8 around 0 or 128", f"{zero_point.dtype} around {zero_point}")
    return Grid((float(step),), unsigned=int(zero_point) == 0)


def source_of(graph: Graph, tensor: str) -> str:
    """The real tensor that a DequantizeLinear stands for; the observation, where that is on the grid as it comes.

    Raises:
        GateError: the tensor comes from something else.
    """
    node = graph.producer(tensor)
    if node.op_type != "DequantizeLinear":
        raise refused(node, "a tensor on a grid", node.op_type)
    if not graph.is_computed(node.input[0]):
        return str(node.input[0])
    put = graph.producer(node.input[0])
    if put.op_type != "QuantizeLinear" or grid_of(graph, put) != grid_of(graph, node):
        raise refused(node, "the same grid before and behind", title(put))
    return str(put.input[0])


def integer_layer(
    found: IntegerSum, source: Tensor, activation: Activation, grid: Grid | None
) -> tuple[IntegerLayer, Array]:
    """The layer as a step of the program, with the index of its output."""
    rows, patches, index = _laid_out(found.node, found.weight, source)
    result = Value(grid.dtype if grid else "float32", index.size)
    layer = IntegerLayer(
        name=title(found.node),
        source=source.value,
        result=result,
        weight=rows,
        bias=found.bias,
        scale=found.scale,
        activation=activation,
        grid=grid,
        patches=patches,
    )
    return layer, index


def _one_digit(graph: Graph, node: onnx.NodeProto) -> IntegerSum:
    number = graph.producer(node.input[0])
    while number.op_type in views.KINDS:  # what only rearranges numbers leaves them on their grid
        number = graph.producer(number.input[0])
    if number.op_type != "DequantizeLinear":
        raise refused(node, "its input on a grid of uint8", title(number))
    grid = grid_of(graph, number)
    weight, weight_scale = _dequantized(graph, node, 1)
    outputs = weight.shape[1] if node.op_type == "Gemm" else weight.shape[0]
    bias = _dequantized(graph, node, 2)[0] if len(node.input) > 2 else np.zeros(outputs, np.int32)
    if bias.dtype != np.int32:
        raise refused(node, "a bias of int32", bias.dtype)
    scale = np.broadcast_to((np.float32(grid.steps[0]) * weight_scale.reshape(-1)).astype(np.float64), (outputs,))
    rows = _outputs_first(node, weight)
    return IntegerSum(node, node.input[0], grid, rows, bias.reshape(-1), scale)


def _dequantized(graph: Graph, node: onnx.NodeProto, position: int) -> tuple[Array, Array]:
    """The integers and the steps of a weight or bias."""
    given = graph.producer(node.input[position])
    if len(given.input) > 2 and graph.constant(given, 2).any():
        raise refused(node, "weights around zero", "a zero point")
    return graph.constant(given, 0), graph.constant(given, 1)


def _outputs_first(node: onnx.NodeProto, weight: Array) -> Array:
    """[outputs, …]."""
    if node.op_type == "Conv":
        return weight
    factors = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0), attribute(node, "transA", 0)
    if factors != (1.0, 1.0, 0):
        raise refused(node, "alpha 1, beta 1, transA 0", factors)
    return weight if attribute(node, "transB", 0) else weight.T


def _laid_out(node: onnx.NodeProto, weight: Array, source: Tensor) -> tuple[Array, Patches | None, Array]:
    """Weights [outputs, inputs] in the order in which the source lies, its patches, and the output's index."""
    if node.op_type == "Conv":
        return _convolution(node, weight, source)
    where = source.index.reshape(-1)
    if where.size != weight.shape[1] or where.size != source.value.size:
        raise refused(node, f"{weight.shape[1]} inputs", f"{where.size} of {source.value.size}")
    rows = np.empty_like(weight)
    rows[:, where] = weight
    return rows, None, np.arange(len(weight))


def _convolution(node: onnx.NodeProto, weight: Array, source: Tensor) -> tuple[Array, Patches, Array]:
    """A convolution writes its channels side by side: [rows, columns, channels]."""
    outputs, channels, high, wide = weight.shape
    settings = attribute(node, "group", 1), set(attribute(node, "dilations", [1])), set(attribute(node, "pads", [0]))
    if settings != (1, {1}, {0}) or attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise refused(node, "one group, no dilation, no padding", settings)
    index = source.index
    if index.ndim != 3 or index.shape[0] != channels:
        raise refused(node, f"an image of {channels} channels", list(index.shape))
    strides = [
        int(np.take(index, 1, axis).flat[0] - index.flat[0]) if index.shape[axis] > 1 else 1 for axis in range(3)
    ]
    if (index != np.tensordot(strides, np.indices(index.shape), 1)).any():
        raise refused(node, "an image with constant strides", "another order")
    down, right = attribute(node, "strides", [1, 1])
    rows, columns = (index.shape[1] - high) // down + 1, (index.shape[2] - wide) // right + 1
    order = (1, 2, 0) if strides[0] == 1 else (0, 1, 2)
    sizes = (channels, high, wide)
    patches = Patches(
        rows=rows,
        columns=columns,
        row_step=down * strides[1],
        column_step=right * strides[2],
        kernel=(sizes[order[0]], sizes[order[1]], sizes[order[2]]),
        strides=(strides[order[0]], strides[order[1]], strides[order[2]]),
    )
    ordered = weight.transpose(0, *(axis + 1 for axis in order)).reshape(outputs, -1)
    pixels = np.arange(rows * columns).reshape(rows, columns)
    return ordered, patches, np.arange(outputs)[:, None, None] + outputs * pixels
