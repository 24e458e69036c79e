"""Bundles of the sizes that `benchmarks/serve.py` asks for: random weights, hand-made graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    TensorInfo,
)
from paddleport.session import Session
from paddleport.spaces import Box, Discrete, Space


def publish_mlp(models: Path, name: str, inputs: int, width: int, actions: int, *, discrete: bool) -> Path:
    """Publish inputs → width → width → actions, tanh between, as the next version of `name`."""
    rng = np.random.default_rng(0)
    constants: dict[str, Any] = {}
    nodes = []
    before, size = "obs", inputs
    for index, wide in enumerate((width, width, actions)):
        constants[f"w{index}"] = (rng.normal(size=(size, wide)) / np.sqrt(size)).astype(np.float32)
        constants[f"b{index}"] = np.zeros(wide, np.float32)
        nodes.append(helper.make_node("Gemm", [before, f"w{index}", f"b{index}"], [f"z{index}"]))
        if index < 2:
            nodes.append(helper.make_node("Tanh", [f"z{index}"], [f"h{index}"]))
        before, size = f"h{index}", wide
    nodes[-1].output[0] = "head"
    return _publish(models, name, nodes, constants, Box(shape=(inputs,), dtype="float32", low=None, high=None),
                    actions, discrete=discrete)  # fmt: skip


def publish_nature(models: Path, name: str, actions: int = 6) -> Path:
    """Publish NatureCNN on 4 frames of 84 × 84 bytes (Mnih et al. 2015) as the next version of `name`."""
    rng = np.random.default_rng(0)
    layers = ((32, 4, 8, 4), (64, 32, 4, 2), (64, 64, 3, 1))
    constants: dict[str, Any] = {"scale": np.float32(255), "flat": np.array([-1, 3136], np.int64)}
    nodes = [
        helper.make_node("Cast", ["obs"], ["bytes"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["bytes", "scale"], ["h"]),
    ]
    before = "h"
    for index, (out, into, kernel, stride) in enumerate(layers):
        weight = rng.normal(size=(out, into, kernel, kernel)) / np.sqrt(into * kernel**2)
        constants[f"c{index}"] = weight.astype(np.float32)
        nodes.append(helper.make_node("Conv", [before, f"c{index}"], [f"k{index}"], strides=[stride, stride]))
        nodes.append(helper.make_node("Relu", [f"k{index}"], [f"r{index}"]))
        before = f"r{index}"
    constants |= {
        "w3": (rng.normal(size=(3136, 512)) / 56).astype(np.float32),
        "w4": (rng.normal(size=(512, actions)) / 23).astype(np.float32),
    }
    nodes += [
        helper.make_node("Reshape", [before, "flat"], ["vector"]),
        helper.make_node("Gemm", ["vector", "w3"], ["z3"]),
        helper.make_node("Relu", ["z3"], ["r3"]),
        helper.make_node("Gemm", ["r3", "w4"], ["head"]),
    ]
    return _publish(models, name, nodes, constants, Box(shape=(4, 84, 84), dtype="uint8", low=0, high=255),
                    actions, discrete=True)  # fmt: skip


def _publish(
    models: Path,
    name: str,
    nodes: list[Any],
    constants: dict[str, Any],
    space: Box,
    actions: int,
    *,
    discrete: bool,
) -> Path:
    if discrete:
        nodes.append(helper.make_node("Identity", ["head"], ["logits"]))
        nodes.append(helper.make_node("ArgMax", ["logits"], ["action"], axis=1, keepdims=0))
        second, first = TensorInfo(name="logits", dtype="float32", shape=(actions,)), ("int64", ())
    else:
        nodes.append(helper.make_node("Identity", ["head"], ["mean"]))
        nodes.append(helper.make_node("Clip", ["mean", "least", "most"], ["action"]))
        constants |= {"least": np.float32(-1), "most": np.float32(1)}
        second, first = TensorInfo(name="mean", dtype="float32", shape=(actions,)), ("float32", (actions,))
    outputs = (TensorInfo(name="action", dtype=first[0], shape=first[1]), second)
    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8}
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("obs", kinds[space.dtype], ["batch", *space.shape])],
        [helper.make_tensor_value_info(out.name, kinds[out.dtype], ["batch", *out.shape]) for out in outputs],
        [numpy_helper.from_array(np.asarray(array), key) for key, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    rng = np.random.default_rng(1)
    obs = rng.integers(0, 256, (16, *space.shape)) if space.dtype == "uint8" else rng.normal(size=(16, *space.shape))
    feeds = {"obs": obs.astype(space.dtype)}
    names = [out.name for out in outputs]
    golden = {f"float32.{key}": value for key, value in zip(names, Session(data).run(feeds, names), strict=True)}
    contents = {"policy.onnx": data, "golden.npz": npz_bytes({**feeds, **golden}), "README.md": b"# For a benchmark\n"}
    action_space: Space = Discrete(actions) if discrete else Box(shape=(actions,), dtype="float32", low=-1.0, high=1.0)
    return publish(models, _draft(name, space, action_space, outputs), lambda _: contents)


def _draft(name: str, space: Box, action_space: Space, outputs: tuple[TensorInfo, ...]) -> Manifest:
    return Manifest(
        name=name,
        version=0,
        algorithm="ppo",
        environment=EnvironmentInfo(id="Benchmark-v0"),
        observation_space=space,
        action_space=action_space,
        action_transform=ActionTransform(kind="argmax" if isinstance(action_space, Discrete) else "affine"),
        inputs=(TensorInfo(name="obs", dtype=space.dtype, shape=space.shape),),
        outputs=outputs,
        opset=13,
        ir_version=8,
        precisions={"float32": PrecisionInfo(file="policy.onnx", tolerance=1e-4)},
        files={},
        provenance=Provenance(
            run_id="benchmark", checkpoint_sha256="0" * 64, step=0, seed=0, config={}, versions={}, created=""
        ),
        parity=Parity(observations=16, worst_visited=0.0, worst_extreme=0.0, tolerance=1e-4),
    )
