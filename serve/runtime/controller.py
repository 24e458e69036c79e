"""Decides which versions serve: at the start, when one is published, and when an administrator wishes.

There is one controller for all workers. It changes what they serve in two steps: a version is opened by every
worker, and only once all of them have it, all of them put it to work. So no worker names a version in an answer that
another one does not know.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from paddleport.bundle import versions_in
from paddleport.errors import ArtifactError, UsageError
from paddleport.manifest import MANIFEST, check_name
from serve.runtime.errors import RefusedError, UnknownPolicyError
from serve.runtime.table import KEPT_VERSIONS, Route, Split, Table, VersionState, states

_LOG = logging.getLogger(__name__)
_UNLOADED = "It was unloaded"
_Print = tuple[int, int]


class Fleet(Protocol):
    """All workers, as one."""

    def open(self, name: str, version: int) -> str:
        """Open, verify and warm up a version everywhere; the reason of the first that refuses, else nothing."""

    def commit(self, table: Table) -> None:
        """Serve this, everywhere."""


@dataclass
class _Known:
    """What is known of one policy."""

    ready: dict[int, _Print] = field(default_factory=dict)
    refused: dict[int, tuple[_Print | None, str]] = field(default_factory=dict)
    default: int | None = None
    pin: int | None = None
    """By `--policy name=2`, or by a rollback."""
    pin_below: int = 0
    """The newest version that the pin stands against; a newer one is served. 0: it stands against all."""
    unloaded: bool = False
    split: Split | None = None


class Controller:
    """The one place where it is decided what is served.

    Args:
        models: the models folder.
        fleet: the workers.
        pins: the policies that have to be ready, and the versions that some are pinned to.
        precision: for messages.
        explicit: whether policies are loaded only when they are named.
    """

    def __init__(
        self,
        models: Path,
        fleet: Fleet,
        pins: dict[str, int | None],
        precision: str = "float32",
        explicit: bool = False,
    ) -> None:
        self._models = models
        self._fleet = fleet
        self._pins = pins
        self._precision = precision
        self._explicit = explicit
        self._known: dict[str, _Known] = {}
        self._started = False
        self._trouble = ""
        self.reloads = {"accepted": 0, "refused": 0}

    def start(self) -> None:
        """Open what is there.

        Raises:
            ArtifactError: there is nothing that can be served, or a policy that has to be ready cannot be.
        """
        for name in self._names(self._pins if self._explicit else None):
            self._known[name] = _Known(pin=self._pins.get(name))
            self._take_up(name)
        self._commit()
        self._started = True
        for name, version in self._pins.items():
            if name not in self._known or self._known[name].default is None:
                raise self._required(name, version)
        if not self._explicit and not any(known.ready for known in self._known.values()):
            raise _nothing_to_serve(self._models, self._precision, self.states())

    def look(self) -> None:
        """Take up what was published, or repaired, since the last look."""
        if self._explicit:
            return
        changed = False
        for name in self._names(None):
            known = self._known.setdefault(name, _Known(pin=self._pins.get(name)))
            if not known.unloaded:
                changed = self._take_up(name) or changed
        if changed:
            self._commit()

    def trouble(self, message: str) -> None:
        """The models folder could not be looked at; said once, until something else is wrong."""
        if message != self._trouble:
            _LOG.warning("The models folder cannot be read: %s", message)
        self._trouble = message

    def load(self, name: str) -> None:
        """Serve a policy that was unloaded or never loaded, or look for its new versions now.

        Raises:
            UnknownPolicyError: there is no such policy in the models folder.
            RefusedError: none of its versions can be served, or the newest one cannot.
        """
        if name not in self._names(None):
            raise UnknownPolicyError("There is no such policy in the models folder", got=repr(name))
        known = self._known.setdefault(name, _Known(pin=self._pins.get(name)))
        known.unloaded = False
        known.refused.clear()
        self._take_up(name)
        self._commit()
        newest = max(known.refused, default=0)
        if newest > max(known.ready, default=0):
            raise RefusedError(f"Policy {name!r} version {newest} is refused: {known.refused[newest][1].rstrip('.')}")
        if known.default is None:
            raise RefusedError(f"Policy {name!r} is pinned to a version that is not there", got=known.pin)

    def unload(self, name: str) -> None:
        """Serve a policy no longer, until it is loaded again.

        Raises:
            UnknownPolicyError: there is no such policy.
        """
        known = self._get(name)
        for version, fingerprint in known.ready.items():
            known.refused[version] = (fingerprint, _UNLOADED)
        known.ready.clear()
        known.unloaded, known.default, known.split = True, None, None
        known.pin, known.pin_below = self._pins.get(name), 0
        self._commit()

    def roll_back(self, name: str, version: int | None = None) -> int:
        """Let an older version act, until one newer than all of today is published; the version.

        Args:
            name: the policy.
            version: one that is open; by default the one before that which acts.

        Raises:
            UnknownPolicyError: there is no such policy or version.
            RefusedError: there is no older one.
        """
        known = self._get(name)
        older = [number for number in known.ready if number < (known.default or 0)]
        if version is None and not older:
            raise RefusedError(f"Policy {name!r} has no older version open", got=known.default)
        chosen = max(older) if version is None else version
        self._check_open(name, known, chosen)
        known.pin, known.pin_below = chosen, max({*known.ready, *known.refused})
        known.default = chosen
        if known.split and known.split.version == chosen:
            known.split = None
        self._commit()
        return chosen

    def split(self, name: str, split: Split | None) -> None:
        """Begin, change or end a canary or a shadow.

        Raises:
            UnknownPolicyError: there is no such policy or version.
            RefusedError: the version is the one that acts already.
        """
        known = self._get(name)
        if split:
            self._check_open(name, known, split.version)
            if split.version == known.default:
                raise RefusedError(f"Version {split.version} of {name!r} acts already; name another one")
        known.split = split
        self._commit()

    def table(self) -> Table:
        """What is served."""
        return {
            name: Route(
                known.default,
                tuple(sorted(known.ready)),
                {version: reason for version, (_, reason) in known.refused.items()},
                known.split,
            )
            for name, known in self._known.items()
        }

    def states(self) -> list[VersionState]:
        """Every version that was looked at."""
        return states(self.table())

    def drop(self, name: str, version: int, reason: str) -> None:
        """A version that a new worker could not open serves nowhere any longer."""
        known = self._get(name)
        known.ready.pop(version, None)
        known.refused[version] = (None, reason)  # looked at again at once: the worker may have come at a bad moment
        _LOG.warning("%s version %d serves no longer: %s", name, version, reason)
        self._settle(known)
        self._commit()

    def _take_up(self, name: str) -> bool:
        """Open the newest versions of a policy that are not known yet; whether anything changed."""
        known = self._known[name]
        folder = self._models / name
        changed = False
        for version in self._wanted(known, versions_in(folder)):
            fingerprint = _fingerprint(folder / str(version))
            if fingerprint in (None, known.ready.get(version), known.refused.get(version, (None,))[0]):
                continue
            assert fingerprint is not None  # noqa: S101 - for mypy
            reason = self._fleet.open(name, version)
            changed = True
            if reason:
                if self._started:  # at the start everything that was refused is said at once
                    _LOG.warning("%s version %d is refused: %s", name, version, reason)
                self.reloads["refused"] += 1
                if version not in known.ready:  # one that was replaced on disk serves on as it was opened
                    known.refused[version] = (fingerprint, reason)
                else:
                    known.ready[version] = fingerprint
            else:
                if self._started:
                    _LOG.info("%s version %d is open", name, version)
                self.reloads["accepted"] += 1
                known.ready[version] = fingerprint
                known.refused.pop(version, None)
        before = known.default
        self._settle(known)
        return changed or known.default != before

    def _wanted(self, known: _Known, versions: list[int]) -> Iterator[int]:
        """Versions worth opening, the pinned one and then newest first, until as many as are kept are ready."""
        if known.pin in versions:
            yield known.pin
        for version in reversed(versions):
            if sum(version < other for other in known.ready) >= KEPT_VERSIONS:
                break
            yield version

    def _settle(self, known: _Known) -> None:
        """Decide what acts, and forget what is too old."""
        newest = max(known.ready, default=None)
        if known.pin_below and newest is not None and newest > known.pin_below:
            known.pin, known.pin_below = None, 0
        if known.pin is None or (known.pin not in known.ready and known.pin_below):
            known.default = newest
        else:
            known.default = known.pin if known.pin in known.ready else None
        if known.split and (known.split.version not in known.ready or known.split.version == known.default):
            known.split = None
        kept = {known.default, known.split.version if known.split else None, *sorted(known.ready)[-KEPT_VERSIONS:]}
        known.ready = {version: mark for version, mark in known.ready.items() if version in kept}
        oldest = min(known.ready, default=0)
        known.refused = {version: why for version, why in known.refused.items() if version > oldest or known.unloaded}

    def _commit(self) -> None:
        self._fleet.commit(self.table())

    def _get(self, name: str) -> _Known:
        if name not in self._known:
            raise UnknownPolicyError(
                "There is no such policy", expected=f"one of {', '.join(sorted(self._known))}", got=repr(name)
            )
        return self._known[name]

    def _check_open(self, name: str, known: _Known, version: int) -> None:
        if version not in known.ready:
            expected = f"one of {', '.join(map(str, sorted(known.ready)))}"
            raise UnknownPolicyError(f"Policy {name!r} has no such version open", expected=expected, got=version)

    def _names(self, only: dict[str, int | None] | None) -> list[str]:
        return [folder.name for folder in _policy_folders(self._models) if only is None or folder.name in only]

    def _required(self, name: str, version: int | None) -> ArtifactError:
        known = self._known.get(name, _Known())
        reasons = [f"version {number}: {reason.rstrip('.')}" for number, (_, reason) in known.refused.items()]
        asked = name if version is None else f"{name} version {version}"
        return ArtifactError(
            f"{asked} has to be served and cannot be",
            got="; ".join(reasons) or f"nothing of that kind in {self._models}",
        )


def _fingerprint(bundle: Path) -> _Print | None:
    """Tells a bundle from another one in its place; None where it has gone meanwhile."""
    try:
        status = (bundle / MANIFEST).stat()
    except OSError:
        try:
            status = bundle.stat()
        except OSError:
            return None
    return status.st_ino, status.st_mtime_ns


def check_models(models: Path) -> None:
    """Refuse what is no models folder.

    Raises:
        ArtifactError: it is none.
    """
    if not models.is_dir():
        raise ArtifactError(
            f"{models} is no models folder",
            expected="a folder that paddleport export --models published to",
            got="a file" if models.exists() else "no such folder",
        )


def _policy_folders(models: Path) -> list[Path]:
    check_models(models)
    return [entry for entry in sorted(models.iterdir()) if _is_name(entry.name) and versions_in(entry)]


def _is_name(name: str) -> bool:
    try:
        return bool(check_name(name))
    except UsageError:
        return False  # temporary and hidden folders, and what is not ours


def _nothing_to_serve(models: Path, precision: str, refused: list[VersionState]) -> ArtifactError:
    if refused:
        reasons = "; ".join(f"{state.name} version {state.version}: {state.reason.rstrip('.')}" for state in refused)
        return ArtifactError(f"No {precision} policy in {models} can be served ({reasons})")
    todo = "Publish one with: paddleport export RUN_DIR --name NAME --models " + str(models)
    if versions_in(models):
        todo = f"{models} is one policy's folder: give the folder above it, --models {models.parent}"
    return ArtifactError(
        f"There is nothing to serve in {models}", expected="folders NAME/VERSION, such as cartpole/1", todo=todo
    )
