"""The target `web`: a folder that any static host serves, with the policy, ONNX Runtime for browsers, and a page."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from export.edge.target import Request, Written
from export.edge.templates import filled
from paddleport.bundle import Bundle
from paddleport.errors import UsageError
from paddleport.spaces import Array

PACKAGE = "onnxruntime-web"
VERSION = "1.23.2"
"""The release that was tested; another one is taken from --package."""
_RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
_OURS = ("index.html", "page.mjs", "policy.mjs", "environments.mjs", "style.css")
_NPM_LIMIT_S = 120.0
_LARGEST = 2**27
_GOLDEN_BYTES = 256 * 1024
_TODO = (
    f"Get it where there is a network with: npm pack {PACKAGE}@{VERSION}; then name the .tgz, or its folder, "
    "with --package"
)


def write(request: Request) -> Written:
    """Write a page that acts with the policy; where its environment is one of classic control, it plays there.

    Raises:
        UsageError: onnxruntime-web is neither in --package nor to be had from npm.
    """
    bundle, precision = request.bundle, request.precision
    manifest = bundle.manifest
    files = {f"onnxruntime/{name}": data for name, data in _runtime(request.package).items()}
    words = {"@TITLE@": _plain(f"{manifest.name}, version {manifest.version}, {precision}")}
    files |= {name: filled(f"web_{name}", words).encode() for name in _OURS}
    files["policy.onnx"] = bundle.onnx(precision)
    files["policy.json"] = json.dumps(_described(bundle, precision)).encode()
    return Written(
        files, "python3 -m http.server --bind 127.0.0.1 --directory {out} 8080, then open http://127.0.0.1:8080/"
    )


def _described(bundle: Bundle, precision: str) -> dict[str, Any]:
    """What the page has to know, and golden vectors for it to ask again."""
    manifest, golden = bundle.manifest, bundle.golden()
    row_bytes = sum(golden[given.name][0].nbytes for given in manifest.inputs)
    count = len(golden[manifest.inputs[0].name])
    kept = max(1, min(count, _GOLDEN_BYTES // row_bytes))
    rows = np.linspace(0, count - 1, kept).round().astype(np.intp)
    outputs = [output.name for output in manifest.outputs]
    return {
        "name": manifest.name,
        "version": manifest.version,
        "precision": precision,
        "environment": manifest.environment.id,
        "steps": manifest.environment.max_episode_steps,
        "inputs": msgspec.to_builtins(manifest.inputs),
        "outputs": msgspec.to_builtins(manifest.outputs),
        "tolerance": bundle.precision(precision).tolerance,
        "golden": {
            "inputs": {given.name: _lists(golden[given.name][rows]) for given in manifest.inputs},
            "outputs": {name: _lists(golden[f"{precision}.{name}"][rows]) for name in outputs},
        },
    }


def _lists(rows: Array) -> list[list[float]]:
    flat: list[list[float]] = rows.reshape(len(rows), -1).tolist()
    return flat


def _plain(text: str) -> str:
    """Text that is none of HTML's."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _runtime(package: Path | None) -> dict[str, bytes]:
    """The files of onnxruntime-web that the page loads.

    Raises:
        UsageError: they are not to be found.
    """
    with contextlib.ExitStack() as stack:
        found = package if package is not None else stack.enter_context(_packed())
        try:
            if found.is_dir():
                return {name: _in_folder(found, name) for name in _RUNTIME}
            return _in_archive(found)
        except (OSError, KeyError, tarfile.TarError) as error:
            expected = f"the folder or .tgz of {PACKAGE}, with dist/{_RUNTIME[0]} in it"
            raise UsageError(
                f"This is not {PACKAGE}", expected=expected, got=f"{found} ({str(error).splitlines()[0]})", todo=_TODO
            ) from error


def _in_folder(folder: Path, name: str) -> bytes:
    places = (folder, folder / "dist", folder / "package" / "dist", folder / "node_modules" / PACKAGE / "dist")
    path = next((place / name for place in places if (place / name).is_file()), None)
    if path is None:
        raise KeyError(f"no {name}")
    return path.read_bytes()


def _in_archive(path: Path) -> dict[str, bytes]:
    files = {}
    with tarfile.open(path) as archive:
        for name in _RUNTIME:
            member = archive.getmember(f"package/dist/{name}")
            stream = archive.extractfile(member) if member.size <= _LARGEST else None
            if stream is None:
                raise KeyError(f"no regular file {name} of at most {_LARGEST} bytes")
            files[name] = stream.read()
    return files


@contextlib.contextmanager
def _packed() -> Iterator[Path]:
    """The package as npm has it, from its cache where that holds it.

    Raises:
        UsageError: there is no npm, or it does not get it.
    """
    if not shutil.which("npm"):
        raise UsageError(f"The page needs {PACKAGE}, and there is no npm here to get it", todo=_TODO)
    with tempfile.TemporaryDirectory(prefix="paddleport-npm-") as name:
        command = ["npm", "pack", f"{PACKAGE}@{VERSION}", "--prefer-offline", "--pack-destination", name]
        try:
            done = subprocess.run(
                command, cwd=name, capture_output=True, text=True, timeout=_NPM_LIMIT_S, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
            said = done.stderr.strip().splitlines()[:1]
        except (OSError, subprocess.TimeoutExpired) as error:
            said = [str(error)]
        archives = list(Path(name).glob("*.tgz"))
        if not archives:
            raise UsageError(f"npm did not get {PACKAGE} {VERSION}", got=" ".join(said), todo=_TODO)
        yield archives[0]
