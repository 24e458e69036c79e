"""The server's own description in OpenAPI 3.1, served at `/openapi.json`."""

from __future__ import annotations

from typing import Any

from paddleport import __version__
from serve.protocol.act import MSGPACK, NPY, RETURNS

Schema = dict[str, Any]

_ERRORS = {
    "400": "The request is malformed, or the observation does not fit the policy.",
    "401": "A token is needed.",
    "403": "The token's role does not allow this.",
    "404": "There is no such policy or version.",
    "409": "It cannot be granted as things stand; nothing was changed.",
    "413": "The body is too large.",
    "415": "The body's Content-Encoding is unknown.",
    "422": "The observation lies too far from those of the training.",
    "429": "Too many requests.",
    "500": "The policy's action was stopped, or the server failed.",
    "501": "Not supported.",
    "503": "Not ready, or too busy.",
    "504": "Not done in time.",
}
_OF_ALL = ("400", "401", "403", "413", "429", "503", "504")
_NAME: Schema = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
_VERSION: Schema = {
    "name": "version",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
}
_ANYTHING: Schema = {}
_OBJECT: Schema = {"type": "object"}


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Paddleport policy server",
            "version": __version__,
            "description": "Observations in, actions out: a policy API, and the Open Inference Protocol v2.",
        },
        "paths": {path: _at(path, operations) for path, operations in _paths().items()},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": _object({"error": {"type": "string"}}, required=("error",)),
                "Act": _act(),
                "Acted": _object(
                    {
                        "action": _ANYTHING,
                        "actions": {"type": "array"},
                        "policy": {"type": "string"},
                        "version": {"type": "integer"},
                        "precision": {"type": "string"},
                    },
                    required=("policy", "version", "precision"),
                ),
                "Infer": _infer(),
                "Inferred": _object(
                    {
                        "model_name": {"type": "string"},
                        "model_version": {"type": "string"},
                        "id": {"type": "string"},
                        "outputs": {"type": "array", "items": _OBJECT},
                    },
                    required=("model_name", "model_version", "outputs"),
                ),
            },
        },
        "security": [{"token": []}, {}],
    }


def _paths() -> dict[str, dict[str, Schema]]:
    model, policy = "/v2/models/{name}", "/v1/policies/{name}"
    act = _operation("Act on one observation or several", _ref("Acted"), "404", "415", "422", "500", body=_act_body())
    infer = _operation(
        "Infer any of the graph's outputs", _ref("Inferred"), "404", "415", "422", "500", "501", body=_json("Infer")
    )
    paths: dict[str, dict[str, Schema]] = {
        "/v2": {"get": _operation("Server metadata", _OBJECT)},
        "/v2/health/live": {"get": _operation("Whether the server lives", _OBJECT)},
        "/v2/health/ready": {"get": _operation("Whether it takes requests", _OBJECT)},
        "/v2/models/stats": {"get": _operation("Statistics of all models", _OBJECT)},
        "/v2/repository/index": {
            "post": _operation(
                "Every version and its state",
                {"type": "array", "items": _OBJECT},
                body={"required": False, "content": _content(_object({"ready": {"type": "boolean"}}))},
            ),
        },
        "/v2/repository/models/{name}/load": {"post": _operation("Load a policy", _OBJECT, "404", "409", "500", "501")},
        "/v2/repository/models/{name}/unload": {
            "post": _operation("Unload a policy", _OBJECT, "404", "409", "500", "501")
        },
        "/v1/policies": {"get": _operation("What acts under each name", _OBJECT)},
        "/v1/statistics": {"get": _operation("All counts of all workers", _OBJECT)},
        policy + "/rollback": {
            "post": _operation(
                "Let an older version act",
                _OBJECT,
                "404",
                "409",
                "500",
                "501",
                body={"required": False, "content": _content(_object({"version": {"type": ["integer", "null"]}}))},
            ),
        },
        policy + "/split": {
            "put": _operation(
                "Begin or change a canary or shadow",
                _OBJECT,
                "404",
                "409",
                "500",
                "501",
                body={"required": True, "content": _content(_split())},
            ),
            "delete": _operation("End it", _OBJECT, "404", "409", "500", "501"),
        },
        model + "/config": {"get": _operation("Model configuration", _OBJECT, "404")},
    }
    for version in ("", "/versions/{version}"):
        paths[policy + version] = {"get": _operation("Spaces, precision, provider, returns", _OBJECT, "404")}
        paths[policy + version + "/act"] = {"post": act}
        paths[model + version] = {"get": _operation("Inputs and outputs", _OBJECT, "404")}
        paths[model + version + "/ready"] = {"get": _operation("Whether it acts", _OBJECT, "404")}
        paths[model + version + "/stats"] = {"get": _operation("Statistics", _OBJECT, "404")}
        paths[model + version + "/infer"] = {"post": infer}
    return paths


def _at(path: str, operations: dict[str, Schema]) -> dict[str, Any]:
    parameters = [*([_NAME] if "{name}" in path else []), *([_VERSION] if "{version}" in path else [])]
    return {**operations, **({"parameters": parameters} if parameters else {})}


def _operation(summary: str, answer: Schema, *errors: str, body: Schema | None = None) -> Schema:
    responses: dict[str, Any] = {"200": {"description": "Done.", "content": _content(answer)}}
    for status in sorted({*_OF_ALL, *errors}):
        responses[status] = {"description": _ERRORS[status], "content": _content(_ref("Error"))}
    if answer == _ref("Acted"):
        responses["200"]["content"] |= {MSGPACK: {}, NPY: {}}
    if answer == _ref("Inferred"):
        responses["200"]["content"]["application/octet-stream"] = {}
    return {"summary": summary, "responses": responses, **({"requestBody": body} if body else {})}


def _act_body() -> Schema:
    return {"required": True, "content": {**_content(_ref("Act")), MSGPACK: {}, NPY: {}}}


def _act() -> Schema:
    options: Schema = {
        "deterministic": {"type": "boolean", "default": True},
        "seed": {"type": ["integer", "null"], "minimum": 0, "description": "Of the draw, beside deterministic: false."},
        "return": {"type": "array", "items": {"type": "string", "enum": list(RETURNS)}},
    }
    one = _object({"observation": _ANYTHING, **options}, required=("observation",))
    several = _object({"observations": _ANYTHING, **options}, required=("observations",))
    return {"oneOf": [{**form, "additionalProperties": False} for form in (one, several)]}


def _infer() -> Schema:
    tensor = _object(
        {
            "name": {"type": "string"},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "datatype": {"type": "string"},
            "data": {"type": "array"},
            "parameters": _OBJECT,
        },
        required=("name", "shape", "datatype"),
    )
    output = _object({"name": {"type": "string"}, "parameters": _OBJECT}, required=("name",))
    return _object(
        {
            "id": {"type": "string"},
            "parameters": _OBJECT,
            "inputs": {"type": "array", "items": tensor},
            "outputs": {"type": "array", "items": output},
        },
        required=("inputs",),
    )


def _split() -> Schema:
    return _object(
        {
            "kind": {"type": "string", "enum": ["canary", "shadow"]},
            "version": {"type": "integer", "minimum": 1},
            "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        },
        required=("kind", "version", "share"),
    )


def _object(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _json(name: str) -> Schema:
    return {"required": True, "content": _content(_ref(name))}


def _content(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
