"""An ONNX policy as the reader sees it: what is constant, and which nodes the wanted outputs need."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from export.canonical import constants_of
from paddleport.errors import GateError
from paddleport.spaces import Array

_KEPT = frozenset({"QuantizeLinear", "DequantizeLinear"})


class Graph:
    """A model pruned to what some of its outputs need, with everything constant computed.

    Args:
        model: the ONNX file.
        outputs: names of the outputs that are wanted.

    Raises:
        GateError: an output is not there.
    """

    def __init__(self, model: onnx.ModelProto, outputs: tuple[str, ...]) -> None:
        self.constants = constants_of(model)
        self.outputs = outputs
        opsets = {entry.domain: entry.version for entry in model.opset_import}
        nodes = [node for node in model.graph.node if not self._folded(node, opsets)]
        self._producers = {name: node for node in nodes for name in node.output}
        for output in outputs:
            if output not in self._producers:
                raise GateError("This graph lacks an output", expected=output, got=list(self._producers)[-5:])
        self._uses = self._count_uses()

    def producer(self, tensor: str) -> onnx.NodeProto:
        """The node that makes a tensor.

        Raises:
            GateError: it is a constant or an input, where a node's output is wanted.
        """
        if tensor not in self._producers:
            raise GateError("A tensor of this policy is computed by no layer", got=tensor)
        return self._producers[tensor]

    def is_computed(self, tensor: str) -> bool:
        """Whether a node makes this tensor; otherwise it is an input or a constant."""
        return tensor in self._producers

    def used_once(self, tensor: str) -> bool:
        """Whether one node alone reads this tensor, and it is no output that is read besides."""
        return self._uses[tensor] == 1

    def constant(self, node: onnx.NodeProto, position: int) -> Array:
        """A node's input that has to be a constant.

        Raises:
            GateError: it is not.
        """
        name = node.input[position]
        if name not in self.constants:
            raise refused(node, f"input {name!r} to be a constant", "one that is computed")
        return self.constants[name]

    def _folded(self, node: onnx.NodeProto, opsets: dict[str, int]) -> bool:
        """Compute a node of constants alone."""
        if node.op_type in _KEPT or not node.input or not all(name in self.constants for name in node.input if name):
            return False
        feeds = {name: self.constants[name] for name in node.input if name}
        results: Any = ReferenceEvaluator(node, opsets=opsets).run(None, feeds)
        self.constants.update({name: np.asarray(result) for name, result in zip(node.output, results, strict=True)})
        return True

    def _count_uses(self) -> Counter[str]:
        """How many nodes that the outputs need read each tensor; being an output counts as well."""
        uses = Counter(self.outputs)
        waiting, seen = list(self.outputs), set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._producers:
                continue
            seen.add(name)
            given = list(self._producers[name].input)
            uses.update(given)
            waiting.extend(given)
        return uses


def title(node: onnx.NodeProto) -> str:
    """How to name a node to its user."""
    return f"{node.op_type} {node.name or node.output[0]}"


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:  # noqa: ANN401 - as ONNX has it
    """An attribute's value, or the default where it is left out."""
    found = [helper.get_attribute_value(each) for each in node.attribute if each.name == name]
    return found[0] if found else default


def refused(node: onnx.NodeProto, expected: str, got: object) -> GateError:
    """An error that names the layer which cannot be turned into C."""
    return GateError(
        f"The layer {title(node)} cannot be turned into C",
        expected=expected,
        got=got,
        todo="The targets ort and web take every policy",
    )
