"""float16: layers and what stands directly between them in half precision, everything around them in float32.

The converters of ONNX Runtime and of onnxconverter-common round the graph's inputs to float16 whatever reads them: a
raw observation of 100,000 would be infinite before the normaliser sees it. Here what stands before the first layer
stays float32.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.canonical import check
from export.qdq_graph import Graph
from paddleport.spaces import Array

_LAYERS = frozenset({"Conv", "Gemm", "MatMul"})
_BETWEEN = frozenset({"Relu", "Tanh", "Sigmoid", "Flatten", "Reshape", "Transpose"})
"""Operators that run in float16 where their input is in it already."""
_LARGEST = float(np.finfo(np.float16).max)


def half(model: onnx.ModelProto) -> onnx.ModelProto:
    """The float16 form of a canonical float32 model; its inputs and outputs keep their types.

    Args:
        model: as `canonicalize` made it; it is left as it is.

    Raises:
        GateError: the result does not pass ONNX's checker.
    """
    writer = _Writer(Graph(model))
    for node in model.graph.node:
        writer.add(node)
    for output in model.graph.output:
        writer.in_float32(output.name)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:], result.graph.initializer[:]
    result.graph.node.extend(writer.graph.nodes)
    used = {name for node in result.graph.node for name in node.input}
    constants = {name: value for name, value in writer.graph.constants.items() if name in used}
    result.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    check(result)
    return result


class _Writer:
    """Writes one node after the other, casting where float16 begins and ends."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._halves: dict[str, str] = {}
        self._only_half: set[str] = set()

    def add(self, node: onnx.NodeProto) -> None:
        """Write a node in the precision that it runs in."""
        first = node.input[0] if node.input else ""
        if node.op_type in _LAYERS or (node.op_type in _BETWEEN and first in self._only_half):
            inputs = [self._in_half(name) for name in node.input]
            output = node.output[0]
            self._halves[output] = self.graph.copy(node, inputs, f"{output}.half")
            self._only_half.add(output)
            return
        for name in node.input:
            self.in_float32(name)
        self.graph.nodes.append(node)

    def in_float32(self, name: str) -> None:
        """Let a tensor exist in float32 too, where it was computed in float16."""
        if name in self._only_half:
            self._only_half.remove(name)
            self.graph.nodes.append(helper.make_node("Cast", [self._halves[name]], [name], to=TensorProto.FLOAT))

    def _in_half(self, name: str) -> str:
        if name not in self._halves:
            constant = self.graph.constants.get(name)
            self._halves[name] = self._cast(name) if constant is None else self._rounded(name, constant)
        return self._halves[name]

    def _cast(self, name: str) -> str:
        self.graph.nodes.append(helper.make_node("Cast", [name], [f"{name}.half"], to=TensorProto.FLOAT16))
        return f"{name}.half"

    def _rounded(self, name: str, value: Array) -> str:
        """A constant in float16; whole numbers, such as shapes, stay as they are."""
        if value.dtype != np.float32:
            return name
        return self.graph.constant(f"{name}.half", np.clip(value, -_LARGEST, _LARGEST).astype(np.float16))
