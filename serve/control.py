"""What an administrator may wish, and who grants it."""

from __future__ import annotations

import logging
from typing import Protocol

from paddleport.errors import PaddleportError
from serve.messages import Denied, Gather, Gathered, Granted, Load, Reply, RollBack, SetSplit, Unload, Wish
from serve.protocol.messages import RequestError
from serve.runtime.controller import Controller
from serve.runtime.errors import NotReadyError, RefusedError, UnknownPolicyError
from serve.runtime.statistics import Statistics

_LOG = logging.getLogger(__name__)
_STATUS: dict[type[PaddleportError], int] = {UnknownPolicyError: 404, RefusedError: 409, NotReadyError: 503}


class Control(Protocol):
    """Grants wishes, in every worker before it answers."""

    def ask(self, wish: Wish) -> Reply:
        """Grant a wish, or say why not."""


class OwnControl(Control):
    """Grants wishes in this process, which is the only one.

    Args:
        controller: of this process.
        statistics: of this process.
    """

    def __init__(self, controller: Controller, statistics: Statistics) -> None:
        self._controller = controller
        self._statistics = statistics

    def ask(self, wish: Wish) -> Reply:
        """Grant a wish, or say why not."""
        if isinstance(wish, Gather):
            return Gathered(self._statistics.snapshot(), self._controller.reloads, 1, 0)
        return grant(self._controller, wish)


class NoControl(Control):
    """Under a WSGI server of others: what is counted is this process's own, and nothing changes."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def ask(self, wish: Wish) -> Reply:
        """Refuse what would change anything."""
        if isinstance(wish, Gather):
            return Gathered(self._statistics.snapshot(), {}, 1, 0)
        return Denied(
            501, "Administration needs every worker, which only paddleport serve knows. Start the server with it."
        )


def grant(controller: Controller, wish: Wish) -> Granted | Denied:
    """Let the controller do what is wished."""
    try:
        match wish:
            case Load(name=name):
                controller.load(name)
            case Unload(name=name):
                controller.unload(name)
            case RollBack(name=name, version=version):
                return Granted(controller.roll_back(name, version))
            case SetSplit(name=name, split=split):
                controller.split(name, split)
            case _:
                raise RequestError("This cannot be wished for", got=type(wish).__name__)
    except PaddleportError as error:
        return Denied(_STATUS.get(type(error), 500), str(error))
    except Exception as error:  # noqa: BLE001 - a wish must not end the process that keeps all workers
        _LOG.error("A wish failed inside the server", exc_info=error)
        return Denied(500, "The server failed on this. Its log says why.")
    return Granted()
