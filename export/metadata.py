"""What an ONNX file says of itself, so that it explains itself where it lies alone: `metadata_props`.

All values are text, as ONNX has it; those that have parts are JSON. The bundle's version is not among them, since it is
given out when the file is finished, nor is any hash of the manifest, which itself holds the file's.
"""

from __future__ import annotations

from typing import Any

import msgspec
import onnx

from paddleport import __version__
from paddleport.manifest import EnvironmentInfo
from paddleport.spaces import Space, leaf_spaces

PREFIX = "paddleport."


def describe_itself(
    model: onnx.ModelProto,
    *,
    algorithm: str,
    environment: EnvironmentInfo,
    observation_space: Space,
    action_space: Space,
    run_id: str,
) -> None:
    """Write a policy's description into its model, in place.

    Args:
        model: the ONNX model.
        algorithm: that trained it.
        environment: that it was trained in.
        observation_space: with the names, order, units and bounds of its numbers.
        action_space: the same of what it answers.
        run_id: of the training run; empty where there is none that we know.
    """
    described: dict[str, Any] = {
        "product": f"paddleport {__version__}",
        "algorithm": algorithm,
        "environment": environment.id,
        "preprocessing": environment.preprocessing,
        "run_id": run_id,
        "observation_space": observation_space,
        "action_space": action_space,
        "inputs": list(leaf_spaces(observation_space)),
    }
    del model.metadata_props[:]
    for name, value in described.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        model.metadata_props.add(key=PREFIX + name, value=text)
