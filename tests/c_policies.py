"""Policies in C for tests: bundles to write them from, compiled and called through ctypes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from export import golden
from export.canonical import tensor_infos
from export.edge import command
from export.publish import npz_bytes, publish
from paddleport import Bundle
from paddleport.manifest import ActionTransform, EnvironmentInfo, Manifest, Parity, PrecisionInfo, Provenance
from paddleport.session import Session
from paddleport.spaces import Box, Leaves, Space
from quantize.grid import layer_grid

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion"]


def publish_model(models: Path, name: str, spaces: tuple[Space, Space], forms: dict, visited: Leaves, tolerance: float):
    """Publish ONNX models by precision as a bundle; `tolerance` is the int8 one's. Returns the opened bundle."""
    obs_space, action_space = spaces
    names = [output.name for output in forms["float32"].graph.output]
    contents = {f"{precision}.onnx": model.SerializeToString() for precision, model in forms.items()}
    sessions = {precision: Session(contents[f"{precision}.onnx"]) for precision in forms}
    obs = golden.golden_observations(obs_space, visited)
    contents["golden.npz"] = npz_bytes(golden.golden_arrays(obs, sessions, names))
    allowed = {"float32": golden.FLOAT32_TOLERANCE, "int8": tolerance}
    model = forms["float32"]
    draft = Manifest(
        name=name,
        version=0,
        algorithm="ppo",
        environment=EnvironmentInfo(id="HandMade-v0", preprocessing=("frames */ are stacked",)),
        observation_space=obs_space,
        action_space=action_space,
        action_transform=ActionTransform(kind="affine" if isinstance(action_space, Box) else "argmax"),
        inputs=tensor_infos(model.graph.input),
        outputs=tensor_infos(model.graph.output),
        opset=13,
        ir_version=8,
        precisions={
            precision: PrecisionInfo(file=f"{precision}.onnx", tolerance=allowed[precision]) for precision in forms
        },
        files={},
        provenance=Provenance(
            run_id="made", checkpoint_sha256="0" * 64, step=1, seed=1, config={}, versions={}, created="2026-11-30"
        ),
        parity=Parity(observations=1, worst_visited=0.0, worst_extreme=0.0, tolerance=1e-5),
    )
    return Bundle.open(publish(models, draft, lambda _: contents))


def publish_example(models: Path, name: str, example) -> Bundle:
    """Publish an example of tests/policies.py."""
    spaces = (example.kind.observation_space, example.kind.action_space)
    tolerance = 2 * float(output_step(example).max())
    forms = {"float32": example.model, "int8": example.int8}
    return publish_model(models, name, spaces, forms, example.sets.visited, tolerance)


def output_step(example) -> np.ndarray:
    """What one step of one number in front of the head is worth in each of its outputs, [outputs]."""
    path = next(path for path in example.layers if path.split(".")[-1] in ("policy_head", "head"))
    scales = example.layers[path]
    grid = layer_grid(scales, example.weights[f"{path}.bias"])
    return float(grid.activation[-1]) * np.abs(example.weights[f"{path}.weight"]).max(axis=0)


def write(bundle: Bundle, precision: str, out: Path, *options: str) -> Path:
    """`paddleport edge --target c`, without measuring."""
    arguments = [str(bundle.path), "--precision", precision, "--out", str(out), "--no-measure", *options]
    command.run(command.parse(arguments))
    return out


def make(folder: Path, goal: str, **variables: str) -> str:
    """What `make GOAL` prints in a generated folder."""
    done = run_make(folder, goal, **variables)
    assert done.returncode == 0, done.stdout
    return done.stdout


def run_make(folder: Path, goal: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`make GOAL`, in an environment of its own: the tests may run under make themselves."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    settings = [f"{name}={value}" for name, value in variables.items()]
    return subprocess.run(
        ["make", "-C", str(folder), goal, *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # where an emulated RISC-V prints
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )


def need(*tools: str) -> None:
    """Skip the test where a tool that CI installs is missing."""
    missing = [tool for tool in tools if not (shutil.which(tool) or Path(tool).is_file())]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def want(*tools: str) -> None:
    """Skip the test where a large tool is missing that CI goes without."""
    missing = [tool for tool in tools if not (shutil.which(tool) or Path(tool).is_file())]
    if missing:
        pytest.skip(f"there is no {', '.join(missing)} here")


class CPolicy:
    """A compiled policy."""

    def __init__(self, folder: Path, bundle: Bundle, head: str, prefix: str = "policy", **variables: str) -> None:
        make(folder, "shared", **variables)
        self._library = ctypes.CDLL(str(folder / "build" / f"lib{prefix}.so"))
        self._prefix = prefix
        self._spaces = bundle.manifest.observation_space, bundle.manifest.action_space
        shapes = {output.name: output.shape for output in bundle.manifest.outputs}
        self._head_size = int(np.prod(shapes[head]))

    def evaluate(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Observations [n, …] → actions [n, …], heads [n, size], return codes."""
        obs_space, action_space = self._spaces
        dtype = action_space.dtype if isinstance(action_space, Box) else "int32"
        obs = np.ascontiguousarray(obs, dtype=obs_space.dtype)
        actions = np.zeros((len(obs), *action_space.shape), dtype)
        heads = np.zeros((len(obs), self._head_size), np.float32)
        function = getattr(self._library, f"{self._prefix}_evaluate")
        codes = [function(_at(obs, row), _at(actions, row), _at(heads, row)) for row in range(len(obs))]
        return actions, heads, codes


def _at(array: np.ndarray, row: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data + row * array.strides[0])
