"""What the tools of this machine say of a generated folder: time here, flash, stack and instructions in an emulator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from export.edge.target import Figures
from paddleport.progress import stage

_LIMIT_S = 120.0
_HOST = ("gcc", "make")
_ARM = ("arm-none-eabi-gcc", "arm-none-eabi-size", "make")


def measured(figures: Figures, files: Mapping[str, bytes]) -> Figures:
    """Complete figures with what can be measured here; what cannot stays None."""
    with tempfile.TemporaryDirectory(prefix="paddleport-edge-") as name, stage("Measuring", 3) as advance:
        folder = Path(name)
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        time_us = _number(folder, _HOST, "time", r"microseconds per action: ([0-9.]+)")
        advance()
        flash = _flash(folder)
        advance()
        run = _output(folder, (*_ARM, "qemu-system-arm"), "cortex-m4f")
        advance()
    return msgspec.structs.replace(
        figures,
        host_us=time_us,
        cortex_m4f_flash=flash,
        cortex_m4f_stack=_whole(_found(r"stack of one action: ([0-9]+)", run)),
        cortex_m4f_instructions=_whole(_found(r"instructions per action: ([0-9]+)", run)),
    )


def _flash(folder: Path) -> int | None:
    """Code and constants of the compiled policy: the columns text and data of `size`."""
    if _output(folder, _ARM, "build/cortex-m4f.o") is None:
        return None
    done = _run(["arm-none-eabi-size", "build/cortex-m4f.o"], folder)
    text, data = (done or "0 0").splitlines()[-1].split()[:2]
    return int(text) + int(data) or None


def _number(folder: Path, tools: tuple[str, ...], goal: str, pattern: str) -> float | None:
    return _found(pattern, _output(folder, tools, goal))


def _output(folder: Path, tools: tuple[str, ...], goal: str) -> str | None:
    """What `make GOAL` prints; None where a tool is missing, or it fails."""
    if not all(shutil.which(tool) for tool in tools):
        return None
    return _run(["make", "--no-print-directory", "-C", str(folder), goal], folder)


def _run(command: list[str], folder: Path) -> str | None:
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (subprocess.TimeoutExpired, OSError):
        return None
    return done.stdout if done.returncode == 0 else None


def _found(pattern: str, text: str | None) -> float | None:
    match = re.search(pattern, text or "")
    return float(match[1]) if match else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
