"""Publishing a bundle: all its files, then its manifest, then the rename that makes it appear."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np

from paddleport import sealed
from paddleport.bundle import Bundle, versions_in
from paddleport.errors import ArtifactError
from paddleport.files import publish_directory, sha256_bytes, sweep
from paddleport.manifest import MANIFEST, FileInfo, Manifest, check_name
from paddleport.spaces import Array

_ATTEMPTS = 10
_ABANDONED_SECONDS = 3600.0


def publish(models: Path, draft: Manifest, make_files: Callable[[Manifest], Mapping[str, bytes]]) -> Path:
    """Publish a bundle as the policy's next version.

    It is opened and its golden vectors replayed while it still has its temporary name; what does not open is
    never published. When two publish at once, the later one takes the version after.

    Args:
        models: the models folder.
        draft: the manifest; its `version` and `files` are filled in here.
        make_files: gives the bundle's other files for a manifest that has its version.

    Returns:
        The folder `models/<name>/<version>`.

    Raises:
        ArtifactError: the bundle does not open, or no version could be taken.
    """
    folder = models / check_name(draft.name)
    sweep(folder, older_than=_ABANDONED_SECONDS)
    for _ in range(_ATTEMPTS):
        version = max(versions_in(folder), default=0) + 1
        manifest = msgspec.structs.replace(draft, version=version)
        contents = make_files(manifest)
        listed = {name: FileInfo(sha256=sha256_bytes(data), size=len(data)) for name, data in contents.items()}
        manifest = msgspec.structs.replace(manifest, files=listed)
        try:
            with publish_directory(folder / str(version)) as target:
                for name, data in contents.items():
                    (target / name).write_bytes(data)
                (target / MANIFEST).write_bytes(sealed.seal(manifest))
                Bundle.open(target)
        except OSError:
            if not (folder / str(version)).exists():
                raise
            continue
        return folder / str(version)
    raise ArtifactError(f"Could not take a version in {folder}", todo="Others publish there too; try again")


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Arrays as the bytes of a compressed .npz."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()
