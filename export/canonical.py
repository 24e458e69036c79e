"""The raw graph of paddle2onnx made plain: few nodes, and names that say what they are.

paddle2onnx writes weights as Constant nodes under Paddle's generated names, strews Identity nodes, splits a linear
layer into MatMul and Add, and names its outputs `fetch_name_N`. None of that belongs into a file that others read.
A convolution loses its bias to an Add, and Paddle's `scale` leaves an Add of zero behind.
The result depends on nothing but the weights and the network: the same checkpoint gives the same bytes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from export.convert import Converted
from paddleport import __version__
from paddleport.errors import GateError
from paddleport.manifest import TensorInfo
from paddleport.spaces import Array

BATCH = "batch"
_NEWEST_IR = 8
_FOLDED = frozenset({"Cast", "Concat", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


@dataclass
class _Graph:
    """A graph in the making; `results` are the tensors that the graph's outputs will be, in order."""

    nodes: list[onnx.NodeProto]
    constants: dict[str, Array]
    results: list[str]

    def uses(self, tensor: str) -> list[onnx.NodeProto]:
        """The nodes that read a tensor."""
        return [node for node in self.nodes if tensor in node.input]


def canonicalize(converted: Converted, inputs: Collection[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """Rewrite a raw graph into its plain form, and check it.

    Args:
        converted: what paddle2onnx made.
        inputs: names of the graph's inputs.
        outputs: what to call the graph's outputs, in order.

    Returns:
        A model with the named inputs and outputs, and a dynamic first dimension `batch` on each of them; weights are
        initializers under their structural paths, and each linear layer or convolution is one Gemm or Conv named by
        its path.

    Raises:
        GateError: the raw model is damaged, has other outputs, or does not pass the checks.
    """
    raw = _parse(converted.model)
    found = [given.name for given in raw.graph.input]
    if len(raw.graph.output) != len(outputs) or sorted(found) != sorted(inputs):
        expected = f"{', '.join(inputs)} → {len(outputs)} outputs"
        got = f"{', '.join(found)} → {len(raw.graph.output)} outputs"
        raise GateError("paddle2onnx made another signature", expected=expected, got=got)
    graph = _fuse_biases(_without_zeros(_fold(raw)))
    _name(graph, converted.names, inputs, outputs)
    model = _assemble(raw, graph, outputs)
    check(model)
    return model


def check(model: onnx.ModelProto) -> None:
    """Run ONNX's own checker, and refuse an operator that draws random numbers.

    Raises:
        GateError: the model does not pass.
    """
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise GateError("The ONNX checker refuses this graph", got=error) from error
    if drawn := sorted({node.op_type for node in model.graph.node} & _RANDOM):
        raise GateError("The graph draws random numbers", expected="a deterministic policy", got=drawn)


def tensor_infos(values: Sequence[onnx.ValueInfoProto]) -> tuple[TensorInfo, ...]:
    """Inputs or outputs as the manifest describes them."""
    return tuple(
        TensorInfo(
            name=value.name,
            dtype=str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
            shape=tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:]),
        )
        for value in values
    )


def constants_of(model: onnx.ModelProto) -> dict[str, Array]:
    """The model's initializers by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def constant_name(path: str, outputs: Sequence[str]) -> str:
    """Name in the graph of a parameter with this structural path: the path itself, unless an output has that name."""
    return f"{path}.parameter" if path in outputs else path


def _parse(data: bytes) -> onnx.ModelProto:
    from google.protobuf.message import DecodeError

    try:
        return onnx.load_model_from_string(data)
    except DecodeError as error:
        raise GateError("paddle2onnx wrote a damaged model", got=error) from error


def _fold(raw: onnx.ModelProto) -> _Graph:
    """Lift Constant nodes, drop Identity nodes, and compute what depends on constants alone."""
    constants = constants_of(raw)
    opsets = {entry.domain: entry.version for entry in raw.opset_import}
    stands_for: dict[str, str] = {}
    nodes = []
    for original in raw.graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        node.input[:] = [stands_for.get(name, name) for name in node.input]
        if node.op_type == "Constant":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type == "Identity":
            stands_for[node.output[0]] = node.input[0]
        elif node.op_type in _FOLDED and all(name in constants for name in node.input):
            feeds = {name: constants[name] for name in node.input}
            folded: Any = ReferenceEvaluator(node, opsets=opsets).run(None, feeds)
            constants[node.output[0]] = np.asarray(folded[0])
        else:
            nodes.append(node)
    results = [stands_for.get(output.name, output.name) for output in raw.graph.output]
    return _Graph(nodes, constants, results)


def _without_zeros(graph: _Graph) -> _Graph:
    """Drop each Add of a scalar zero, which adds nothing. A bias that is still zero is a vector."""
    stands_for: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        node.input[:] = [stands_for.get(name, name) for name in node.input]
        addend = graph.constants.get(node.input[1]) if node.op_type == "Add" else None
        if addend is not None and addend.ndim == 0 and not addend.any():
            stands_for[node.output[0]] = node.input[0]
        else:
            nodes.append(node)
    return _Graph(nodes, graph.constants, [stands_for.get(name, name) for name in graph.results])


def _fuse_biases(graph: _Graph) -> _Graph:
    """MatMul with a constant matrix and Add of a vector become one Gemm; Conv and Add become one Conv."""
    fused, absorbed = [], set()
    for node in graph.nodes:
        if node.output[0] in absorbed:
            continue
        add = _bias_of(graph, node)
        if add is None:
            fused.append(node)
            continue
        absorbed.add(add.output[0])
        graph.constants[add.input[1]] = graph.constants[add.input[1]].reshape(-1)
        whole = onnx.NodeProto()
        whole.CopyFrom(node)
        whole.op_type = "Conv" if node.op_type == "Conv" else "Gemm"
        whole.input.append(add.input[1])
        whole.output[:] = add.output
        fused.append(whole)
    return _Graph(fused, graph.constants, graph.results)


def _bias_of(graph: _Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """The Add that completes a MatMul to a linear layer, or a Conv to a convolution, where there is one."""
    if node.op_type not in ("MatMul", "Conv") or node.output[0] in graph.results or len(node.input) != 2:
        return None
    weight, users = graph.constants.get(node.input[1]), graph.uses(node.output[0])
    if weight is None or len(users) != 1 or users[0].op_type != "Add" or users[0].input[0] != node.output[0]:
        return None
    bias = graph.constants.get(users[0].input[1])
    if node.op_type == "Conv":
        shape: tuple[int, ...] = (1, weight.shape[0], *[1] * (weight.ndim - 2))
    else:
        shape = weight.shape[1:]
    fits = bias is not None and bias.shape == shape and (node.op_type == "Conv" or weight.ndim == 2)
    # Reshaped where it stands: it must be this layer's alone.
    return users[0] if fits and len(graph.uses(users[0].input[1])) == 1 else None


def _name(graph: _Graph, paths: Mapping[str, str], inputs: Collection[str], outputs: Sequence[str]) -> None:
    """Give every constant, node and tensor a name that says what it is, in place."""
    _part_results(graph, inputs, outputs)
    used = dict.fromkeys(name for node in graph.nodes for name in node.input if name in graph.constants)
    unnamed = itertools.count()
    biases = {
        node.input[2]: f"{paths[node.input[1]].removesuffix('.weight')}.bias"
        for node in graph.nodes
        if node.op_type in ("Conv", "Gemm") and len(node.input) == 3 and node.input[1] in paths
    }
    known = {**biases, **paths}  # a convolution's bias was reshaped, and is Paddle's own tensor no more
    constants = {
        name: constant_name(known[name], outputs) if name in known else f"constant.{next(unnamed)}" for name in used
    }
    names = dict(constants) | dict(zip(graph.results, outputs, strict=True))
    counts: Counter[str] = Counter()
    for node in graph.nodes:
        kind = node.op_type.lower()
        weight = constants.get(node.input[1], "") if node.op_type in ("Gemm", "Conv") else ""
        node.name = weight.removesuffix(".weight") or f"{kind}.{counts[kind]}"
        counts[kind] += 1
        for index, output in enumerate(node.output):
            names.setdefault(output, f"{node.name}.output{index or ''}")
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    graph.constants = {constants[name]: graph.constants[name] for name in used}
    graph.results = list(outputs)


def _part_results(graph: _Graph, inputs: Collection[str], outputs: Sequence[str]) -> None:
    """Keep an Identity where an output is the input, a constant, or the same tensor as an earlier output."""
    claimed: set[str] = set(inputs) | graph.constants.keys()
    for index, (result, name) in enumerate(zip(list(graph.results), outputs, strict=True)):
        if result in claimed:
            graph.nodes.append(helper.make_node("Identity", [result], [f"{result}.{name}"]))
            graph.results[index] = f"{result}.{name}"
        claimed.add(graph.results[index])


def _assemble(raw: onnx.ModelProto, graph: _Graph, outputs: Sequence[str]) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(value, name) for name, value in graph.constants.items()]
    made = helper.make_graph(
        graph.nodes,
        "policy",
        [_dynamic(value, value.name) for value in raw.graph.input],
        [_dynamic(value, name) for value, name in zip(raw.graph.output, outputs, strict=True)],
        initializers,
    )
    return helper.make_model(
        made,
        opset_imports=[helper.make_opsetid(entry.domain, entry.version) for entry in raw.opset_import],
        ir_version=min(raw.ir_version, _NEWEST_IR),
        producer_name="paddleport",
        producer_version=__version__,
    )


def _dynamic(value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    """The same tensor under another name, its first dimension called `batch`."""
    dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim[1:]]
    if not all(dims):
        raise GateError(f"The size of {name!r} is not fixed", expected="a dynamic batch dimension only", got=dims)
    return helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, [BATCH, *dims])
