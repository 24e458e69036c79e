"""What the server tells about itself and its policies: v2 metadata and answers, and the policy API's listing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from paddleport import __version__
from paddleport.manifest import Manifest, TensorInfo
from serve.protocol import tensors
from serve.protocol.parsing import parse

_PLATFORM = "onnx_onnxv1"
_VARIABLE = -1
_EXTENSIONS = ("binary_tensor_data", "model_repository", "model_configuration", "statistics")


def server_metadata() -> dict[str, Any]:
    """The answer to `GET /v2`; it announces what exists, nothing else."""
    return {"name": "paddleport", "version": __version__, "extensions": list(_EXTENSIONS)}


class _Index(msgspec.Struct):
    ready: bool = False


_INDEX = msgspec.json.Decoder(_Index)


def index_filter(body: bytes) -> bool:
    """Whether an index request asks only for what is ready; its body may be empty.

    Raises:
        RequestError: the body has another form.
    """
    return parse(_INDEX, body, '{"ready": true}, or nothing').ready if body else False


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


def provenance(manifest: Manifest) -> dict[str, Any]:
    """Where a policy comes from: run, checkpoint, step, seed, library versions."""
    plain: dict[str, Any] = msgspec.to_builtins(manifest.provenance)
    plain.pop("config")
    return plain


def model_config(manifest: Manifest, precision: str, provider: str, max_batch: int) -> dict[str, Any]:
    """The answer to `GET /v2/models/{model}/config`, in Triton's form."""

    def tensors_of(infos: Sequence[TensorInfo]) -> list[dict[str, Any]]:
        return [
            {"name": info.name, "data_type": "TYPE_" + tensors.datatype_of(info.dtype), "dims": list(info.shape)}
            for info in infos
        ]

    return {
        "name": manifest.name,
        "platform": _PLATFORM,
        "backend": "onnxruntime",
        "max_batch_size": max_batch,
        "input": tensors_of(manifest.inputs),
        "output": tensors_of(manifest.outputs),
        "parameters": {
            "precision": {"string_value": precision},
            "execution_provider": {"string_value": provider},
        },
    }


def _tensor(info: TensorInfo) -> dict[str, Any]:
    return {"name": info.name, "datatype": tensors.datatype_of(info.dtype), "shape": [_VARIABLE, *info.shape]}
