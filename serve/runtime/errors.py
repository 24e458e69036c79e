"""What can go wrong between a request and the policy that it asks for."""

from __future__ import annotations

from paddleport.errors import PaddleportError


class UnknownPolicyError(PaddleportError):
    """No policy of this name, or no such version of it, is in the models folder."""


class NotReadyError(PaddleportError):
    """The policy is there and cannot act; the message says why."""


class RefusedError(PaddleportError):
    """An administrator's wish cannot be granted as things stand; nothing was changed."""
