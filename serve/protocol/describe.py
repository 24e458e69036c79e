"""What the server tells about itself and its policies: v2 metadata and answers, and the policy API's listing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from paddleport import __version__
from paddleport.manifest import Manifest, TensorInfo
from serve.protocol import tensors

_PLATFORM = "onnx_onnxv1"
_VARIABLE = -1


def server_metadata() -> dict[str, Any]:
    """The answer to `GET /v2`; it announces what exists, nothing else."""
    return {"name": "paddleport", "version": __version__, "extensions": ["binary_tensor_data"]}


def model_metadata(manifest: Manifest, versions: Sequence[int], precision: str, provider: str) -> dict[str, Any]:
    """The answer to `GET /v2/models/{model}`.

    Args:
        manifest: of the version that is asked about.
        versions: the policy's versions that are ready, oldest first.
        precision: of the file that runs.
        provider: the execution provider in use.
    """
    return {
        "name": manifest.name,
        "versions": [str(version) for version in versions],
        "platform": _PLATFORM,
        "inputs": [_tensor(given) for given in manifest.inputs],
        "outputs": [_tensor(output) for output in manifest.outputs],
        "parameters": {
            "precision": precision,
            "execution_provider": provider,
            "serving_version": str(manifest.version),
        },
    }


def policy_description(manifest: Manifest, precision: str, provider: str) -> dict[str, Any]:
    """What `GET /v1/policies/{name}` says of the version that acts."""
    description: dict[str, Any] = {
        "name": manifest.name,
        "version": manifest.version,
        "precision": precision,
        "provider": provider,
        "algorithm": manifest.algorithm,
        "environment": manifest.environment,
        "observation_space": manifest.observation_space,
        "action_space": manifest.action_space,
        "outputs": [output.name for output in manifest.outputs],
        "measured_return": manifest.precisions[precision].measured_return,
    }
    plain: dict[str, Any] = msgspec.to_builtins(description)
    return plain


def _tensor(info: TensorInfo) -> dict[str, Any]:
    return {"name": info.name, "datatype": tensors.datatype_of(info.dtype), "shape": [_VARIABLE, *info.shape]}
