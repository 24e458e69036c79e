"""Nodes that move no number: they say anew where the elements of a tensor lie."""

from __future__ import annotations

import numpy as np
import onnx

from export.edge.graph import Graph, attribute, refused
from paddleport.spaces import Array

KINDS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def viewed(graph: Graph, node: onnx.NodeProto, index: Array) -> Array:
    """The index of a view node's output.

    Args:
        graph: where the node's constants are.
        node: one of `KINDS`.
        index: of its input, without the batch dimension.

    Raises:
        GateError: the node touches the batch dimension.
    """
    batched = index[np.newaxis]
    try:
        result = _view(graph, node, batched)
    except ValueError as error:
        raise refused(node, "a shape that fits", error) from error
    if result.shape[:1] != (1,):
        raise refused(node, "the batch dimension to stay first", list(result.shape))
    return np.asarray(result[0])


def _view(graph: Graph, node: onnx.NodeProto, batched: Array) -> Array:
    if node.op_type == "Identity":
        return batched
    if node.op_type == "Transpose":
        order = list(attribute(node, "perm", range(batched.ndim)[::-1]))
        if order[0] != 0:
            raise refused(node, "the batch dimension to stay first", order)
        return batched.transpose(order)
    if node.op_type == "Flatten":
        axis = attribute(node, "axis", 1)
        if axis != 1:
            raise refused(node, "axis 1", axis)
        return batched.reshape(1, -1)
    if node.op_type == "Reshape":
        wanted = [int(size) for size in graph.constant(node, 1)]
        shape = [batched.shape[at] if size == 0 else size for at, size in enumerate(wanted)]
        return batched.reshape([1, *shape[1:]] if shape[0] == -1 and -1 not in shape[1:] else shape)
    axes = [int(axis) for axis in graph.constant(node, 1)]
    return np.squeeze(batched, tuple(axes)) if node.op_type == "Squeeze" else np.expand_dims(batched, tuple(axes))
