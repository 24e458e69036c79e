"""Paddleport: a reinforcement-learning policy from training in PaddlePaddle to the place where it acts.

A user's own program imports this package alone. The names below load when they are first used, so that
`import paddleport` stays cheap and needs neither Paddle nor ONNX Runtime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddleport.bundle import Bundle
    from paddleport.client import AsyncClient, Client
    from paddleport.frames import FrameStack
    from paddleport.policy import Policy

from paddleport.errors import PaddleportError

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Bundle", "Client", "FrameStack", "PaddleportError", "Policy", "__version__"]

_HOMES = {
    "AsyncClient": "client",
    "Bundle": "bundle",
    "Client": "client",
    "FrameStack": "frames",
    "Policy": "policy",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'paddleport' has no attribute {name!r}")
    return getattr(importlib.import_module(f"paddleport.{_HOMES[name]}"), name)
