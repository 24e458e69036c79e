"""What is served: the plan that the controller decides and every worker follows."""

from __future__ import annotations

from typing import Literal

import msgspec

KEPT_VERSIONS = 5


class Split(msgspec.Struct, frozen=True):
    """A share of a policy's requests for another version.

    `canary`: that version answers them. `shadow`: it is asked as well, its answers are compared and counted, and the
    version that acts answers.
    """

    kind: Literal["canary", "shadow"]
    version: int
    share: float


class Route(msgspec.Struct, frozen=True):
    """One policy: which versions are open, and which one acts when none is named."""

    default: int | None
    open: tuple[int, ...]
    refused: dict[int, str] = {}
    """Why the others that were looked at are not."""
    split: Split | None = None


Table = dict[str, Route]


class VersionState(msgspec.Struct, frozen=True):
    """One version in the index; `reason` says why it does not serve, and is empty where it does."""

    name: str
    version: int
    reason: str = ""

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return not self.reason


def states(table: Table) -> list[VersionState]:
    """Every version that was looked at, by name, oldest first."""
    return [
        VersionState(name, version, route.refused.get(version, ""))
        for name, route in sorted(table.items())
        for version in sorted({*route.open, *route.refused})
    ]
