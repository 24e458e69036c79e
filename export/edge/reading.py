"""From a policy's ONNX graph, float32 or int8, to the `Program` that the C emitter writes down."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx

from export.edge import layers, views
from export.edge.graph import Graph, attribute, refused, title
from export.edge.program import (
    Activate,
    Activation,
    Choose,
    Combine,
    FloatLayer,
    Grid,
    IntegerLayer,
    Mean,
    Operation,
    OperationKind,
    Pointwise,
    Program,
    Quantize,
    Step,
    Tensor,
    Value,
    writes,
)
from paddleport.errors import GateError
from paddleport.manifest import Manifest
from paddleport.spaces import OBSERVATION, Array, Box, Discrete, describe

_HEADS = ("logits", "q_values", "mean")
_BINARY: dict[str, OperationKind] = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Max": "maximum",
    "Min": "minimum",
}
_AROUND_CHOICE = frozenset({"Add", "Cast", "Identity", "Mul"})
_SYMMETRIC = frozenset({"add", "multiply", "maximum", "minimum"})
_DTYPES = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.DOUBLE: "float64"}


def read_program(model: onnx.ModelProto, manifest: Manifest) -> Program:
    """Read what a policy computes.

    Args:
        model: one of the bundle's files, as `export.canonical` or `export.qdq` wrote it.
        manifest: the bundle's.

    Raises:
        GateError: the policy's spaces or one of its layers have no form in C; the message names it.
    """
    obs_space, action_space = manifest.observation_space, manifest.action_space
    if not isinstance(obs_space, Box) or not isinstance(action_space, Discrete | Box):
        raise GateError(
            "The target c does not take this policy",
            expected="a Box of observations, and Discrete or Box actions",
            got=f"{describe(obs_space)} and {describe(action_space)}",
            todo="The targets ort and web take every policy",
        )
    # An adopted policy may give its action alone; where that is a choice, there is nothing to compare a choice by.
    head = next((output.name for output in manifest.outputs if output.name in _HEADS), "action")
    if head == "action" and isinstance(action_space, Discrete):
        raise GateError(
            "The target c does not take this policy",
            expected="one that gives its logits or Q-values beside the action",
            got=", ".join(output.name for output in manifest.outputs),
            todo="Adopt it again with --output NAME:logits; the targets ort and web take every policy",
        )
    graph = Graph(model, ("action", head))
    obs = Value(obs_space.dtype, obs_space.size)
    reader = _Reader(graph, Tensor(obs, np.arange(obs.size).reshape(obs_space.shape)))
    distribution = reader.output(head)
    action = reader.choice() if isinstance(action_space, Discrete) else reader.output("action")
    return Program(obs, action, distribution, head, tuple(reader.steps))


class _Reader:
    """Reads tensors on demand, appending the steps that make them."""

    def __init__(self, graph: Graph, obs: Tensor) -> None:
        self.steps: list[Step] = []
        self._graph = graph
        self._obs = obs
        self._reals: dict[str, Tensor] = {OBSERVATION: obs}
        self._numbers: dict[tuple[str, Grid], Tensor] = {}
        self._readers: dict[str, Callable[[onnx.NodeProto], Tensor]] = {
            **dict.fromkeys(views.KINDS, self._view),
            **dict.fromkeys(_BINARY, self._binary),
            **dict.fromkeys(layers.LAYERS, self._layer),
            **dict.fromkeys(("Relu", "Tanh"), self._activation),
            "Clip": self._clip,
            "Cast": self._cast,
            "ReduceMean": self._mean,
        }

    def output(self, name: str) -> Value:
        """The value of one of the graph's outputs, whose elements lie in order."""
        tensor = self.tensor(name)
        if not tensor.in_order or tensor.value is self._obs.value:
            raise refused(self._graph.producer(name), "an output of its own, in order", "another tensor's elements")
        return tensor.value

    def choice(self) -> Value:
        """The action of a Discrete space."""
        node, start = self._graph.producer("action"), 0
        while node.op_type in _AROUND_CHOICE:  # Paddle adds the first action's number in floats, times one
            start += int(self._graph.constant(node, 1).reshape(-1)[0]) if node.op_type == "Add" else 0
            if node.op_type == "Mul" and (self._graph.constant(node, 1) != 1).any():
                break
            node = self._graph.producer(node.input[0])
        if node.op_type != "ArgMax":
            raise refused(node, "ArgMax, and a constant added to it", node.op_type)
        action = Value("int32", 1)
        self.steps.append(Choose(title(node), self.output(node.input[0]), action, start))
        return action

    def tensor(self, name: str) -> Tensor:
        """A tensor of real numbers, or the observation."""
        if name not in self._reals:
            node = self._graph.producer(name)
            if node.op_type not in self._readers:
                raise refused(node, f"one of {', '.join(sorted(self._readers))}", node.op_type)
            self._reals[name] = self._readers[node.op_type](node)
        return self._reals[name]

    def _view(self, node: onnx.NodeProto) -> Tensor:
        inner = self.tensor(node.input[0])
        return Tensor(inner.value, views.viewed(self._graph, node, inner.index))

    def _layer(self, node: onnx.NodeProto) -> Tensor:
        found = layers.integer_sum(self._graph, node)
        if found:
            return self._integer_layer(found, "", None)
        source = self.tensor(node.input[0])
        prepare = self._take_preparation(source) if node.op_type == "Conv" else None
        if prepare is not None:
            source = Tensor(self._obs.value, source.index)
        layer, index = layers.float_layer(self._graph, node, source, prepare or ())
        return self._made(layer, index)

    def _integer_layer(self, found: layers.IntegerSum, activation: Activation, grid: Grid | None) -> Tensor:
        source = self._on_grid(found.tensor, found.grid)
        layer, index = layers.integer_layer(found, source, activation, grid)
        return self._made(layer, index)

    def _on_grid(self, name: str, grid: Grid) -> Tensor:
        """A tensor as whole numbers."""
        if (name, grid) not in self._numbers:
            self._numbers[name, grid] = self._number(name, grid)
        return self._numbers[name, grid]

    def _number(self, name: str, grid: Grid) -> Tensor:
        if self._graph.is_computed(name):
            node = self._graph.producer(name)
            if node.op_type in views.KINDS:
                inner = self._on_grid(node.input[0], grid)
                return Tensor(inner.value, views.viewed(self._graph, node, inner.index))
            if node.op_type == "DequantizeLinear" and layers.grid_of(self._graph, node) == grid:
                return self._on_grid(layers.source_of(self._graph, name), grid)
            activation = self._activation_kind(node)
            found = layers.integer_sum(self._graph, self._graph.producer(node.input[0]) if activation else node)
            if found and len(grid.steps) == 1 and not (grid.unsigned and activation == "tanh"):
                return self._integer_layer(found, activation, grid)
        source = self.tensor(name)
        if source.value.dtype == grid.dtype:  # an image, which is on its grid as it comes
            return source
        result = Value(grid.dtype, source.value.size)
        return self._made(Quantize(f"QuantizeLinear {name}", source.value, result, grid), source.index)

    def _activation_kind(self, node: onnx.NodeProto) -> Activation:
        """What a node is, as the activation of a layer; empty where it is none."""
        if node.op_type == "Max" and node.input[1] in self._graph.constants:
            return "" if self._graph.constant(node, 1).any() else "relu"
        return "relu" if node.op_type == "Relu" else "tanh" if node.op_type == "Tanh" else ""

    def _take_preparation(self, tensor: Tensor) -> tuple[Operation, ...] | None:
        """The scalar operations that alone stand between the observation and a tensor; their step is taken back."""
        if tensor.value is self._obs.value:
            return ()
        last = self.steps[-1] if self.steps else None
        if not isinstance(last, Pointwise) or last.source is not self._obs.value or last.result is not tensor.value:
            return None
        if any(each.constant is None or each.constant.size != 1 for each in last.operations):
            return None
        self.steps.pop()
        return last.operations

    def _activation(self, node: onnx.NodeProto) -> Tensor:
        source = self.tensor(node.input[0])
        kind: Activation = self._activation_kind(node)
        made = self.steps[-1] if self.steps else None
        alone = self._graph.used_once(node.input[0]) and made is not None and writes(made) is source.value
        if alone and isinstance(made, FloatLayer | IntegerLayer) and kind:
            self.steps.append(Activate(title(node), source.value, kind))
            return source
        zero = Operation("maximum", np.zeros((), np.float32))
        return self._pointwise(node, source, [Operation("tanh") if kind == "tanh" else zero])

    def _binary(self, node: onnx.NodeProto) -> Tensor:
        kind = _BINARY[node.op_type]
        if found := layers.integer_sum(self._graph, node):
            return self._integer_layer(found, "", None)
        if self._activation_kind(node) == "relu":
            return self._activation(node)
        left, right = node.input
        if left in self._graph.constants and kind in _SYMMETRIC:
            left, right = right, left
        if right in self._graph.constants:
            source = self.tensor(left)
            constant = _placed(node, source, self._graph.constants[right])
            return self._with_bias(node, kind, source, constant) or self._pointwise(
                node, source, [Operation(kind, constant)]
            )
        return self._combine(node, kind, self.tensor(left), self.tensor(right))

    def _with_bias(self, node: onnx.NodeProto, kind: OperationKind, source: Tensor, constant: Array) -> Tensor | None:
        """A constant that is added to a layer's output, the same for every pixel, becomes part of its bias."""
        last = self.steps[-1] if self.steps else None
        if kind != "add" or not self._graph.used_once(node.input[0]) or not isinstance(last, FloatLayer):
            return None
        rows = np.broadcast_to(constant, (source.value.size,)).reshape(-1, len(last.bias))
        if last.result is not source.value or (rows != rows[0]).any():
            return None
        self.steps[-1] = dataclasses.replace(last, bias=last.bias + rows[0])
        return source

    def _combine(self, node: onnx.NodeProto, kind: OperationKind, left: Tensor, right: Tensor) -> Tensor:
        wide = left if left.value.size >= right.value.size else right
        narrow = right if wide is left else left
        same = wide.index.shape == narrow.index.shape and bool((wide.index == narrow.index).all())
        if not same and narrow.value.size != 1:
            raise refused(node, "two tensors of the same shape", [list(left.index.shape), list(right.index.shape)])
        result = Value("float32", wide.value.size)
        return self._made(Combine(title(node), kind, left.value, right.value, result), wide.index)

    def _clip(self, node: onnx.NodeProto) -> Tensor:
        low, high = (np.asarray(self._graph.constant(node, at), np.float32).reshape(()) for at in (1, 2))
        return self._pointwise(
            node, self.tensor(node.input[0]), [Operation("maximum", low), Operation("minimum", high)]
        )

    def _cast(self, node: onnx.NodeProto) -> Tensor:
        to = attribute(node, "to", onnx.TensorProto.FLOAT)
        if to not in _DTYPES:
            raise refused(node, "to float or double", onnx.TensorProto.DataType.Name(to))
        return self._pointwise(node, self.tensor(node.input[0]), [], _DTYPES[to])

    def _mean(self, node: onnx.NodeProto) -> Tensor:
        source = self.tensor(node.input[0])
        if source.index.ndim != 1 or list(attribute(node, "axes", [-1])) not in ([-1], [1]):
            raise refused(node, "the mean of a vector", list(source.index.shape))
        result = Value("float32", 1)
        return self._made(Mean(title(node), source.value, result), np.zeros(1, np.intp))

    def _pointwise(
        self, node: onnx.NodeProto, source: Tensor, operations: list[Operation], dtype: str = "float32"
    ) -> Tensor:
        """Append operations, to the step before where it makes nothing but their input."""
        last = self.steps[-1] if self.steps else None
        result = Value(dtype, source.value.size)
        name, start, before = title(node), source.value, tuple[Operation, ...]()
        if isinstance(last, Pointwise) and last.result is source.value and self._graph.used_once(node.input[0]):
            self.steps.pop()
            name, start, before = f"{last.name}, {title(node)}", last.source, last.operations
        return self._made(Pointwise(name, start, result, (*before, *operations)), source.index)

    def _made(self, step: FloatLayer | IntegerLayer | Pointwise | Combine | Mean | Quantize, index: Array) -> Tensor:
        self.steps.append(step)
        return Tensor(step.result, index)


def _placed(node: onnx.NodeProto, tensor: Tensor, constant: Array) -> Array:
    """A constant, float32 [] or [size], where the elements that it goes with lie."""
    if constant.size == 1:
        return constant.astype(np.float32).reshape(())
    try:
        spread = np.broadcast_to(constant, (1, *tensor.index.shape))[0]
    except ValueError as error:
        raise refused(node, f"a constant for {list(tensor.index.shape)}", list(constant.shape)) from error
    placed = np.empty(tensor.value.size, np.float32)
    placed[tensor.index] = spread
    return placed
