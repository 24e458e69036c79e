"""What every edge target takes and gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paddleport.bundle import Bundle


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the target `c` needs of a device, and what was measured with the tools of this machine."""

    multiply_adds: int
    weight_bytes: int
    flash: int
    """Bytes of constants, and an allowance for code."""
    ram: int
    """Bytes of arrays on the stack, and an allowance for the rest of it; nothing else is needed."""
    host_us: float | None = None
    """Microseconds of processor time for one action on this machine, `gcc -O3`."""
    cortex_m4f_flash: int | None = None
    """Bytes of the compiled policy."""
    cortex_m4f_stack: int | None = None
    """Bytes of stack that one action touched, in the emulator."""
    cortex_m4f_instructions: int | None = None
    """Instructions of one action, counted by the emulator, mean over the golden vectors."""


@dataclass(frozen=True)
class Request:
    """What a target is asked for."""

    bundle: Bundle
    precision: str
    prefix: str = "policy"
    flash_limit: int | None = None
    ram_limit: int | None = None
    measure: bool = True
    package: Path | None = None
    run_dir: Path | None = None
    checkpoint: str = ""
    trust_code: bool = False


@dataclass(frozen=True)
class Written:
    """What a target made."""

    files: dict[str, bytes]
    """By their path in the output folder."""
    next_step: str
    """What to do with it, as a command."""
    figures: Figures | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
    """What its reader has to know, in sentences."""
