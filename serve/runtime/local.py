"""The fleet that consists of this process alone, and the same controller over it."""

from __future__ import annotations

import os
import threading
import time

from serve.runtime.controller import Controller, check_models
from serve.runtime.policy import Opening, ServedPolicy
from serve.runtime.repository import Repository, ServedRoute
from serve.settings import Settings


def open_repository(settings: Settings) -> tuple[Repository, Controller]:
    """Open the policies of a models folder in this process.

    Raises:
        ArtifactError: there is nothing that can be served.
    """
    repository = Repository(settings.models, Opening(settings))
    control = controller(settings, repository)
    control.start()
    return repository, control


def controller(settings: Settings, fleet: Repository) -> Controller:
    """A controller as the settings say, over a fleet."""
    explicit = settings.model_control == "explicit"
    return Controller(settings.models, fleet, settings.pins(), settings.precision, explicit)


class LateRepository(Repository):
    """Opens the policies in whichever process asks first, and once more in every process that was forked later.

    A session must not be carried over a fork, and under `gunicorn --preload` the application is made before it.

    Args:
        settings: how to serve.

    Raises:
        ArtifactError: there is no folder to serve.
    """

    def __init__(self, settings: Settings) -> None:
        check_models(settings.models)
        super().__init__(settings.models, Opening(settings))
        self._settings = settings
        self._lock = threading.Lock()
        self._process = 0

    def route(self, name: str) -> ServedRoute:
        """As `Repository.route`, once everything is open."""
        self._ensure_open()
        return super().route(name)

    def acting(self) -> list[ServedPolicy]:
        """As `Repository.acting`, once everything is open."""
        self._ensure_open()
        return super().acting()

    def _ensure_open(self) -> None:
        if self._process == os.getpid():
            return
        with self._lock:
            if self._process == os.getpid():
                return
            self.forget()
            control = controller(self._settings, self)
            control.start()
            if self._settings.model_control == "watch":
                threading.Thread(target=watch, args=(control, self._settings.watch_seconds), daemon=True).start()
            self._process = os.getpid()


def watch(control: Controller, seconds: float) -> None:
    """Look for new versions until the process ends."""
    while True:
        time.sleep(seconds)
        look(control)


def look(control: Controller) -> None:
    """One look at the models folder, which may be away for a moment."""
    try:
        control.look()
    except Exception as error:  # noqa: BLE001 - the next look may find it mended; what serves goes on
        control.trouble(str(error) or type(error).__name__)
