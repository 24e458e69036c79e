"""The target `c`: a folder of C99 that any compiler takes, with its proof and its measures beside it."""

from __future__ import annotations

import re

import onnx

from export.edge.c.measure import measured
from export.edge.c.project import project_files, readme
from export.edge.c.source import Source, write_source
from export.edge.program import Program
from export.edge.reading import read_program
from export.edge.target import Figures, Request, Written
from paddleport.errors import GateError, UsageError

CODE_ALLOWANCE = 6 * 1024
"""Bytes of flash for code; what was measured is in the folder's README."""
STACK_ALLOWANCE = 512
"""Bytes of stack besides the arrays: frames, saved registers, and sums of a layer's outputs."""
_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,31}")
# src/PREFIX.h lies where the compiler looks first, also for what the C library's own headers include.
_HEADER = re.compile(
    "alloca|assert|complex|ctype|endian|errno|features|fenv|float|inttypes|iso646|limits|locale|malloc|math|memory|setjmp|"
    "signal|std(align|arg|atomic|bool|def|int|io|lib|noreturn)|strings?|tgmath|threads|time|uchar|unistd|values|wchar|wctype"
)


def write(request: Request) -> Written:
    """Write a bundle's policy in C.

    Raises:
        GateError: a layer has no form in C, or the policy is too large for the device.
        UsageError: the prefix is no C identifier, or the bundle lacks the precision.
    """
    if not _PREFIX.fullmatch(request.prefix):
        expected = "a lower-case letter, then up to 31 of a-z, 0-9 and _"
        raise UsageError("--prefix is no name for C", expected=expected, got=request.prefix)
    if _HEADER.fullmatch(request.prefix):
        raise UsageError("--prefix is the name of a C header", expected="another name", got=request.prefix)
    manifest = request.bundle.manifest
    model = onnx.load_model_from_string(request.bundle.onnx(request.precision))
    program = read_program(model, manifest)
    source = write_source(program, manifest, request.precision, request.prefix)
    figures = figures_of(program, source)
    _check_limit("flash", request.flash_limit, figures.flash, f"{source.constant_bytes:,} bytes of constants")
    _check_limit("ram", request.ram_limit, figures.ram, f"{source.memory.nbytes:,} bytes of arrays")
    texts = project_files(request.bundle, request.precision, program, source)
    files = {name: text.encode() for name, text in texts.items()}
    if request.measure:
        figures = measured(figures, files)
    files["README.md"] = readme(request, program, source, figures).encode()
    return Written(files, "make -C {out} selftest", figures)


def figures_of(program: Program, source: Source) -> Figures:
    """What is known without a compiler."""
    patches = max((size for size in source.scratch_bytes), default=0)
    return Figures(
        multiply_adds=program.multiply_adds,
        weight_bytes=program.weight_bytes,
        flash=source.constant_bytes + CODE_ALLOWANCE,
        ram=source.memory.nbytes + program.head.nbytes + patches + STACK_ALLOWANCE,
    )


def _check_limit(name: str, limit: int | None, needed: int, largest: str) -> None:
    if limit is not None and needed > limit:
        raise GateError(
            f"This policy is too large for --{name}-limit",
            expected=f"at most {limit:,} bytes of {name}",
            got=f"{needed:,}, {largest} among them",
            todo="Take --precision int8, or train a policy with smaller --hidden-sizes",
        )
