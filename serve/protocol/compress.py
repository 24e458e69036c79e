"""Answers in gzip, for clients that take it and answers that are long enough to gain by it."""

from __future__ import annotations

import gzip
import re

from serve.protocol.messages import Response

# Below, the head weighs more than what is saved; above, packing would keep every other request waiting too long.
_LEAST, _MOST = 1024, 2**20
_LEVEL = 1  # numbers as text shrink to about a third at the quickest level, and hardly further
_ACCEPTS = re.compile(r"(?:^|[,\s])(?:gzip|\*)\s*(?:;\s*q=(?P<weight>[0-9.]+)\s*)?(?:,|$)", re.IGNORECASE)


def packed(response: Response, accept_encoding: str) -> Response:
    """The answer as it goes out to a client that sent this `Accept-Encoding` (RFC 9110, section 12.5.3).

    Args:
        response: with a `Content-Length` and no `Content-Encoding`.
        accept_encoding: the request's header; empty where there is none.
    """
    if not _LEAST <= len(response.body) <= _MOST:
        return response
    headers = [*response.headers, ("Vary", "Accept-Encoding")]
    if not _takes_gzip(accept_encoding):
        return Response(response.status, headers, response.body)
    body = gzip.compress(response.body, _LEVEL, mtime=0)
    headers = [(name, str(len(body)) if name == "Content-Length" else value) for name, value in headers]
    return Response(response.status, [*headers, ("Content-Encoding", "gzip")], body)


def _takes_gzip(accept_encoding: str) -> bool:
    found = _ACCEPTS.search(accept_encoding)
    return found is not None and set(found["weight"] or "1") - set("0.") != set()
