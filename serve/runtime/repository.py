"""The models folder: which policies and versions serve, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from paddleport.bundle import versions_in
from paddleport.errors import ArtifactError, PaddleportError, UsageError
from paddleport.manifest import check_name
from serve.runtime.policy import ServedPolicy

KEPT_VERSIONS = 5


class UnknownPolicyError(PaddleportError):
    """No policy of this name, or no such version of it, is in the models folder."""


class NotReadyError(PaddleportError):
    """The policy is there and cannot act; the message says why."""


@dataclass(frozen=True)
class VersionState:
    """One version in the index; `reason` says why it does not serve, and is empty where it does."""

    name: str
    version: int
    reason: str = ""

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return not self.reason


@dataclass(frozen=True)
class PolicyVersions:
    """The versions of one policy, by number."""

    name: str
    ready: dict[int, ServedPolicy] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    def get(self, version: int | None) -> ServedPolicy:
        """A version, or the newest that is ready.

        Raises:
            UnknownPolicyError: there is no such version.
            NotReadyError: that version, or every version, was refused.
        """
        if version is None and self.ready:
            return self.ready[max(self.ready)]
        asked = max(self.refused) if version is None else version
        if asked in self.ready:
            return self.ready[asked]
        if asked in self.refused:
            raise NotReadyError(f"Policy {self.name!r} version {asked} is not ready: {self.refused[asked].rstrip('.')}")
        raise UnknownPolicyError(
            f"Policy {self.name!r} has no such version open",
            expected=f"one of {', '.join(map(str, sorted(self.ready)))} (the newest {KEPT_VERSIONS} are kept open)",
            got=asked,
        )


class Repository:
    """The policies of a models folder, opened once.

    Make one with `Repository.open`, in the process that will act.
    """

    def __init__(self, policies: dict[str, PolicyVersions]) -> None:
        self._policies = policies

    @classmethod
    def open(cls, models: Path, precision: str = "float32", threads: int = 1) -> Repository:
        """Open, verify and warm up the newest versions of every policy.

        A version that does not verify is refused with its reason and the next older one is tried, until
        `KEPT_VERSIONS` of the policy are open.

        Args:
            models: the models folder.
            precision: which file of each bundle runs.
            threads: threads within one operator.

        Raises:
            ArtifactError: there is nothing in it that can be served.
        """
        policies = {folder.name: _open_versions(folder, precision, threads) for folder in _policy_folders(models)}
        repository = cls(policies)
        if not any(state.ready for state in repository.states()):
            raise _nothing_to_serve(models, precision, repository.states())
        return repository

    def get(self, name: str, version: int | None = None) -> ServedPolicy:
        """The policy that acts under this name.

        Raises:
            UnknownPolicyError: there is no such policy or version.
            NotReadyError: it was refused when it was opened.
        """
        return self._versions(name).get(version)

    def ready_versions(self, name: str) -> list[int]:
        """The versions of a policy that serve, oldest first.

        Raises:
            UnknownPolicyError: there is no such policy.
        """
        return sorted(self._versions(name).ready)

    def newest(self) -> list[ServedPolicy]:
        """The newest version of each policy that has one ready, by name."""
        return [self._policies[name].get(None) for name in sorted(self._policies) if self._policies[name].ready]

    def states(self) -> list[VersionState]:
        """Every version that was looked at, by name, oldest first."""
        return [
            VersionState(name, version, versions.refused.get(version, ""))
            for name, versions in sorted(self._policies.items())
            for version in sorted(versions.ready.keys() | versions.refused.keys())
        ]

    def _versions(self, name: str) -> PolicyVersions:
        if name not in self._policies:
            raise UnknownPolicyError(
                "There is no such policy", expected=f"one of {', '.join(sorted(self._policies))}", got=repr(name)
            )
        return self._policies[name]


def _policy_folders(models: Path) -> list[Path]:
    if not models.is_dir():
        raise ArtifactError(
            f"{models} is no models folder",
            expected="a folder that paddleport export --models published to",
            got="a file" if models.exists() else "no such folder",
        )
    return [entry for entry in sorted(models.iterdir()) if _is_name(entry.name) and versions_in(entry)]


def _is_name(name: str) -> bool:
    try:
        return bool(check_name(name))
    except UsageError:
        return False  # temporary and hidden folders, and what is not ours


def _open_versions(folder: Path, precision: str, threads: int) -> PolicyVersions:
    versions = PolicyVersions(folder.name)
    for version in reversed(versions_in(folder)):
        if len(versions.ready) == KEPT_VERSIONS:
            break
        try:
            versions.ready[version] = ServedPolicy.open(folder / str(version), precision, threads)
        except PaddleportError as error:
            versions.refused[version] = str(error)
        except Exception as error:  # noqa: BLE001 - a bundle that breaks in a new way must not stop the others
            versions.refused[version] = f"It cannot be opened: {type(error).__name__}: {error}"
    return versions


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
