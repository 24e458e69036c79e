"""A bundle and a run that a test may damage, and what it needs to damage them well."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import bundles
from paddleport import sealed
from paddleport.files import sha256_bytes
from paddleport.manifest import MANIFEST, SCHEMA_VERSION, FileInfo, Manifest


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundles.publish_discrete(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def published_box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundles.publish_box(tmp_path_factory.mktemp("models"))


@pytest.fixture
def bundle(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "models" / published.parent.name / published.name))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import runs  # only for the tests that need a run: it brings Paddle

    run = tmp_path_factory.mktemp("runs") / "cartpole"
    runs.untrained_run(run, hidden_sizes=(4,))
    return run


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def describe_anew() -> Callable[..., Manifest]:
    """Change a bundle's manifest and seal it again, as somebody with bad intentions would."""

    def change(folder: Path, **changes: object) -> Manifest:
        manifest = sealed.unseal(folder / MANIFEST, Manifest, SCHEMA_VERSION)
        manifest = msgspec.structs.replace(manifest, **changes)
        (folder / MANIFEST).write_bytes(sealed.seal(manifest))
        return manifest

    return change


@pytest.fixture
def put_file(describe_anew: Callable[..., Manifest]) -> Callable[[Path, str, bytes], None]:
    """Write a file into a bundle and list it in the manifest."""

    def put(folder: Path, name: str, data: bytes) -> None:
        manifest = sealed.unseal(folder / MANIFEST, Manifest, SCHEMA_VERSION)
        (folder / name).write_bytes(data)
        listed = FileInfo(sha256=sha256_bytes(data), size=len(data))
        describe_anew(folder, files={**manifest.files, name: listed})

    return put


@pytest.fixture
def snapshot() -> Callable[[Path], dict[str, object]]:
    """Everything below a folder, byte for byte."""

    def take(folder: Path) -> dict[str, object]:
        return {
            str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.read_bytes()
            for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir()
        }

    return take


@pytest.fixture
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command reorders `sys.path`; keep that to the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
