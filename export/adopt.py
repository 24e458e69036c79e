"""A policy that another tool wrote as ONNX, made into the graph that a bundle holds.

What tools write differs: names, a batch of one that is fixed, the observation's type, and how much of the way to an
action is in the graph. stable-baselines3's documented export leaves out clipping; CleanRL and rsl_rl write the mean, or
logits. So the graph is wrapped: its input becomes `obs` in the environment's own type, its outputs get our names, and
what is missing up to the environment's action is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.qdq_graph import without_unused
from paddleport.errors import ArtifactError, GateError, UsageError
from paddleport.spaces import OBSERVATION, Array, Box, Discrete, Leaf, Space, describe

OUTPUTS = ("action", "logits", "q_values", "mean", "log_std", "value")
Scale = Literal["env", "unit"]
_CHOSEN_FROM = ("logits", "q_values")
_BATCH = "batch"
_OPSETS = range(9, 22)


@dataclass(frozen=True)
class Adopted:
    """The wrapped graph, and what could not be known about it."""

    model: onnx.ModelProto
    outputs: tuple[str, ...]
    transform: Literal["argmax", "affine", "clip"]
    not_checked: tuple[str, ...] = field(default=())


def parse_outputs(given: Sequence[str], model: onnx.ModelProto, action: Space) -> dict[str, str]:
    """Which of the graph's outputs is what: our names by theirs.

    Args:
        given: as `--output` has them, `theirs:ours`; empty to go by their names.
        model: the foreign model.
        action: the action space.

    Raises:
        UsageError: an entry is none, or names what is not there, or the action cannot be told from the others.
    """
    theirs = [output.name for output in model.graph.output]
    found: dict[str, str] = {}
    for entry in given:
        name, colon, ours = entry.rpartition(":")
        if not colon or ours not in OUTPUTS or name not in theirs:
            raise UsageError(
                "--output cannot be meant",
                expected=f"NAME:ROLE, NAME one of {', '.join(theirs)} and ROLE one of {', '.join(OUTPUTS)}",
                got=entry,
            )
        found[name] = ours
    if not found:
        known = {"actions": "action", **{name: name for name in OUTPUTS}}
        found = {name: known[name] for name in theirs if name in known}
    if len(set(found.values())) < len(found):
        raise UsageError("Two outputs cannot have the same role", got=", ".join(f"{k}:{v}" for k, v in found.items()))
    chosen_from = (
        set(found.values()) & set(_CHOSEN_FROM) if isinstance(action, Discrete) else {"mean"} & {*found.values()}
    )
    if "action" not in found.values() and not chosen_from:
        if len(theirs) > 1 or found:
            raise UsageError(
                "Which output is the action cannot be told",
                expected="such as --output NAME:action (or NAME:logits, NAME:q_values, NAME:mean)",
                got=", ".join(_signature(output) for output in model.graph.output),
            )
        found = {theirs[0]: "action"}
    return found


def adopt(
    source: onnx.ModelProto, observation: Space, action: Space, roles: Mapping[str, str], scale: Scale
) -> Adopted:
    """Wrap a foreign graph.

    Args:
        source: the foreign model; it is not changed.
        observation: the environment's observation space, a single array.
        action: its action space, Box or Discrete.
        roles: our names by theirs.
        scale: of a Box action: `env` where it is in the environment's units, `unit` where it is in [-1, 1].

    Raises:
        UsageError: the spaces are of another kind, or the graph does not fit them.
        GateError: what was put together is no valid graph.
    """
    if not isinstance(observation, Box | Discrete) or not isinstance(action, Box | Discrete):
        raise UsageError(
            "Policies of these spaces cannot be adopted yet",
            expected="one array as the observation, and Box or Discrete actions",
            got=f"{describe(observation)} → {describe(action)}",
        )
    model = onnx.ModelProto()
    model.CopyFrom(source)
    graph = model.graph
    _check_opset(model)
    _prefix(graph)
    before = _take_input(graph, observation)
    after = _give_outputs(graph, action, {f"theirs.{name}": role for name, role in roles.items()}, scale)
    nodes = without_unused([*before, *graph.node, *after], [output.name for output in graph.output])
    del graph.node[:], graph.value_info[:], model.metadata_props[:]
    graph.node.extend(nodes)
    graph.name = "policy"
    _check(model)
    named = tuple(output.name for output in graph.output)
    ways: dict[Scale, Literal["affine", "clip"]] = {"unit": "affine", "env": "clip"}
    return Adopted(model, named, ways[scale] if isinstance(action, Box) else "argmax", _unknown(action, scale, named))


def _unknown(action: Space, scale: Scale, outputs: Sequence[str]) -> tuple[str, ...]:
    said = [
        "that it equals the policy that was trained: there is no trainer to ask. Its returns were measured with "
        "this file.",
        "whether its observations have to be normalised, stacked or scaled before they enter: a file does not say. "
        "A return far below the one in training is the sign.",
    ]
    if isinstance(action, Box):
        units = "the environment's units, clipped at the bounds" if scale == "env" else "[-1, 1], mapped to the bounds"
        said.append(f"that its action is in {units}, as `--actions {scale}` says.")
    elif not set(outputs) & set(_CHOSEN_FROM):
        said.append("that the scores behind its choice are finite: the file gives the choice alone.")
    return tuple(said)


def _check_opset(model: onnx.ModelProto) -> None:
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if foreign := [domain for domain in versions if domain not in ("", "ai.onnx")]:
        raise UsageError("The graph uses operators outside of ONNX", got=", ".join(sorted(foreign)))
    opset = versions.get("", versions.get("ai.onnx", 0))
    if opset not in _OPSETS:
        raise UsageError(
            "The graph has an opset that cannot be adopted",
            expected=f"{_OPSETS[0]} to {_OPSETS[-1]}",
            got=opset,
            todo="Export it again with another opset_version",
        )


def _prefix(graph: onnx.GraphProto) -> None:
    """Move every name of theirs aside, so that none can meet one of ours."""

    def renamed(name: str) -> str:
        return f"theirs.{name}" if name else name

    for node in graph.node:
        node.name = renamed(node.name)
        node.input[:] = map(renamed, node.input)
        node.output[:] = map(renamed, node.output)
        if any(attribute.g.node or attribute.graphs for attribute in node.attribute):
            raise UsageError("The graph has branches or loops", got=node.op_type, todo="Export a plain forward pass")
    for tensor in graph.initializer:
        tensor.name = renamed(tensor.name)
    for value in (*graph.input, *graph.output):
        value.name = renamed(value.name)


def _take_input(graph: onnx.GraphProto, space: Leaf) -> list[onnx.NodeProto]:
    """Declare `obs`; returns the nodes that lead from it to the graph's own input."""
    constants = {tensor.name for tensor in graph.initializer}
    given = [value for value in graph.input if value.name not in constants]
    if len(given) != 1:
        raise UsageError(
            "The graph does not take one observation",
            expected="one input",
            got=", ".join(map(_signature, given)) or "none",
            todo="A recurrent policy, whose state goes round outside, cannot be adopted",
        )
    wanted, shape = list(space.shape), _shape(given[0])
    if len(shape) != len(wanted) + 1 or any(
        have not in (0, want) for have, want in zip(shape[1:], wanted, strict=True)
    ):
        raise UsageError(
            "The graph takes other observations than the environment gives",
            expected=f"an input of shape {['batch', *wanted]} ({describe(space)})".replace("'", ""),
            got=_signature(given[0]),
            todo="An image whose channels come first needs an environment that gives it so",
        )
    kind = given[0].type.tensor_type.elem_type
    ours = helper.np_dtype_to_tensor_dtype(np.dtype(space.dtype))
    inner = given[0].name
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info(OBSERVATION, ours, [_BATCH, *wanted]))
    if kind == ours:
        return [helper.make_node("Identity", [OBSERVATION], [inner], name="observation")]
    return [helper.make_node("Cast", [OBSERVATION], [inner], to=kind, name="observation")]


def _give_outputs(graph: onnx.GraphProto, action: Leaf, roles: Mapping[str, str], scale: Scale) -> list[onnx.NodeProto]:
    """Declare our outputs, `action` first; returns the nodes that lead to them."""
    theirs = {value.name: value for value in graph.output}
    by_role = {role: theirs[name] for name, role in roles.items()}
    builder = _Tail(graph)
    del graph.output[:]
    if isinstance(action, Discrete):
        builder.choice(action, by_role)
    elif isinstance(action, Box):
        builder.numbers(action, by_role, scale)
    for role in OUTPUTS[1:]:
        if role in by_role:
            builder.more(role, by_role[role], action)
    return builder.nodes


class _Tail:
    """Adds what lies between a foreign graph's outputs and ours."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self.nodes: list[onnx.NodeProto] = []

    def choice(self, space: Discrete, roles: Mapping[str, onnx.ValueInfoProto]) -> None:
        """A Discrete action: theirs, or the largest of logits or Q-values."""
        value = roles.get("action")
        if value is not None:
            self._refuse_numbers(value, space)
            shaped = self._node("Reshape", value.name, self._constant("flat", np.array([-1])))
            self._node("Cast", shaped, output="action", to=TensorProto.INT64)
        else:
            value = next(roles[name] for name in _CHOSEN_FROM if name in roles)
            if _shape(value)[1:] not in ([space.n], [0]):
                raise UsageError(
                    "The graph does not choose among the environment's actions",
                    expected=f"{space.n} numbers an observation",
                    got=_signature(value),
                )
            best = self._node("ArgMax", value.name, axis=1, keepdims=0)
            self._node("Add", best, self._constant("start", np.array(space.start)), output="action")
        self._declare("action", TensorProto.INT64, [])

    def numbers(self, space: Box, roles: Mapping[str, onnx.ValueInfoProto], scale: Scale) -> None:
        """A Box action: theirs or their mean, in the environment's shape, units, bounds and type."""
        value = roles.get("action", roles.get("mean"))
        assert value is not None  # noqa: S101 - parse_outputs has seen to it
        if value.type.tensor_type.elem_type not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
            raise UsageError(
                "The graph's action is not of real numbers", expected=describe(space), got=_signature(value)
            )
        low, high = (bound.reshape(1, *space.shape) for bound in space.bounds())
        current = value.name
        if _shape(value)[1:] != list(space.shape):
            current = self._node("Reshape", current, self._constant("shape", np.array([-1, *space.shape])))
        theirs = value.type.tensor_type.elem_type
        if scale == "unit":
            current = self._to_bounds(self._node("Cast", current, to=TensorProto.DOUBLE), space, low, high)
            theirs = TensorProto.DOUBLE
        # In the action's own type, so that a bound that it cannot hold exactly is not overstepped by rounding.
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(space.dtype))
        if theirs != kind:
            current = self._node("Cast", current, to=kind)
        limits = {name: bound.astype(space.dtype) for name, bound in (("high", high), ("low", low))}
        current = self._node("Min", current, self._constant("high", limits["high"]))
        self._node("Max", current, self._constant("low", limits["low"]), output="action")
        self._declare("action", kind, list(space.shape))

    def more(self, role: str, value: onnx.ValueInfoProto, space: Leaf) -> None:
        """Another output, under our name and float32: [batch] for the value, [batch, numbers] for others."""
        numbers = space.n if isinstance(space, Discrete) else math.prod(space.shape)
        sizes = [] if role == "value" else [numbers]
        shaped = self._node("Reshape", value.name, self._constant(f"{role}.shape", np.array([-1, *sizes])))
        if role == "log_std":  # often a parameter, the same for every observation
            batch = self._node(
                "Gather", self._node("Shape", OBSERVATION), self._constant("first", np.array([0])), axis=0
            )
            everywhere = self._node("Concat", batch, self._constant("numbers", np.array(sizes)), axis=0)
            shaped = self._node("Expand", shaped, everywhere)
        self._node("Cast", shaped, output=role, to=TensorProto.FLOAT)
        self._declare(role, TensorProto.FLOAT, sizes)

    def _to_bounds(self, current: str, space: Box, low: Array, high: Array) -> str:
        if not np.isfinite([low, high]).all():
            raise UsageError(
                "Actions in [-1, 1] need bounds to be mapped to", expected="finite bounds", got=describe(space)
            )
        current = self._node("Max", current, self._constant("minus one", np.array(-1.0)))
        current = self._node("Min", current, self._constant("one", np.array(1.0)))
        current = self._node("Mul", current, self._constant("half", (high - low) / 2))
        return self._node("Add", current, self._constant("middle", (high + low) / 2))

    def _refuse_numbers(self, value: onnx.ValueInfoProto, space: Discrete) -> None:
        sizes = _shape(value)[1:]
        integers = (TensorProto.INT64, TensorProto.INT32)
        if value.type.tensor_type.elem_type in integers and all(size in (0, 1) for size in sizes):
            return
        raise UsageError(
            "The graph's action is no choice",
            expected=f"one integer for each observation ({describe(space)})",
            got=_signature(value),
            todo=f"Where these are scores of the choices: --output {value.name.removeprefix('theirs.')}:logits",
        )

    def _constant(self, name: str, value: Array) -> str:
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value), f"adopted.{name}"))
        return f"adopted.{name}"

    def _node(self, kind: str, *inputs: str, output: str = "", **attributes: int) -> str:
        name = f"adopted.{kind.lower()}.{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, list(inputs), [output or name], name=name, **cast(dict[str, Any], attributes))
        )
        return output or name

    def _declare(self, name: str, kind: int, sizes: Sequence[int]) -> None:
        self._graph.output.append(helper.make_tensor_value_info(name, kind, [_BATCH, *sizes]))


def _check(model: onnx.ModelProto) -> None:
    from export.canonical import check

    training = [node.name for node in model.graph.node if node.op_type == "Dropout" and len(node.input) > 2]
    if training:
        raise GateError("The graph drops at random", got=", ".join(training), todo="Export it in evaluation mode")
    try:
        check(model)
    except GateError as error:
        if not isinstance(error.__cause__, onnx.shape_inference.InferenceError):
            raise
        raise GateError(
            "The graph is not valid once its batch is left open",
            got=error.got,
            todo="Export it with a dynamic batch (dynamic_axes or dynamic_shapes)",
        ) from error


def _shape(value: onnx.ValueInfoProto) -> list[int]:
    """Sizes, 0 where one is open."""
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _signature(value: onnx.ValueInfoProto) -> str:
    kind = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    sizes = ", ".join(dim.dim_param or str(dim.dim_value or "?") for dim in value.type.tensor_type.shape.dim)
    return f"{value.name.removeprefix('theirs.')} ({kind}[{sizes}])"


def read_model(data: bytes) -> onnx.ModelProto:
    """Parse an ONNX file that somebody else wrote.

    Raises:
        ArtifactError: it is no ONNX file, or keeps weights in other files.
    """
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ArtifactError("This is no ONNX file", got=error) from error
    if not model.graph.node:
        raise ArtifactError("This is no ONNX file of a policy", expected="a graph with operators", got="none")
    if any(tensor.data_location == TensorProto.EXTERNAL for tensor in _tensors(model)):
        raise ArtifactError(
            "The ONNX file keeps weights in other files, which it could point anywhere",
            expected="one file that holds everything",
            todo="Save it in one file: onnx.save(model, path, save_as_external_data=False), or external_data=False",
        )
    return model


def _tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    inside = [attribute.t for attribute in attributes] + [t for attribute in attributes for t in attribute.tensors]
    return [*model.graph.initializer, *inside]
