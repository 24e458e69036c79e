"""One version of one policy, ready to act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paddleport.bundle import Bundle, replay_golden
from paddleport.errors import ArtifactError, ObservationError
from paddleport.manifest import Manifest
from paddleport.observation import is_finite
from paddleport.session import Session
from paddleport.spaces import Array

_DISTRIBUTIONS = ("logits", "q_values", "mean")


class ServedPolicy:
    """A verified policy. It may be shared between threads.

    Attributes:
        manifest: what its bundle says of itself.
        precision: which of the bundle's files runs.
        provider: the execution provider in use.
        identity: `policy`, `version` and `precision`, as every answer of the policy API names them.
    """

    def __init__(self, manifest: Manifest, session: Session, precision: str) -> None:
        self.manifest = manifest
        self.precision = precision
        self.provider = session.provider
        self.identity: dict[str, Any] = {
            "policy": manifest.name,
            "version": manifest.version,
            "precision": precision,
        }
        self._session = session
        self._input = manifest.inputs[0].name
        names = {output.name for output in manifest.outputs}
        # An argmax over NaN is an integer like any other: what it was taken over is looked at as well.
        self._acting = ("action", *(name for name in _DISTRIBUTIONS if name in names))

    @classmethod
    def open(cls, folder: Path, precision: str, threads: int) -> ServedPolicy:
        """Open a bundle; it is verified on the very session that will serve, which warms it up too.

        Raises:
            PaddleportError: it is damaged, lies in the wrong folder, lacks the precision or does not reproduce
                its golden vectors.
        """
        bundle = Bundle.open(folder, replay=False)
        _check_identity(folder, bundle.manifest)
        session = bundle.session(precision, threads=threads)
        replay_golden(bundle, precision, session)
        policy = cls(bundle.manifest, session, precision)
        golden = bundle.golden()
        policy.run({given.name: golden[given.name][:1] for given in bundle.manifest.inputs}, policy._acting)
        return policy

    def act(self, obs: Array) -> Array:
        """The deterministic actions for checked observations [batch, …].

        Raises:
            ObservationError: the observations are so large that the policy's numbers overflow.
        """
        return self.run({self._input: obs}, self._acting)[0]

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs for checked inputs, in order.

        Raises:
            ObservationError: an output is not finite. The golden vectors were, so it is the observations.
        """
        results = self._session.run(feeds, outputs)
        for name, array in zip(outputs, results, strict=True):
            if array.dtype.kind == "f" and not is_finite(array, array.dtype):
                raise ObservationError(
                    f"The policy's {name!r} is not finite for this observation",
                    expected="observations like those it was trained on",
                    got=f"magnitudes up to {max(np.abs(obs).max() for obs in feeds.values()):.3g}",
                )
        return results


def _check_identity(folder: Path, manifest: Manifest) -> None:
    """A bundle that was copied elsewhere by hand would answer under one name and report another."""
    if (manifest.name, str(manifest.version)) != (folder.parent.name, folder.name):
        raise ArtifactError(
            f"{folder} holds another policy than its folder says",
            expected=f"{folder.parent.name} version {folder.name}",
            got=f"{manifest.name} version {manifest.version}",
            todo=f"Move it to {manifest.name}/{manifest.version}, or export it again under the new name",
        )
