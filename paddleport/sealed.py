"""JSON documents that notice their own damage.

A sealed document carries `digest`, the SHA-256 of its content without that field. A flipped byte anywhere
in it is found when it is opened, also in a number that would still parse.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from paddleport import files
from paddleport.errors import ArtifactError, UsageError
from paddleport.manifest import FileInfo

_LIMIT = 64 * 2**20
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
T = TypeVar("T", bound=msgspec.Struct)


def seal(document: msgspec.Struct) -> bytes:
    """Encode `document` as indented JSON with its digest.

    Raises:
        ArtifactError: a number in it is not finite; JSON would have null there, and nobody could open it again.
    """
    content: dict[str, Any] = msgspec.to_builtins(document)
    if where := _not_finite(content, type(document).__name__):
        raise ArtifactError(f"{where} cannot be written", expected="a finite number")
    content["digest"] = _digest(content)
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def unseal(path: Path, kind: type[T], newest_schema: int) -> T:
    """Read a sealed document.

    Args:
        path: the JSON file.
        kind: the struct that it holds.
        newest_schema: the newest `schema_version` that this reader understands.

    Raises:
        ArtifactError: it is missing, damaged, not of this kind, or of a newer schema.
    """
    data = files.read_bytes(path, _LIMIT)
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise _damaged(path, "it is not a JSON object")
    _check_schema(path, content.get("schema_version"), newest_schema)
    if content.pop("digest", None) != _digest(content):
        raise _damaged(path, "its digest does not match its content")
    try:
        return msgspec.convert(content, kind)
    except (msgspec.ValidationError, UsageError) as error:
        raise _damaged(path, str(error)) from error


def read_listed(folder: Path, name: str, listed: FileInfo, limit: int, todo: str) -> bytes:
    """The bytes of a file that a sealed document in the same folder lists.

    Args:
        folder: where the document lies.
        name: the file's name in it.
        listed: what the document says of the file.
        limit: how many bytes it may have.
        todo: what helps where it is damaged.

    Raises:
        ArtifactError: the file is missing, damaged, or outside the folder.
    """
    if not _PLAIN_NAME.fullmatch(name):
        raise ArtifactError(f"{folder} lists a file outside itself", expected="a plain name", got=repr(name), todo=todo)
    data = files.read_bytes(folder / name, limit)
    digest = files.sha256_bytes(data)
    if len(data) != listed.size or digest != listed.sha256:
        raise ArtifactError(
            f"{folder / name} is damaged",
            expected=f"{listed.size} bytes with SHA-256 {listed.sha256[:12]}…",
            got=f"{len(data)} bytes with SHA-256 {digest[:12]}…",
            todo=todo,
        )
    return data


def _check_schema(path: Path, version: object, newest: int) -> None:
    if not isinstance(version, int) or version < 1:
        raise _damaged(path, "it names no schema_version")
    if version > newest:
        raise ArtifactError(
            f"{path} was written by a newer Paddleport",
            expected=f"schema version {newest} or older",
            got=f"version {version}",
            todo="Upgrade paddleport on this machine",
        )


def _digest(content: dict[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "digest"}
    # Through bytes and back, so that the writer hashes the very values that a reader will parse.
    plain = msgspec.json.decode(msgspec.json.encode(rest))
    return files.sha256_bytes(msgspec.json.encode(plain, order="sorted"))


def _not_finite(value: object, where: str) -> str | None:
    """Where in `value` a float is NaN or infinite; None where all are finite."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{where} = {value}"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return next((found for key, item in items if (found := _not_finite(item, f"{where}.{key}"))), None)


def _damaged(path: Path, why: str) -> ArtifactError:
    return ArtifactError(
        f"{path} is damaged: {why}", todo="Make it again, or restore it from a copy; nothing was changed"
    )
