"""Policies in Paddle, built from spaces without training or environment, and their ONNX forms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import onnx

from train.runtime import load_paddle

load_paddle()

from export import observations, paddle_child, qdq  # noqa: E402
from export.canonical import canonicalize  # noqa: E402
from export.convert import OPSET, read_converted  # noqa: E402
from paddleport.checkpoint import NetworkInfo, Run  # noqa: E402
from paddleport.session import Session  # noqa: E402
from paddleport.spaces import Box, Discrete, Space  # noqa: E402
from quantize.ptq import calibrate  # noqa: E402
from quantize.scales import LayerScales  # noqa: E402
from train.checkpointing import write_checkpoint  # noqa: E402
from train.initialization import initial_weights  # noqa: E402
from train.network import PolicyNetwork, load_arrays, state_arrays  # noqa: E402

ASYMMETRIC = Box(shape=(4,), dtype="float32", low=(-1.0, -3.0, 0.0, None), high=(1.0, 5.0, 10.0, 2.0))
PENDULUM = Box(shape=(3,), dtype="float32", low=(-1.0, -1.0, -8.0), high=(1.0, 1.0, 8.0))
CARTPOLE = Box(shape=(4,), dtype="float32", low=(-4.8, None, -0.42, None), high=(4.8, None, 0.42, None))
WIDE = Box(shape=(17,), dtype="float64", low=None, high=None)
TORQUE = Box(shape=(1,), dtype="float32", low=-2.0, high=2.0)


@dataclass(frozen=True)
class Kind:
    """A policy to build; `shift` and `scale` are what its observations, and its normaliser, are made of."""

    observation_space: Box
    action_space: Space
    activation: str = "tanh"
    hidden_sizes: tuple[int, ...] = (64, 64)
    normalize: bool = True
    shift: float = 0.0
    scale: float = 1.0
    gain: float = 100.0


KINDS = {
    "discrete": Kind(CARTPOLE, Discrete(n=2)),
    "discrete-from-5": Kind(WIDE, Discrete(n=6, start=5), "relu", (256, 256)),
    "box": Kind(PENDULUM, TORQUE, "relu"),
    "box-asymmetric": Kind(PENDULUM, ASYMMETRIC, gain=400.0),
    "box-plain": Kind(PENDULUM, TORQUE, "relu", (32,), normalize=False),
    "far-away": Kind(WIDE, Discrete(n=4), shift=100.0, scale=50.0),
}


IMAGE_KINDS = {
    "picture": Kind(Box(shape=(36, 40, 3), dtype="uint8", low=0.0, high=255.0), Discrete(n=4), hidden_sizes=()),
    "frames": Kind(Box(shape=(4, 36, 36), dtype="uint8", low=0.0, high=255.0), TORQUE, "relu", (32,)),
}
"""Policies of images, which go through convolutions."""


@dataclass(frozen=True)
class Example:
    """A policy in Paddle, its ONNX forms, and observations."""

    kind: Kind
    network: PolicyNetwork
    model: onnx.ModelProto
    layers: dict[str, LayerScales]
    int8: onnx.ModelProto
    sets: observations.ObservationSets

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """By structural path."""
        return state_arrays(self.network)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the outputs."""
        return self.network.output_names

    def session(self, precision: str = "float32") -> Session:
        """On either form."""
        return Session((self.model if precision == "float32" else self.int8).SerializeToString())


def build(kind: Kind, seed: int = 0) -> PolicyNetwork:
    """Random weights, large heads, and a normaliser that fits observations of `shift` ± `scale`."""
    info = NetworkInfo(hidden_sizes=kind.hidden_sizes, activation=kind.activation, normalize_obs=kind.normalize)
    network = PolicyNetwork(kind.observation_space, kind.action_space, info)
    rng = np.random.default_rng(seed)
    weights = {**state_arrays(network), **initial_weights(network, rng)}
    for name, array in weights.items():
        if name.endswith(".bias") or name == "log_std":
            weights[name] = rng.normal(0, 0.3, array.shape).astype(np.float32)
    weights["policy_head.weight"] = weights["policy_head.weight"] * kind.gain
    if "obs_mean" in weights:
        size = weights["obs_mean"].shape
        weights["obs_mean"] = (kind.shift + 0.3 * kind.scale * rng.normal(size=size)).astype(np.float32)
        weights["obs_std"] = (kind.scale * rng.uniform(0.5, 2, size)).astype(np.float32)
    load_arrays(network, weights)
    network.eval()
    return network


def observations_of(kind: Kind, rng: np.random.Generator, count: int) -> np.ndarray:
    """Random observations: normal ones, or pictures of random brightness under noise."""
    shape, dtype = (count, *kind.observation_space.shape), kind.observation_space.dtype
    if dtype != "uint8":
        return (kind.shift + kind.scale * rng.normal(size=shape)).astype(dtype)
    brightness = rng.integers(0, 128, size=(count, 1, 1, 1))
    return (brightness + rng.integers(0, 128, size=shape)).astype(dtype)


def convert_here(network: PolicyNetwork, space: Space, folder: Path) -> onnx.ModelProto:
    """The canonical graph, without a child process: what is converted in these tests does not abort."""
    folder.mkdir()
    paddle_child.save(network, space, folder)
    paddle_child.to_onnx(folder, OPSET)
    return canonicalize(read_converted(folder), ["obs"], network.output_names)


def make_example(kind: Kind, folder: Path, network: PolicyNetwork | None = None) -> Example:
    """Convert and quantize a policy of this kind."""
    network = network or build(kind)
    model = convert_here(network, kind.observation_space, folder)
    rng = np.random.default_rng(1)
    visited = {"obs": observations_of(kind, rng, 600)}
    layers = calibrate(network, visited, "absmax")
    int8 = qdq.quantized(model, layers, state_arrays(network))
    sets = observations.observation_sets(kind.observation_space, visited, 0)
    return Example(kind, network, model, layers, int8, sets)


def change_policy(run: Path, step: int, change) -> None:
    """Write another checkpoint with weights made from the last one's."""
    checkpoint = Run(run).checkpoint("last")
    state = msgspec.structs.replace(checkpoint.state, step=step, files={})
    write_checkpoint(run, state, change(checkpoint.policy_tensors()), {"unused": np.zeros(1, np.float32)})
