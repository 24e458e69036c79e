"""The graph that an int8 file is written into: its nodes and constants, and what stands around a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from export.canonical import constants_of
from paddleport.spaces import Array

LAYOUT = frozenset({"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"})
"""Operators that rearrange a tensor and leave its numbers alone."""


class Graph:
    """A graph that is being written, and the float one that it comes from.

    Attributes:
        constants: the new graph's, by name; they start as the float one's.
        nodes: the new graph's, so far.

    Args:
        model: the float one.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.constants = constants_of(model)
        self.nodes: list[onnx.NodeProto] = []
        self._made_by = {name: node for node in model.graph.node for name in node.output}
        self._read_by: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._read_by.setdefault(name, []).append(node)
        self._results = {output.name for output in model.graph.output}
        self._bytes = {
            given.name for given in model.graph.input if given.type.tensor_type.elem_type == TensorProto.UINT8
        }
        self._made: dict[tuple[str, bytes, bytes], str] = {}

    def constant(self, name: str, value: Array) -> str:
        """Add a constant; returns its name."""
        self.constants[name] = value
        return name

    def node(self, kind: str, inputs: list[str], output: str, *, name: str = "", axis: int | None = None) -> str:
        """Add a node; returns its output."""
        self.nodes.append(helper.make_node(kind, inputs, [output], name or None, axis=axis))
        return output

    def copy(self, node: onnx.NodeProto, inputs: list[str], output: str, *, name: str | None = None) -> str:
        """Add a node with another's kind and attributes; returns its output."""
        made = onnx.NodeProto()
        made.CopyFrom(node)
        made.input[:], made.output[:] = inputs, [output]
        made.name = node.name if name is None else name
        if not any(output in other.output for other in self.nodes):
            self.nodes.append(made)
        return output

    def on_grid(self, tensor: str, step: np.float32, zero_point: Array) -> str:
        """Put a tensor on a grid, once for each that is asked for; returns the dequantized tensor."""
        key = (tensor, step.tobytes(), zero_point.tobytes())
        if key not in self._made:
            stem, grid = self._grid(tensor, step, zero_point)
            quantized = self.node("QuantizeLinear", [tensor, *grid], f"{stem}.{zero_point.dtype}")
            self._made[key] = self.node("DequantizeLinear", [quantized, *grid], f"{stem}.float")
        return self._made[key]

    def dequantized(self, tensor: str, step: np.float32, zero_point: Array) -> str:
        """What a tensor of integers stands for."""
        key = (tensor, step.tobytes(), zero_point.tobytes())
        if key not in self._made:
            stem, grid = self._grid(tensor, step, zero_point)
            self._made[key] = self.node("DequantizeLinear", [tensor, *grid], f"{stem}.float")
        return self._made[key]

    def _grid(self, tensor: str, step: np.float32, zero_point: Array) -> tuple[str, list[str]]:
        same = sum(1 for name, *_ in self._made if name == tensor)
        stem = f"{tensor}.grid{same or ''}"
        return stem, [
            self.constant(f"{stem}.scale", np.asarray(step)),
            self.constant(f"{stem}.zero_point", zero_point),
        ]

    def remainder(self, tensor: str, rounded: str) -> str:
        """What putting a tensor on a grid left of it; returns that tensor."""
        name = f"{rounded}.left"
        return name if any(name in node.output for node in self.nodes) else self.node("Sub", [tensor, rounded], name)

    def readers(self, tensor: str) -> list[onnx.NodeProto]:
        """The float graph's nodes that read a tensor, or what only rearranges it.

        Where the tensor is an output of the graph, a node without a kind stands for whoever reads that.
        """
        found = [onnx.NodeProto()] if tensor in self._results else []
        for node in self._read_by.get(tensor, []):
            found += self.readers(node.output[0]) if node.op_type in LAYOUT else [node]
        return found

    def before_layout(self, tensor: str) -> tuple[str, list[onnx.NodeProto]]:
        """The tensor that this one is a rearrangement of, and the nodes that rearrange it, in order."""
        layouts: list[onnx.NodeProto] = []
        while (node := self._made_by.get(tensor)) is not None and node.op_type in LAYOUT:
            layouts.insert(0, node)
            tensor = node.input[0]
        return tensor, layouts

    def image(self, tensor: str) -> str | None:
        """The uint8 image that a tensor is, over 255, rearranged as the tensor is; None where it is no image.

        The float graph casts, scales and rearranges, in some order; the rearranging is repeated on the bytes.
        """
        layouts: list[onnx.NodeProto] = []
        scale = 1.0
        while tensor not in self._bytes:
            node = self._made_by.get(tensor)
            if node is None or node.op_type not in {*LAYOUT, "Cast", "Mul", "Div"}:
                return None
            if node.op_type in LAYOUT:
                layouts.insert(0, node)
            elif node.op_type != "Cast":
                factor = self.constants.get(node.input[1])
                if factor is None or factor.size != 1:
                    return None
                scale *= float(factor.item()) if node.op_type == "Mul" else 1 / float(factor.item())
            tensor = node.input[0]
        if not np.isclose(scale, 1 / 255, rtol=1e-6):
            return None
        for layout in layouts:
            tensor = self.copy(layout, [tensor, *layout.input[1:]], f"{tensor}.{layout.op_type.lower()}")
        return tensor


def without_unused(nodes: Sequence[onnx.NodeProto], results: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that the results depend on, in order."""
    needed, kept = set(results), []
    for node in reversed(nodes):
        if needed & set(node.output):
            needed |= set(node.input)
            kept.append(node)
    return kept[::-1]
