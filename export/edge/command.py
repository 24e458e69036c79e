"""`paddleport edge`: a bundle's policy in the form that a device takes."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from export.edge.target import Figures, Request, Written
from paddleport import options
from paddleport.bundle import Bundle
from paddleport.errors import UsageError
from paddleport.files import publish_directory
from paddleport.options import Flag

_DESCRIPTION = """Turn a bundle into what a device takes, with its golden vectors as a self-test beside it."""
_TARGETS = {
    "c": "export.edge.c.target",
    "ort": "export.edge.ort",
    "web": "export.edge.web",
    "paddle-lite": "export.edge.paddle_lite",
}
RECORD = "edge.json"
"""What was made, and from what; a folder that holds one is ours to replace."""
_SIZE = re.compile(r"([0-9]+)([kKmM]?)i?[bB]?")
_UNITS = {"": 1, "k": 2**10, "m": 2**20}
_FIGURES = {
    "multiply_adds": "multiply-adds of an action",
    "weight_bytes": "weights, bytes",
    "flash": "flash, bytes: constants and an allowance for code; what --flash-limit goes by",
    "ram": "RAM, bytes: arrays on the stack and an allowance; what --ram-limit goes by",
    "host_us": "an action on this machine, µs of processor time",
    "cortex_m4f_flash": "Cortex-M4F: compiled policy, bytes",
    "cortex_m4f_stack": "Cortex-M4F: stack that an action touched, bytes",
    "cortex_m4f_instructions": "Cortex-M4F: instructions of an action",
}


@dataclass(frozen=True)
class Options:
    """What to write, and where to."""

    bundle: Annotated[str, tyro.conf.Positional]
    """A bundle, or a policy's folder (its newest version is taken)."""
    out: str
    """The folder to write. One that an earlier run wrote is replaced."""
    target: Literal["c", "ort", "web", "paddle-lite"] = "c"
    """c: C99 without dependencies, for anything with a compiler.
    ort: a file for minimal builds of ONNX Runtime, with a C++ example.
    web: a page that runs the policy in the browser.
    paddle-lite: Paddle's inference model, and the command that makes it one for Paddle Lite."""
    precision: Literal["float32", "int8"] = "float32"
    """Which of the bundle's files."""
    prefix: str = "policy"
    """For c: what files and functions are called, so that two policies fit into one program."""
    flash_limit: str = ""
    """For c: bytes of flash that the device has for it, such as 64K; a policy that needs more is refused."""
    ram_limit: str = ""
    """For c: bytes of RAM, stack included, that the device has for it, such as 4K."""
    measure: bool = True
    """For c: measure time, flash, stack and instructions with the compilers and emulators of this machine."""
    package: str = ""
    """For web: a folder or .tgz of the npm package onnxruntime-web; left out, npm is asked for it."""
    run_dir: str = ""
    """For paddle-lite: the run that the bundle was exported from, whose weights are Paddle's own."""
    checkpoint: str = ""
    """For paddle-lite: best, last or step-N of that run; left out, as paddleport export takes it."""
    trust_code: Flag = False
    """For paddle-lite: import the trunk that the checkpoint names, where it names one of its maker's own."""
    json: Flag = False
    """Print the result as JSON on stdout; progress goes to stderr."""


class Result(msgspec.Struct, frozen=True):
    """What was written."""

    out: str
    target: str
    precision: str
    bundle: str
    version: int
    files: dict[str, int]
    """Bytes of each."""
    figures: Figures | None
    notes: tuple[str, ...]
    next_step: str


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "edge", argv, _DESCRIPTION)


def run(chosen: Options) -> Result:
    """Write a bundle's policy for a target.

    Raises:
        GateError: the target cannot take the policy, or it is too large for the device.
        ArtifactError: the bundle is missing or damaged.
        UsageError: an option is out of range, or the bundle has no such precision.
        MissingExtraError: a package that the target needs is not installed.
    """
    out = Path(chosen.out)
    _check_out(out)
    bundle = Bundle.open(chosen.bundle)
    request = Request(
        bundle=bundle,
        precision=chosen.precision,
        prefix=chosen.prefix,
        flash_limit=size_of("--flash-limit", chosen.flash_limit),
        ram_limit=size_of("--ram-limit", chosen.ram_limit),
        measure=chosen.measure,
        package=Path(chosen.package) if chosen.package else None,
        run_dir=Path(chosen.run_dir) if chosen.run_dir else None,
        checkpoint=chosen.checkpoint,
        trust_code=chosen.trust_code,
    )
    bundle.precision(chosen.precision)
    written: Written = importlib.import_module(_TARGETS[chosen.target]).write(request)
    result = Result(
        out=str(out),
        target=chosen.target,
        precision=chosen.precision,
        bundle=str(bundle.path),
        version=bundle.manifest.version,
        files={name: len(data) for name, data in sorted(written.files.items())},
        figures=written.figures,
        notes=written.notes,
        next_step=written.next_step.format(out=out),
    )
    _publish(out, written, result)
    return result


def show(result: Result) -> None:
    """Print what was written."""
    console = Console(emoji=False, markup=False, highlight=False)
    total = sum(result.files.values())
    console.print(f"{result.out}: {result.target}, {result.precision}, {len(result.files)} files, {total:,} bytes")
    if result.figures:
        table = Table("what", "how much")
        for name, value in msgspec.to_builtins(result.figures).items():
            table.add_row(_FIGURES[name], "not measured here" if value is None else f"{value:,}")
        console.print(table)
    for note in result.notes:
        console.print(note, soft_wrap=True)
    console.print(f"Next: {result.next_step}", soft_wrap=True)


def size_of(option: str, text: str) -> int | None:
    """Bytes that a size such as 64K means; None where none is given.

    Raises:
        UsageError: it is no size.
    """
    if not text:
        return None
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{option} is no size", expected="bytes, such as 65536, 64K or 1M", got=text)
    return int(match[1]) * _UNITS[match[2].lower()]


def _check_out(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UsageError("--out is no folder", expected="a folder, or a path where none is yet", got=out)
    if out.is_dir() and any(out.iterdir()) and not (out / RECORD).is_file():
        raise UsageError(
            "--out holds files that paddleport edge did not write",
            expected=f"a new folder, an empty one, or one with {RECORD}",
            got=out,
        )


def _publish(out: Path, written: Written, result: Result) -> None:
    if out.is_dir() and not any(out.iterdir()):
        out.rmdir()
    record = json.dumps(msgspec.to_builtins(result), indent=2, ensure_ascii=False) + "\n"
    with publish_directory(out, replace=True) as folder:
        for name, data in {**written.files, RECORD: record.encode()}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
