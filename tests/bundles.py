"""Hand-made policies with weights known by heart, published as real bundles."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.publish import npz_bytes, publish
from paddleport.manifest import (
    ActionTransform,
    EnvironmentInfo,
    Manifest,
    Parity,
    PrecisionInfo,
    Provenance,
    ReturnStatistics,
    TensorInfo,
)
from paddleport.session import Session
from paddleport.spaces import Box, DictSpace, Discrete, Leaves, MultiBinary, MultiDiscrete, Space, leaf_spaces

OBSERVATION_SPACE = Box(
    shape=(4,), dtype="float32", low=None, high=None, names=("position", "velocity", "angle", "angular velocity")
)
PARTS_SPACE = DictSpace(
    spaces={"cue": Discrete(2, start=3), "speed": Box(shape=(2,), dtype="float32", low=None, high=None)}
)
BOX_LOW, BOX_HIGH = (-2.0, 0.0), (2.0, 1.0)
_FILES = {"float32": "policy.onnx", "int8": "policy.int8.onnx"}


def discrete_logits(obs: np.ndarray, flip: bool = False) -> np.ndarray:
    """What the Discrete policy computes: [batch, 4] → [batch, 2]."""
    lean = obs[:, 2] + 0.5 * obs[:, 3]
    return np.stack([lean, -lean] if flip else [-lean, lean], axis=1)


def discrete_action(obs: list[float], flip: bool = False) -> int:
    """Its action: 1 where angle + angular velocity / 2 is above zero (flipped: below)."""
    lean = obs[2] + 0.5 * obs[3]
    return int(lean < 0 if flip else lean > 0)


def box_action(obs: list[float]) -> list[float]:
    """The Box policy's action: tanh of position and of velocity, mapped onto the bounds of each dimension."""
    unit = (math.tanh(obs[0]), math.tanh(obs[1]))
    return [low + (high - low) * (value + 1) / 2 for low, high, value in zip(BOX_LOW, BOX_HIGH, unit, strict=True)]


def parts_logits(cue: int, speed: list[float]) -> list[float]:
    """What the policy on a Dict computes: two logits for its first choice, three for its second."""
    return [-speed[0], speed[0], speed[1], 0.0, 2.0 * (cue - 3) - 1.0]


def parts_action(cue: int, speed: list[float]) -> list[int]:
    """Its action: the likeliest of each choice, the second of which begins at 5."""
    logits = parts_logits(cue, speed)
    return [int(np.argmax(logits[:2])), 5 + int(np.argmax(logits[2:]))]


def value(obs: list[float]) -> float:
    """The value output of both policies."""
    return 1.0 + 0.5 * sum(obs)


def publish_discrete(models: Path, name: str = "cartpole", *, flip: bool = False, int8: bool = True) -> Path:
    """Publish the Discrete policy as the next version of `name`; `flip` makes a version that acts the other way."""
    sign = -1.0 if flip else 1.0
    weight = np.array([[0, 0], [0, 0], [-sign, sign], [-sign / 2, sign / 2]], dtype=np.float32)
    nodes = [
        helper.make_node("Gemm", ["obs", "weight"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["action"], axis=1, keepdims=0),
    ]
    outputs = [_info("action", "int64"), _info("logits", "float32", 2), _info("value", "float32")]
    model = _model(nodes, {"weight": weight}, outputs)
    return _publish(models, name, model, Discrete(n=2, names=("left", "right")), "argmax", outputs, int8)


def publish_box(models: Path, name: str = "reacher", *, int8: bool = True) -> Path:
    """Publish the Box policy as the next version of `name`."""
    low, high = np.float32(BOX_LOW), np.float32(BOX_HIGH)
    constants = {
        "weight": np.eye(4, 2, dtype=np.float32),
        "half": (high - low) / 2,
        "middle": (high + low) / 2,
    }
    nodes = [
        helper.make_node("Gemm", ["obs", "weight"], ["raw"]),
        helper.make_node("Tanh", ["raw"], ["mean"]),
        helper.make_node("Mul", ["mean", "half"], ["scaled"]),
        helper.make_node("Add", ["scaled", "middle"], ["action"]),
    ]
    outputs = [_info("action", "float32", 2), _info("mean", "float32", 2), _info("value", "float32")]
    space = Box(shape=(2,), dtype="float32", low=BOX_LOW, high=BOX_HIGH)
    return _publish(models, name, _model(nodes, constants, outputs), space, "affine", outputs, int8)


def publish_binary(models: Path, name: str = "switches") -> Path:
    """Publish a policy with two switches, the first on where the position is above 0, the second where it is below."""
    weight = np.array([[1, -1], [0, 0], [0, 0], [0, 0]], dtype=np.float32)
    nodes = [
        helper.make_node("Gemm", ["obs", "weight"], ["logits"]),
        helper.make_node("Greater", ["logits", "zero"], ["on"]),
        helper.make_node("Cast", ["on"], ["action"], to=TensorProto.INT8),
    ]
    outputs = [_info("action", "int8", 2), _info("logits", "float32", 2), _info("value", "float32")]
    model = _model(nodes, {"weight": weight, "zero": np.zeros(1, np.float32)}, outputs)
    return _publish(models, name, model, MultiBinary(shape=(2,)), "threshold", outputs, int8=False)


def publish_parts(models: Path, name: str = "mixed") -> Path:
    """Publish a policy that sees a Dict and makes two choices."""
    constants = {
        "weight": np.array([[0, 0, 0, 0, 2], [-1, 1, 0, 0, 0], [0, 0, 1, 0, 0]], dtype=np.float32),
        "bias": np.array([0, 0, 0, 0, -7], dtype=np.float32),
        "start": np.array([0, 5], dtype=np.int64),
        "sizes": np.array([2, 3], dtype=np.int64),
        "column": np.array([-1, 1], dtype=np.int64),
        "flat": np.array([-1], dtype=np.int64),
    }
    nodes = [
        helper.make_node("Cast", ["obs.cue"], ["cue"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["cue", "column"], ["cues"]),
        helper.make_node("Concat", ["cues", "obs.speed"], ["vector"], axis=1),
        helper.make_node("Gemm", ["vector", "weight", "bias"], ["logits"]),
        helper.make_node("Split", ["logits", "sizes"], ["first", "second"], axis=1),
        helper.make_node("ArgMax", ["first"], ["one"], axis=1),
        helper.make_node("ArgMax", ["second"], ["other"], axis=1),
        helper.make_node("Concat", ["one", "other"], ["choices"], axis=1),
        helper.make_node("Add", ["choices", "start"], ["action"]),
        helper.make_node("Reshape", ["cue", "flat"], ["value"]),
    ]
    outputs = [_info("action", "int64", 2), _info("logits", "float32", 5), _info("value", "float32")]
    model = _graph(nodes, constants, outputs, PARTS_SPACE)
    space = MultiDiscrete(nvec=(2, 3), start=(0, 5))
    return _publish(models, name, model, space, "argmax", outputs, int8=False, observation_space=PARTS_SPACE)


def _info(name: str, dtype: str, *shape: int) -> TensorInfo:
    return TensorInfo(name=name, dtype=dtype, shape=shape)


def _model(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], outputs: list[TensorInfo]) -> bytes:
    constants = {**constants, "value_weight": np.full((4, 1), 0.5, np.float32), "value_bias": np.ones(1, np.float32)}
    shape = np.array([-1], dtype=np.int64)
    nodes = [
        *nodes,
        helper.make_node("Gemm", ["obs", "value_weight", "value_bias"], ["column"]),
        helper.make_node("Reshape", ["column", "flat"], ["value"]),
    ]
    return _graph(nodes, {**constants, "flat": shape}, outputs, OBSERVATION_SPACE)


def _graph(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], outputs: list[TensorInfo], space: Space
) -> bytes:
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(
        nodes,
        "policy",
        [
            helper.make_tensor_value_info(name, _ONNX_TYPES[leaf.dtype], ["batch", *leaf.shape])
            for name, leaf in leaf_spaces(space).items()
        ],
        [helper.make_tensor_value_info(out.name, _ONNX_TYPES[out.dtype], ["batch", *out.shape]) for out in outputs],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


_ONNX_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int8": TensorProto.INT8}


def _publish(
    models: Path,
    name: str,
    model: bytes,
    action_space: Space,
    kind: str,
    outputs: list[TensorInfo],
    int8: bool,
    observation_space: Space = OBSERVATION_SPACE,
) -> Path:
    precisions = ("float32", "int8") if int8 else ("float32",)
    contents = {_FILES[precision]: model for precision in precisions}
    contents["golden.npz"] = npz_bytes(_golden(model, precisions, outputs, observation_space))
    contents["README.md"] = b"# A hand-made policy\n"
    measured = ReturnStatistics(mean=500.0, std=0.0, min=500.0, max=500.0, episodes=20, seed=7)
    draft = Manifest(
        name=name,
        version=0,
        algorithm="ppo",
        environment=EnvironmentInfo(id="HandMade-v0", max_episode_steps=500),
        observation_space=observation_space,
        action_space=action_space,
        action_transform=ActionTransform(
            kind=kind, splits=action_space.nvec if isinstance(action_space, MultiDiscrete) else ()
        ),
        inputs=tuple(_info(name, leaf.dtype, *leaf.shape) for name, leaf in leaf_spaces(observation_space).items()),
        outputs=tuple(outputs),
        opset=13,
        ir_version=8,
        precisions={
            precision: PrecisionInfo(file=_FILES[precision], tolerance=1e-5, measured_return=measured)
            for precision in precisions
        },
        files={},
        provenance=Provenance(
            run_id="hand-made", checkpoint_sha256="0" * 64, step=1, seed=1, config={}, versions={}, created="2026-11-30"
        ),
        parity=Parity(observations=64, worst_visited=0.0, worst_extreme=0.0, tolerance=1e-5),
    )
    return publish(models, draft, lambda _: contents)


def _golden(
    model: bytes, precisions: tuple[str, ...], outputs: list[TensorInfo], space: Space
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    obs: Leaves = {
        name: rng.integers(leaf.start, leaf.start + leaf.n, size=64)
        if isinstance(leaf, Discrete)
        else rng.normal(size=(64, *leaf.shape)).astype(np.float32)
        for name, leaf in leaf_spaces(space).items()
    }
    names = [output.name for output in outputs]
    results = dict(zip(names, Session(model).run(obs, names), strict=True))
    vectors = {f"{precision}.{name}": array for precision in precisions for name, array in results.items()}
    return {**obs, **vectors}


def publish_gaussian(models: Path, name: str = "drawn", *, log_std: float = -1.0) -> Path:
    """Publish the Box policy with a standard deviation, so that actions can be drawn from it."""
    low, high = np.float32(BOX_LOW), np.float32(BOX_HIGH)
    constants = {
        "weight": np.eye(4, 2, dtype=np.float32),
        "half": (high - low) / 2,
        "middle": (high + low) / 2,
        "zero": np.zeros(1, np.float32),
        "spread": np.full(2, log_std, np.float32),
        "least": np.float32(-1),
        "most": np.float32(1),
    }
    nodes = [
        helper.make_node("Gemm", ["obs", "weight"], ["mean"]),
        helper.make_node("Clip", ["mean", "least", "most"], ["inside"]),
        helper.make_node("Mul", ["inside", "half"], ["scaled"]),
        helper.make_node("Add", ["scaled", "middle"], ["action"]),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "spread"], ["log_std"]),
    ]
    outputs = [_info("action", "float32", 2), _info("mean", "float32", 2), _info("log_std", "float32", 2)]
    outputs.append(_info("value", "float32"))
    space = Box(shape=(2,), dtype="float32", low=BOX_LOW, high=BOX_HIGH)
    return _publish(models, name, _model(nodes, constants, outputs), space, "affine", outputs, int8=False)


def publish_values(models: Path, name: str = "values") -> Path:
    """Publish a policy as DQN gives it: q_values and no distribution."""
    weight = np.array([[0, 0], [0, 0], [-1, 1], [-0.5, 0.5]], dtype=np.float32)
    nodes = [
        helper.make_node("Gemm", ["obs", "weight"], ["q_values"]),
        helper.make_node("ArgMax", ["q_values"], ["action"], axis=1, keepdims=0),
    ]
    outputs = [_info("action", "int64"), _info("q_values", "float32", 2)]
    model = _graph(nodes, {"weight": weight}, outputs, OBSERVATION_SPACE)
    return _publish(models, name, model, Discrete(n=2), "argmax", outputs, int8=False)


def publish_unruly(models: Path, name: str = "unruly") -> Path:
    """Publish a policy whose action leaves its bounds where position is above 10: nothing in its graph clips it."""
    constants = {"weight": np.eye(4, 2, dtype=np.float32) / 10}
    nodes = [
        helper.make_node("Gemm", ["obs", "weight"], ["mean"]),
        helper.make_node("Identity", ["mean"], ["action"]),
    ]
    outputs = [_info("action", "float32", 2), _info("mean", "float32", 2), _info("value", "float32")]
    space = Box(shape=(2,), dtype="float32", low=-1.0, high=1.0)
    return _publish(models, name, _model(nodes, constants, outputs), space, "affine", outputs, int8=False)
