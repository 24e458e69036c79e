"""What can be looked at: statistics, metrics, and the web page with its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from paddleport.errors import PaddleportError
from serve.control import Control
from serve.handlers import version_number
from serve.messages import Gather, Gathered
from serve.metrics import exposition
from serve.protocol import describe, openapi
from serve.protocol.messages import RequestError, Response, json_response
from serve.runtime.errors import UnknownPolicyError
from serve.runtime.policy import ServedPolicy
from serve.runtime.repository import Repository
from serve.runtime.statistics import BATCHES, SECONDS, PolicyCounts

_PAGE = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FILES = {"/": "index.html", "/docs": "docs.html"}
_SAFE = [
    ("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-cache"),
]
_NANOSECONDS = 1e9


class Views:
    """The routes that show something.

    Args:
        repository: of this process.
        control: who knows what all workers have counted.
        max_batch: the largest batch.
    """

    def __init__(self, repository: Repository, control: Control, max_batch: int) -> None:
        self._repository = repository
        self._control = control
        self._max_batch = max_batch

    def page(self, file: str) -> Response:
        """`GET /`, `/docs`, `/openapi.json` and the page's own files."""
        if file == "/openapi.json":
            return json_response(openapi.document())
        path = _PAGE / _FILES.get(file, file)
        if path.parent != _PAGE or path.suffix not in _TYPES or not path.is_file():
            raise RequestError("The page has no such file", status=404, got=repr(file))
        body = path.read_bytes()
        headers = [("Content-Type", _TYPES[path.suffix]), ("Content-Length", str(len(body))), *_SAFE]
        return Response(200, headers, body)

    def metrics(self) -> Response:
        """`GET /metrics`, for Prometheus."""
        body, content_type = exposition(self._gathered(), self._repository)
        return Response(200, [("Content-Type", content_type), ("Content-Length", str(len(body)))], body)

    def statistics(self) -> Response:
        """`GET /v1/statistics`: all counts of all workers, as the page shows them."""
        gathered = self._gathered()
        content: dict[str, Any] = msgspec.to_builtins(gathered)
        content.pop("type", None)
        return json_response({**content, "edges": {"seconds": SECONDS, "batches": BATCHES}})

    def model_config(self, name: str) -> Response:
        """`GET /v2/models/{name}/config`."""
        policy = self._repository.get(name)
        config = describe.model_config(policy.manifest, policy.precision, policy.provider, self._max_batch)
        return json_response(config)

    def model_statistics(self, name: str | None = None, version: str | None = None) -> Response:
        """`GET /v2/models[/{name}[/versions/{version}]]/stats`, in Triton's form."""
        counted = self._gathered().counts.policies
        entries = []
        for policy in self._asked(name, version):
            counts = counted.get(f"{policy.manifest.name}/{policy.manifest.version}", PolicyCounts())
            entries.append(_triton(policy, counts))
        return json_response({"model_stats": entries})

    def _asked(self, name: str | None, version: str | None) -> list[ServedPolicy]:
        if name is None:
            return self._repository.open_policies()
        route = self._repository.route(name)
        if version is None:
            return [route.versions[number] for number in sorted(route.versions)]
        number = version_number(version) or 0
        if number not in route.versions:
            raise UnknownPolicyError(f"Policy {name!r} has no such version open", got=repr(version))
        return [route.versions[number]]

    def _gathered(self) -> Gathered:
        gathered = self._control.ask(Gather())
        if not isinstance(gathered, Gathered):
            raise PaddleportError("The counts cannot be had", got=type(gathered).__name__)
        return gathered


def _triton(policy: ServedPolicy, counts: PolicyCounts) -> dict[str, Any]:
    answered = sum(counts.batch.counts)
    failed = sum(number for key, number in counts.requests.items() if not key.endswith(" 200"))
    total = sum(histogram.sum for histogram in (counts.parse, counts.queue, counts.infer, counts.encode))

    def duration(seconds: float, count: int) -> dict[str, int]:
        return {"count": count, "ns": int(seconds * _NANOSECONDS)}

    return {
        "name": policy.manifest.name,
        "version": str(policy.manifest.version),
        "last_inference": int(counts.last * 1000),
        "inference_count": int(counts.batch.sum),
        "execution_count": counts.runs,
        "inference_stats": {
            "success": duration(total, answered),
            "fail": duration(0.0, failed),
            "queue": duration(counts.queue.sum, answered),
            "compute_input": duration(counts.parse.sum, answered),
            "compute_infer": duration(counts.infer.sum, answered),
            "compute_output": duration(counts.encode.sum, answered),
        },
        "batch_stats": [],
    }
