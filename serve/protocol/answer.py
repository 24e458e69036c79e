"""The Open Inference Protocol's infer response: JSON, followed by the raw outputs that were asked for as such."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from paddleport.spaces import Array
from serve.protocol import tensors
from serve.protocol.infer import InferRequest
from serve.protocol.messages import Response, json_response

HEADER_LENGTH = "Inference-Header-Content-Length"


def encode(request: InferRequest, results: Sequence[Array], model: str, version: int) -> Response:
    """The answer to an infer request.

    Args:
        request: what was asked.
        results: the request's outputs in its order, [batch, …], finite.
        model: the policy's name.
        version: the version that answered.
    """
    head: dict[str, Any] = {"model_name": model, "model_version": str(version)}
    if request.id:
        head["id"] = request.id
    raw: list[bytes] = []
    head["outputs"] = [
        _output(output.name, array, raw if output.binary else None)
        for output, array in zip(request.outputs, results, strict=True)
    ]
    if not raw:
        return json_response(head)
    text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    body = b"".join((text, *raw))
    headers = [
        ("Content-Type", "application/octet-stream"),
        (HEADER_LENGTH, str(len(text))),
        ("Content-Length", str(len(body))),
    ]
    return Response(200, headers, body)


def _output(name: str, array: Array, raw: list[bytes] | None) -> dict[str, Any]:
    """One output's JSON; its bytes are appended to `raw` where that is given."""
    output: dict[str, Any] = {"name": name, "datatype": tensors.DATATYPE_OF[array.dtype], "shape": array.shape}
    if raw is None:
        output["data"] = array.ravel()
    else:
        raw.append(tensors.to_bytes(array))
        output["parameters"] = {"binary_data_size": len(raw[-1])}
    return output
