"""A span of OpenTelemetry for every request, sent by OTLP over HTTP from a thread of its own.

Where to, under which name and how many of them is said by OpenTelemetry's own environment variables:
OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and the rest of its specification.
"""

from __future__ import annotations

import os
import threading
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from paddleport.errors import UsageError

if TYPE_CHECKING:
    from serve.http.request import Request

_SERVICE = "paddleport"
_PATIENCE = 1.0  # seconds


def require() -> None:
    """See that what makes and sends spans is installed.

    Raises:
        UsageError: it is not.
    """
    try:
        found = find_spec("opentelemetry.exporter.otlp.proto.http") and find_spec("opentelemetry.sdk")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise UsageError(
            "--traces needs OpenTelemetry", got="no such package", todo="Run: pip install 'paddleport[traces]'"
        )


class Traces:
    """Makes the spans; a caller's `traceparent` becomes their parent (W3C Trace Context)."""

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": _SERVICE}
        self._provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(_SERVICE)
        self._parent = TraceContextTextMapPropagator().extract
        self._kind, self._error = SpanKind.SERVER, StatusCode.ERROR

    def add(self, request: Request, status: int, began: float, size: int) -> None:
        """Note a request that was answered.

        Args:
            request: what was asked.
            status: of the answer.
            began: when it was whole, by `time.perf_counter`.
            size: bytes of the answer's body.
        """
        now = time.time_ns()
        start = now - round((time.perf_counter() - began) * 1e9)
        # Names by the semantic conventions for HTTP servers; the route is the path, since policies are few.
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "url.path": request.target,
            "http.response.status_code": status,
            "http.request.body.size": len(request.body),
            "http.response.body.size": size,
            "client.address": request.peer,
            "paddleport.request_id": request.id,
        }
        name = f"{request.method} {request.target}"
        span = self._tracer.start_span(
            name, self._parent(request.headers), self._kind, attributes=attributes, start_time=start
        )
        if status >= 500:
            span.set_status(self._error)
        span.end(now)

    def close(self) -> None:
        """Send what is left, for a moment at most: a collector that does not answer is tried again for many seconds."""
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(_PATIENCE)
