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
from paddleport.spaces import Box, Discrete, Space

OBSERVATION_SPACE = Box(
    shape=(4,), dtype="float32", low=None, high=None, names=("position", "velocity", "angle", "angular velocity")
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
    initializers = [numpy_helper.from_array(array, name) for name, array in {**constants, "flat": shape}.items()]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info(out.name, _ONNX_TYPES[out.dtype], ["batch", *out.shape]) for out in outputs],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


_ONNX_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


def _publish(
    models: Path, name: str, model: bytes, action_space: Space, kind: str, outputs: list[TensorInfo], int8: bool
) -> Path:
    precisions = ("float32", "int8") if int8 else ("float32",)
    contents = {_FILES[precision]: model for precision in precisions}
    contents["golden.npz"] = npz_bytes(_golden(model, precisions, outputs))
    contents["README.md"] = b"# A hand-made policy\n"
    measured = ReturnStatistics(mean=500.0, std=0.0, min=500.0, max=500.0, episodes=20, seed=7)
    draft = Manifest(
        name=name,
        version=0,
        algorithm="ppo",
        environment=EnvironmentInfo(id="HandMade-v0", max_episode_steps=500),
        observation_space=OBSERVATION_SPACE,
        action_space=action_space,
        action_transform=ActionTransform(kind=kind),
        inputs=(_info("obs", "float32", 4),),
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


def _golden(model: bytes, precisions: tuple[str, ...], outputs: list[TensorInfo]) -> dict[str, np.ndarray]:
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    names = [output.name for output in outputs]
    results = dict(zip(names, Session(model).run({"obs": obs}, names), strict=True))
    vectors = {f"{precision}.{name}": array for precision in precisions for name, array in results.items()}
    return {"obs": obs, **vectors}
