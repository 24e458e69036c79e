"""Paddle → raw ONNX, in a child process that may abort, exit or hang without harm."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from paddleport import files
from paddleport.errors import ArtifactError, GateError
from paddleport.importing import child_command, child_environment

OPSET = 13
"""The lowest opset with per-channel quantization: old edge runtimes read it too."""
TRUST_CODE = "trust-code"
RAW = "model.onnx"
NAMES = "names.json"
_LIMIT = 2 * 2**30
_LAST_LINES = 3
_PATIENCE = 5.0
"""Wall time, in processor times, that a child may take: a busy machine is no reason to fail, a hang is."""
_FOLDERS = "paddleport-export-"
_ABANDONED_SECONDS = 24 * 3600.0
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_COMPLAINT = re.compile(r"\[ERROR\]|^\w*(Error|Exception|Exit)\b")


@dataclass(frozen=True)
class Converted:
    """What paddle2onnx made, as it made it."""

    model: bytes
    names: dict[str, str]
    """Structural path of each parameter and buffer by its name in the model."""


def read_converted(folder: Path) -> Converted:
    """What the child left in its folder.

    Raises:
        ArtifactError, msgspec.DecodeError: it left nothing, or something else.
    """
    names = msgspec.json.decode(files.read_bytes(folder / NAMES, _LIMIT), type=dict[str, str])
    return Converted(files.read_bytes(folder / RAW, _LIMIT), names)


class Conversion:
    """A conversion under way in a child process; make one with `converting`."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, log: IO[bytes], limit_s: float) -> None:
        self._process = process
        self._folder = folder
        self._log = log
        self._limit_s = limit_s

    def result(self) -> Converted:
        """Wait for the child.

        Raises:
            GateError: it failed, took too long, or left no whole model.
        """
        longer = "Give it longer with --conversion-limit"
        wall = _PATIENCE * self._limit_s
        try:
            code = self._process.wait(wall)
        except subprocess.TimeoutExpired as error:
            self.stop()
            raise self._failed(f"nothing after {wall:g} s", longer) from error
        if code == -signal.SIGXCPU:
            raise self._failed(f"nothing after {self._limit_s:g} s of processor time", longer)
        if code:
            raise self._failed(_describe_exit(code), None)
        try:
            return read_converted(self._folder)
        except (ArtifactError, msgspec.DecodeError) as error:
            raise self._failed("an exit without an error, and no model", None) from error

    def stop(self) -> None:
        """End the child, and what it may have started, where it still runs."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _failed(self, what: str, todo: str | None) -> GateError:
        self._log.seek(0)
        said = _last_words(self._log.read().decode("utf-8", "replace"))
        last = f"; it said: {said}" if said else ""
        return GateError(
            "paddle2onnx could not convert this policy; nothing was published",
            expected=f"a model within {self._limit_s:g} s of processor time",
            got=what + last,
            todo=todo,
        )


@contextlib.contextmanager
def converting(
    checkpoint: Path,
    *,
    opset: int = OPSET,
    limit_s: float = 120.0,
    trust_code: bool = False,
    command: Sequence[str] | None = None,
) -> Iterator[Conversion]:
    """Convert a checkpoint's policy in a child process, side by side with the caller's own work.

    The child is ended and its files are removed when the block ends.

    Args:
        checkpoint: a checkpoint's folder.
        opset: the ONNX opset to write.
        limit_s: processor time that it may take; wall time, five times as much.
        trust_code: whether to import the trunk that the checkpoint names.
        command: another converter; the folder to write to is appended to it.
    """
    _remove_abandoned()
    with (
        tempfile.TemporaryDirectory(prefix=_FOLDERS) as name,
        tempfile.TemporaryFile() as log,
    ):
        folder = Path(name)
        trusted = [TRUST_CODE] if trust_code else []
        arguments = (
            child_command("export.paddle_child", str(checkpoint.resolve()), name, str(opset), *trusted)
            if command is None
            else [*command, name]
        )
        # In a session of its own it can be ended with all its children; its output must not mix with our JSON.
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        _limit_processor_time(process.pid, limit_s)
        conversion = Conversion(process, folder, log, limit_s)
        try:
            yield conversion
        finally:
            conversion.stop()


def _limit_processor_time(pid: int, seconds: float) -> None:
    """Let the kernel end a process after so much processor time; only Linux can say so of another process."""
    import resource

    if hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            most = math.ceil(seconds)
            resource.prlimit(pid, resource.RLIMIT_CPU, (most, most + 5))


def _remove_abandoned() -> None:
    """Remove folders of conversions whose command was killed before it could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"an abort by {signal.Signals(-code).name}"
    except ValueError:
        return f"an abort by signal {-code}"


def _last_words(log: str) -> str:
    """The lines of a log that say what went wrong, or its last lines where none does."""
    lines = [_COLOR.sub("", line).strip() for line in log.splitlines()]
    # What follows this headline repeats the signal that the exit code already gives.
    lines = lines[: lines.index("Error Message Summary:")] if "Error Message Summary:" in lines else lines
    lines = [line for line in lines if line.strip("-")]
    complaints = [line for line in lines if _COMPLAINT.search(line)]
    return " | ".join((complaints or lines)[-_LAST_LINES:]).rstrip(".")
