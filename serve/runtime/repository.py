"""The policies that one worker has open, and which of them acts."""

from __future__ import annotations

import logging
from pathlib import Path

from paddleport.errors import PaddleportError
from serve.runtime.errors import NotReadyError, UnknownPolicyError
from serve.runtime.policy import Opening, ServedPolicy
from serve.runtime.table import KEPT_VERSIONS, Route, Split, Table

_LOG = logging.getLogger(__name__)


class ServedRoute:
    """One policy's versions as they serve now. Never changed: a swap puts another one in its place."""

    __slots__ = ("acting", "name", "other", "refused", "split", "versions")

    def __init__(self, name: str, route: Route, versions: dict[int, ServedPolicy]) -> None:
        self.name = name
        self.versions = versions
        self.refused = route.refused
        self.acting = None if route.default is None else versions[route.default]
        self.split: Split | None = route.split
        self.other = versions[route.split.version] if route.split else None

    def get(self, version: int | None) -> ServedPolicy:
        """A version, or the one that acts when none is named.

        Raises:
            UnknownPolicyError: there is no such version.
            NotReadyError: that version, or every version, was refused or unloaded.
        """
        if version is None and self.acting:
            return self.acting
        asked = max(self.refused, default=0) if version is None else version
        if asked in self.versions:
            return self.versions[asked]
        if asked in self.refused:
            raise NotReadyError(f"Policy {self.name!r} version {asked} is not ready: {self.refused[asked].rstrip('.')}")
        raise UnknownPolicyError(
            f"Policy {self.name!r} has no such version open",
            expected=f"one of {', '.join(map(str, sorted(self.versions)))} (the newest {KEPT_VERSIONS} are kept open)",
            got=asked,
        )


class Repository:
    """The policies of a models folder as this process has them open.

    What is open and what acts is decided elsewhere (`serve.runtime.controller`): versions are opened first, in every
    worker, and then put to work by `commit`, which is one assignment. A request keeps the version that it began with.

    Args:
        models: the models folder.
        opening: how policies are opened.
    """

    def __init__(self, models: Path, opening: Opening) -> None:
        self._models = models
        self._opening = opening
        self._opened: dict[tuple[str, int], ServedPolicy] = {}
        self.table: Table = {}
        self._routes: dict[str, ServedRoute] = {}

    def open(self, name: str, version: int) -> str:
        """Open, verify and warm up one version; the reason where it is refused, else nothing."""
        try:
            self._opened[name, version] = self._opening.open(self._models / name / str(version))
        except PaddleportError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - a bundle that breaks in a new way must not stop the others
            return f"It cannot be opened: {type(error).__name__}: {error}"
        return ""

    def commit(self, table: Table) -> None:
        """Serve what the table says, of what was opened; the rest is closed once the last request has left it."""
        wanted = {(name, version) for name, route in table.items() for version in route.open}
        routes = {
            name: ServedRoute(name, route, {version: self._opened[name, version] for version in route.open})
            for name, route in table.items()
        }
        self.table, self._routes = table, routes
        self._opened = {key: policy for key, policy in self._opened.items() if key in wanted}

    def forget(self) -> None:
        """Serve nothing."""
        self._opened, self.table, self._routes = {}, {}, {}

    def route(self, name: str) -> ServedRoute:
        """A policy's versions.

        Raises:
            UnknownPolicyError: there is no such policy.
        """
        route = self._routes.get(name)
        if route is None:
            raise UnknownPolicyError(
                "There is no such policy", expected=f"one of {', '.join(sorted(self._routes))}", got=repr(name)
            )
        return route

    def get(self, name: str, version: int | None = None) -> ServedPolicy:
        """The policy that acts under this name.

        Raises:
            UnknownPolicyError: there is no such policy or version.
            NotReadyError: it was refused when it was opened, or unloaded.
        """
        return self.route(name).get(version)

    def ready_versions(self, name: str) -> list[int]:
        """The versions of a policy that serve, oldest first.

        Raises:
            UnknownPolicyError: there is no such policy.
        """
        return sorted(self.route(name).versions)

    def acting(self) -> list[ServedPolicy]:
        """The version that acts of each policy that has one, by name."""
        return [route.acting for _, route in sorted(self._routes.items()) if route.acting]

    def open_policies(self) -> list[ServedPolicy]:
        """Every version that is open."""
        return list(self._opened.values())
