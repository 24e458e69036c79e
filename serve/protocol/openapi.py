"""The server's own description in OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from paddleport import __version__


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    return {"openapi": "3.1.0", "info": {"title": "Paddleport", "version": __version__}, "paths": {}}
