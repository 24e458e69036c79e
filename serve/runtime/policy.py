"""One version of one policy, ready to act."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paddleport.bundle import Bundle
from paddleport.errors import ArtifactError
from paddleport.manifest import Manifest
from paddleport.policy import Policy
from paddleport.session import Session


class ServedPolicy(Policy):
    """A verified policy, and what every answer of the policy API says of it.

    Attributes:
        identity: `policy`, `version` and `precision`.
    """

    def __init__(self, manifest: Manifest, session: Session, precision: str) -> None:
        super().__init__(manifest, session, precision)
        self.identity: dict[str, Any] = {"policy": manifest.name, "version": manifest.version, "precision": precision}

    @classmethod
    def open(cls, folder: Path, precision: str, threads: int) -> ServedPolicy:
        """Open a bundle; replaying its golden vectors on the session that will serve warms it up too.

        Raises:
            PaddleportError: it is damaged, lies in the wrong folder, lacks the precision or does not reproduce
                its golden vectors.
        """
        bundle = Bundle.open(folder, replay=False)
        _check_identity(folder, bundle.manifest)
        return cls.of(bundle, precision, threads=threads)


def _check_identity(folder: Path, manifest: Manifest) -> None:
    """A bundle that was copied elsewhere by hand would answer under one name and report another."""
    if (manifest.name, str(manifest.version)) != (folder.parent.name, folder.name):
        raise ArtifactError(
            f"{folder} holds another policy than its folder says",
            expected=f"{folder.parent.name} version {folder.name}",
            got=f"{manifest.name} version {manifest.version}",
            todo=f"Move it to {manifest.name}/{manifest.version}, or export it again under the new name",
        )
