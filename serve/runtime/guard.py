"""The last look at an action before it leaves: finite, and inside its space's bounds."""

from __future__ import annotations

import json
import math
import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from paddleport.errors import PaddleportError, UsageError
from paddleport.manifest import Manifest
from paddleport.spaces import Array, Box, DictSpace, TupleSpace, integer_range

_REMEMBERED = 10_000
_SLACK = 1e-6
_FEW = 32


class GuardError(PaddleportError):
    """The policy's action must not leave, and nothing may stand in for it."""


class Bounds:
    """What the actions of one policy may be.

    Args:
        manifest: of the policy.
    """

    def __init__(self, manifest: Manifest) -> None:
        space = manifest.action_space
        self._is_box = isinstance(space, Box)
        if isinstance(space, Box):
            low, high = space.bounds()
            with np.errstate(invalid="ignore"):
                self._low: Any = low - _SLACK * np.maximum(1.0, np.nan_to_num(np.abs(low), posinf=1.0))
                self._high: Any = high + _SLACK * np.maximum(1.0, np.nan_to_num(np.abs(high), posinf=1.0))
            self._lists = self._low.ravel().tolist(), self._high.ravel().tolist()
        elif not isinstance(space, DictSpace | TupleSpace):
            self._low, self._high = integer_range(space)
        self._is_one_number = np.ndim(self._low) == 0

    def breach(self, actions: Array) -> str:
        """What is wrong with actions [batch, …]: `not finite`, `out of bounds`, or nothing."""
        if self._is_box:
            if len(actions) == 1 and actions.size <= _FEW:
                return self._breach_of_few(actions.ravel().tolist())
            if not np.isfinite(actions).all():
                return "not finite"
        elif self._is_one_number and actions.size == 1:
            return "" if self._low <= actions.item() <= self._high else "out of bounds"
        return "out of bounds" if ((actions < self._low) | (actions > self._high)).any() else ""

    def _breach_of_few(self, numbers: list[float]) -> str:
        """Plain numbers: a third of the time that NumPy takes."""
        for number, low, high in zip(numbers, *self._lists, strict=True):
            if not low <= number <= high:  # as NaN is not
                return "out of bounds" if math.isfinite(number) else "not finite"
            if number in (math.inf, -math.inf):
                return "not finite"
        return ""


class Guard:
    """What answers in the place of an action that must not leave.

    Args:
        fallback: `error`, `last`, or an action as JSON.

    Raises:
        UsageError: the fallback is none of these.
    """

    def __init__(self, fallback: str) -> None:
        self._kind = fallback if fallback in ("error", "last") else "action"
        self._action = _parsed(fallback) if self._kind == "action" else None
        self._last: OrderedDict[tuple[str, str], Array] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def refuses(self) -> bool:
        """Whether nothing ever stands in."""
        return self._kind == "error"

    @property
    def remembers(self) -> bool:
        """Whether actions that leave have to be told to `remember`."""
        return self._kind == "last"

    def remember(self, policy: str, caller: str, action: Array) -> None:
        """Note the action [1, …] that a caller got."""
        with self._lock:
            self._last[policy, caller] = action
            self._last.move_to_end((policy, caller))
            if len(self._last) > _REMEMBERED:
                self._last.popitem(last=False)

    def stand_in(self, manifest: Manifest, caller: str, actions: Array, what: str) -> Array:
        """The actions that answer instead.

        Args:
            manifest: of the policy.
            caller: the caller's key, empty where it gave none.
            actions: [batch, …], a few of which are wrong.
            what: what is wrong with them.

        Raises:
            GuardError: nothing may stand in for them.
        """
        if self._kind == "action":
            return _filled(manifest, actions, self._action)
        if self._kind == "last" and len(actions) == 1:
            with self._lock:
                last = self._last.get((manifest.name, caller)) if caller else None
            if last is not None and last.shape == actions.shape:
                return last
        todo = "Give the request a Paddleport-Caller header, and one observation" if self._kind == "last" else None
        raise GuardError(
            f"The action of policy {manifest.name!r} was stopped: it is {what}",
            expected="one in the action space",
            todo=todo,
        )


def _parsed(text: str) -> Any:  # noqa: ANN401 - an action
    try:
        action = json.loads(text)
        np.asarray(action, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise UsageError(
            "--guard cannot be meant", expected="error, last, or an action such as 0 or [0.0, 0.5]", got=repr(text)
        ) from error
    return action


def _filled(manifest: Manifest, actions: Array, action: Any) -> Array:  # noqa: ANN401
    safe = np.asarray(action, dtype=actions.dtype)
    try:
        filled = np.broadcast_to(safe, actions.shape).copy()
    except ValueError:
        filled = None
    if filled is None or Bounds(manifest).breach(filled):
        raise GuardError(
            f"The action of policy {manifest.name!r} was stopped, and --guard's is none of its space", got=action
        )
    return filled
