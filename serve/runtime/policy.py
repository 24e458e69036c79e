"""One version of one policy, ready to act."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paddleport.bundle import Bundle, replay_golden
from paddleport.errors import ArtifactError, PaddleportError, UsageError
from paddleport.manifest import Manifest
from paddleport.policy import Policy
from paddleport.session import Session, available_providers
from paddleport.spaces import Array, Leaves, rows_of
from serve.runtime import providers
from serve.runtime.drift import reference_of
from serve.runtime.guard import Bounds
from serve.settings import Settings

_LOG = logging.getLogger(__name__)
_LONG_SECONDS = 0.001
_WARM_UP_BATCHES = (1, 2, 8, 32)
_WARM_UP_SECONDS = 0.5
_TIMED_RUNS = 5


class ServedPolicy(Policy):
    """A verified policy, and what every answer of the policy API says of it.

    Attributes:
        identity: `policy`, `version` and `precision`.
        acting: the graph's outputs that an action depends on, `action` first.
        bounds: what its actions may be.
        reference: what the observations of its training were like.
        seconds: what one run takes for one observation, as measured when it was warmed up.
    """

    def __init__(self, manifest: Manifest, session: Session, precision: str, golden: Leaves) -> None:
        super().__init__(manifest, session, precision)
        self.identity: dict[str, Any] = {"policy": manifest.name, "version": manifest.version, "precision": precision}
        self.acting = self._acting
        self.bounds = Bounds(manifest)
        self.reference = reference_of(manifest, golden)
        self.seconds = _warm_up(session, golden)

    @property
    def takes_long(self) -> bool:
        """Whether a run is better not done between two others' bytes."""
        return self.seconds > _LONG_SECONDS or self.provider != providers.CPU

    def compute(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs for checked inputs, in order; what comes out is not looked at.

        Raises:
            ArtifactError: the graph fails.
        """
        return self._session.run(feeds, outputs)


@dataclass(frozen=True)
class Opening:
    """How this process opens policies."""

    settings: Settings

    @property
    def threads(self) -> int:
        """Threads for a policy that takes long: its share of the processors."""
        return self.settings.threads or max(1, usable_processors() // self.settings.workers)

    def open(self, folder: Path) -> ServedPolicy:
        """Open a bundle on the first execution provider that works.

        Raises:
            PaddleportError: it is damaged, lies in the wrong folder, lacks the precision, does not reproduce its
                golden vectors, or the provider that was asked for is not there.
        """
        bundle = Bundle.open(folder, replay=False)
        _check_identity(folder, bundle.manifest)
        settings = self.settings
        wanted = providers.candidates(settings.provider, available_providers(), allow_fallback=settings.allow_fallback)
        for provider in wanted[:-1]:
            try:
                return self._open_on(bundle, provider)
            except PaddleportError as error:
                _LOG.warning("%s does not run on %s: %s", folder, provider, error)
        return self._open_on(bundle, wanted[-1])

    def _open_on(self, bundle: Bundle, provider: str) -> ServedPolicy:
        served = self._served(bundle, provider, threads=1)
        if served.takes_long and self.threads > 1 and provider == providers.CPU:
            return self._served(bundle, provider, self.threads)
        return served

    def _served(self, bundle: Bundle, provider: str, threads: int) -> ServedPolicy:
        precision = self.settings.precision
        info = bundle.precision(precision)
        file = providers.tensorrt_file(provider, precision, info.file, list(bundle.manifest.files))
        model = bundle.contents(file)
        options = self._tensorrt_options(bundle, model) if provider == providers.TENSORRT else None
        session = Session(model, providers.session_providers(provider, options), threads)
        # Replayed on the very session that will serve.
        replay_golden(bundle, precision, session)
        golden = bundle.golden()
        observations = {given.name: golden[given.name] for given in bundle.manifest.inputs}
        return ServedPolicy(bundle.manifest, session, precision, observations)

    def _tensorrt_options(self, bundle: Bundle, model: bytes) -> dict[str, str]:
        settings = self.settings
        options = providers.tensorrt_options(
            settings.cache,
            model,
            bundle.manifest.inputs,
            precision=settings.precision,
            max_batch=settings.max_batch,
            versions=_gpu_versions(),
        )
        Path(options["trt_engine_cache_path"]).mkdir(parents=True, exist_ok=True)
        return options


def usable_processors() -> int:
    """How many processors this process may use: fewer than the machine has under taskset or in a cpuset."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpu_versions() -> list[str]:
    """What a TensorRT engine is built for, beside the model."""
    import importlib.metadata
    import subprocess

    versions = []
    for package in ("onnxruntime-gpu", "onnxruntime", "tensorrt-cu13", "tensorrt-cu12", "tensorrt"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    try:
        asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        versions.append(subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True).stdout)
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError("The GPU does not say what it is", got=error, todo="Is nvidia-smi there?") from error
    return versions


def _warm_up(session: Session, golden: Leaves) -> float:
    """Run several batch sizes, since memory is planned for each; the best time for one observation."""
    end = time.monotonic() + _WARM_UP_SECONDS
    rows = len(next(iter(golden.values())))
    for batch in _WARM_UP_BATCHES:
        session.run(rows_of(golden, np.arange(batch) % rows))
        if time.monotonic() > end:
            break
    one = rows_of(golden, slice(0, 1))
    best = float("inf")
    for _ in range(_TIMED_RUNS):
        began = time.perf_counter()
        session.run(one)
        best = min(best, time.perf_counter() - began)
    return best


def _check_identity(folder: Path, manifest: Manifest) -> None:
    """A bundle that was copied elsewhere by hand would answer under one name and report another."""
    if (manifest.name, str(manifest.version)) != (folder.parent.name, folder.name):
        raise ArtifactError(
            f"{folder} holds another policy than its folder says",
            expected=f"{folder.parent.name} version {folder.name}",
            got=f"{manifest.name} version {manifest.version}",
            todo=f"Move it to {manifest.name}/{manifest.version}, or export it again under the new name",
        )
