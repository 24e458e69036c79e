"""Policies in C: flash, RAM, stack, instructions and time, beside ONNX Runtime's, emx-onnx-cgen's, and the floor.

    make bench-edge            makes the policies in build/bench-edge unless they are there (20 minutes), then measures
    .venv/bin/python -m benchmarks.edge --models DIR --out FILE

Needs gcc; with arm-none-eabi-gcc, qemu-system-arm, riscv64-unknown-elf-gcc, and with emx-onnx-cgen in an environment of
its own, which make installs, it measures more. Times are processor time on one core, the best of alternating rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.edge_peer import is_installed, static_bytes, write_peer
from export.edge import command
from export.edge.target import Figures
from paddleport.bundle import Bundle
from paddleport.errors import PaddleportError
from paddleport.manifest import ReturnStatistics
from paddleport.spaces import Box
from train.episodes import play

ROUNDS = 5
SHAPES = {
    "cartpole": ("4→64→64→2, tanh", ["--env", "CartPole-v1"]),
    "lunarlander": (
        "8→256→256→4, tanh",
        ["--env", "LunarLander-v3", "--hidden-sizes", "256", "256", "--total-steps", "400000"],
    ),
    "wide": (
        "17→256→256→6, tanh",
        ["--env", "benchmarks/wide.py:Wide", "--hidden-sizes", "256", "256", "--total-steps", "30000"],
    ),
    "pendulum": ("3→64→64→1, tanh", ["--env", "Pendulum-v1"]),
    "pong": ("NatureCNN, 4×84×84 → 6", ["--env", "ALE/Pong-v5", "--total-steps", "2048"]),
}
"""What is measured: the folder in the models folder, its shape, and how it is trained."""
HOST_FLAGS = "-O3 -march=native"
LENIENT = "STRICT=-Isrc -std=c99 -w"
"""The peer's C is compiled without our warnings."""


@dataclass
class Measured:
    """One policy in one precision by one generator."""

    name: str
    precision: str
    who: str
    figures: Figures
    static: int | None = None
    host_us: list[float] = field(default_factory=list)
    ort_us: list[float] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    trouble: str = ""


def main() -> None:
    """Make what is missing, measure, write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path("build/bench-edge/models"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/edge.md"))
    parser.add_argument("--work", type=Path, default=Path("build/bench-edge/c"))
    parser.add_argument("--no-make", action="store_true", help="measure the policies that are there")
    chosen = parser.parse_args()
    if not chosen.no_make:
        for name, (_, options) in SHAPES.items():
            make_policy(name, options, chosen.models)
    rows: list[Measured] = []
    returns: list[tuple[str, str, ReturnStatistics, ReturnStatistics]] = []
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for name in (name for name in SHAPES if (chosen.models / name).is_dir()):
        bundle = Bundle.open(chosen.models / name)
        for precision in (each for each in ("float32", "int8") if each in bundle.manifest.precisions):
            ours, peer = measure(bundle, name, precision, chosen.work)
            rows += [each for each in (ours, peer) if each]
            if bundle.manifest.inputs[0].dtype != "uint8":
                returns.append(played(bundle, precision, chosen.work / f"{name}-{precision}"))
            chosen.out.write_text(report(rows, returns), encoding="utf-8")
    print(chosen.out.read_text(encoding="utf-8"))


def make_policy(name: str, options: list[str], models: Path) -> None:
    """Train, quantize and export a policy unless it is there; one whose int8 is refused is exported without."""
    if (models / name).is_dir():
        return
    run = models.parent / "runs" / name
    paddleport = [sys.executable, "-P", "-m", "paddleport"]
    subprocess.run([*paddleport, "train", "--algo", "ppo", "--seed", "1", *options, "--run-dir", run], check=True)
    subprocess.run([*paddleport, "quantize", run, "--method", "ptq"], check=False)
    subprocess.run([*paddleport, "export", run, "--name", name, "--models", models], check=True)


def measure(bundle: Bundle, name: str, precision: str, work: Path) -> tuple[Measured, Measured | None]:
    """Our C and the peer's, and ONNX Runtime beside both."""
    folder = work / f"{name}-{precision}"
    options = [str(bundle.path), "--precision", precision, "--out", str(folder)]
    figures = command.run(command.parse(options)).figures
    assert figures is not None
    ours = Measured(name, precision, "Paddleport", figures)
    make(folder, "build/cortex-m4f.o")
    ours.static = static_bytes(folder)
    for processor in ("cortex-m0plus", "riscv32"):
        if found := re.search(r"instructions per action: ([0-9]+)", make(folder, processor) or ""):
            ours.others[processor] = int(found[1])
    peer = measure_peer(bundle, name, precision, folder) if is_installed() else None
    alternate(bundle, precision, folder, ours, peer)
    return ours, peer


def measure_peer(bundle: Bundle, name: str, precision: str, ours: Path) -> Measured:
    """emx-onnx-cgen on the same graph."""
    folder = ours.with_name(f"{ours.name}-emx")
    empty = Figures(multiply_adds=0, weight_bytes=0, flash=0, ram=0)
    peer = Measured(name, precision, "emx-onnx-cgen 1.1.1", empty)
    peer.trouble = write_peer(bundle, precision, ours, folder)
    if peer.trouble:
        return peer
    if make(folder, "build/selftest", LENIENT) is None:
        peer.trouble = "does not compile"
    elif make(folder, "selftest", LENIENT) is None:
        peer.trouble = "fails the self-test"
    make(folder, "build/cortex-m4f.o", LENIENT)
    peer.static = static_bytes(folder)
    said = make(folder, "cortex-m4f", LENIENT) or ""
    size = subprocess.run(
        ["arm-none-eabi-size", folder / "build" / "cortex-m4f.o"], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    numbers = {
        "cortex_m4f_instructions": re.search(r"instructions per action: ([0-9]+)", said),
        "cortex_m4f_stack": re.search(r"stack of one action: ([0-9]+)", said),
    }
    flash = sum(int(each) for each in size[-1].split()[:2]) if len(size) > 1 else None
    found = {name: int(match[1]) if match else None for name, match in numbers.items()}
    if "malloc(" in (folder / "src" / "model.c").read_text(encoding="utf-8"):
        # Its heap grows from the other end of the memory that is looked at for the stack's deepest byte.
        found["cortex_m4f_stack"] = None
    peer.figures = Figures(multiply_adds=0, weight_bytes=0, flash=0, ram=0, cortex_m4f_flash=flash, **found)
    return peer


def alternate(bundle: Bundle, precision: str, folder: Path, ours: Measured, peer: Measured | None) -> None:
    """Rounds of our C, the peer's C and ONNX Runtime by turns."""
    session, obs = bundle.session(precision), bundle.golden()["obs"]
    rows = [np.ascontiguousarray(obs[at : at + 1]) for at in range(len(obs))]
    for _ in range(ROUNDS):
        ours.host_us += timed(folder)
        if peer and not peer.trouble:
            peer.host_us += timed(folder.with_name(f"{folder.name}-emx"))
        calls, began = 0, time.process_time()
        while time.process_time() - began < 0.3:
            for row in rows:
                session.run({"obs": row}, ["action"])
            calls += len(rows)
        ours.ort_us.append((time.process_time() - began) / calls * 1e6)


def timed(folder: Path) -> list[float]:
    """Microseconds of processor time for one action."""
    settings = [f"CFLAGS={HOST_FLAGS}", *([LENIENT] if folder.name.endswith("-emx") else [])]
    match = re.search(r"microseconds per action: ([0-9.]+)", make(folder, "time", *settings) or "")
    return [float(match[1])] if match else []


def make(folder: Path, goal: str, *settings: str) -> str | None:
    """What `make GOAL` prints; None where it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    try:
        done = subprocess.run(
            ["make", "-C", folder, goal, *settings], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=300, check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def played(bundle: Bundle, precision: str, folder: Path) -> tuple[str, str, ReturnStatistics, ReturnStatistics]:
    """The bundle's recorded return, and that of the compiled policy on the same episodes."""
    make(folder, "shared", f"CFLAGS={HOST_FLAGS}")
    library = ctypes.CDLL(str(folder / "build" / "libpolicy.so"))
    manifest = bundle.manifest
    space = manifest.action_space
    recorded = manifest.precisions[precision].measured_return
    assert recorded is not None

    def act(obs: dict[str, np.ndarray]) -> np.ndarray:
        rows = np.ascontiguousarray(obs["obs"], manifest.inputs[0].dtype)
        actions = np.zeros((len(rows), *space.shape), space.dtype if isinstance(space, Box) else np.int32)
        for at in range(len(rows)):
            library.policy_act(
                ctypes.c_void_p(rows.ctypes.data + at * rows.strides[0]),
                ctypes.c_void_p(actions.ctypes.data + at * actions.strides[0]),
            )
        return actions

    statistics = play(act, manifest.environment.id, recorded.episodes, recorded.seed).statistics
    return manifest.environment.id, precision, recorded, statistics


def report(rows: list[Measured], returns: list[tuple[str, str, ReturnStatistics, ReturnStatistics]]) -> str:
    """The whole report in Markdown."""
    compilers = [version("gcc"), version("arm-none-eabi-gcc"), version("qemu-system-arm")]
    machine = f"{platform.machine()}, {os.cpu_count()} cores; {'; '.join(each for each in compilers if each)}"
    return f"""\
# Policies in C, beside ONNX Runtime and emx-onnx-cgen

Written by `make bench-edge` (`benchmarks/edge.py`) on {time.strftime("%Y-%m-%d")}: {machine}.

## Time of one action on this machine

`gcc {HOST_FLAGS}`, no `-ffast-math`; processor time of one core, the best of {ROUNDS} rounds that alternate, and in
brackets the worst. ONNX Runtime: one Python call of `session.run` at batch 1, one thread. The ratio is best to best.

{host_table(rows)}

## Cortex-M4F

`arm-none-eabi-gcc -O3`, run by `qemu-system-arm -M mps2-an386 -icount shift=0`: instructions are counted, cycles and
wait states of a flash are not. Flash: code and constants of the policy. Static RAM: what it keeps zeroed. Stack: the
deepest byte that one action wrote; it cannot be told (–) of code that uses the heap, as emx-onnx-cgen's does.

{device_table(rows)}

## Instructions of one action elsewhere

A Cortex-M0+ (no floating-point unit, run on qemu's `microbit`, 16 KiB of RAM) and a 32-bit RISC-V (rv32imac).

{elsewhere_table(rows)}

## Whole episodes with the compiled policy

The same episodes (same seeds) as the bundle records for its ONNX file.

{returns_table(returns)}
"""


def host_table(rows: list[Measured]) -> str:
    """Times and ratios."""
    lines = [
        "| policy | precision | C, µs | ONNX Runtime, µs | ratio | emx-onnx-cgen's C, µs | floor |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in ours_of(rows):
        peer = peer_of(rows, row)
        ratio = f"{min(row.ort_us) / min(row.host_us):.1f}×" if row.host_us else "–"
        theirs = spread(peer.host_us) if peer and not peer.trouble else (peer.trouble if peer else "not installed")
        floor = f"{row.figures.multiply_adds:,} multiply-adds, {row.figures.weight_bytes:,} bytes"
        lines.append(
            f"| {SHAPES[row.name][0]} | {row.precision} | {spread(row.host_us)} | {spread(row.ort_us)} | {ratio} | "
            f"{theirs} | {floor} |"
        )
    return "\n".join(lines)


def device_table(rows: list[Measured]) -> str:
    """Flash, RAM, stack, instructions."""
    lines = [
        "| policy | precision | C by | flash, bytes | static RAM | stack | instructions | per multiply-add |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours = next(each for each in ours_of(rows) if (each.name, each.precision) == (row.name, row.precision))
        count = row.figures.cortex_m4f_instructions
        each = f"{count / ours.figures.multiply_adds:.2f}" if count else "–"
        cells = [row.figures.cortex_m4f_flash, row.static, row.figures.cortex_m4f_stack, count]
        shown = " | ".join("–" if value is None else f"{value:,}" for value in cells)
        who = f"{row.who} ({row.trouble})" if row.trouble else row.who
        lines.append(f"| {SHAPES[row.name][0]} | {row.precision} | {who} | {shown} | {each} |")
    return "\n".join(lines)


def elsewhere_table(rows: list[Measured]) -> str:
    """Other processors."""
    lines = ["| policy | precision | Cortex-M0+ | RISC-V 32 |", "|---|---|---|---|"]
    for row in ours_of(rows):
        cells = (f"{row.others[name]:,}" if name in row.others else "–" for name in ("cortex-m0plus", "riscv32"))
        lines.append(f"| {SHAPES[row.name][0]} | {row.precision} | {' | '.join(cells)} |")
    return "\n".join(lines)


def returns_table(returns: list[tuple[str, str, ReturnStatistics, ReturnStatistics]]) -> str:
    """Recorded and played."""
    lines = ["| environment | precision | episodes | ONNX, recorded | C |", "|---|---|---|---|---|"]
    for environment, precision, recorded, got in returns:
        pair = " | ".join(f"{each.mean:.2f} ± {each.std:.2f}" for each in (recorded, got))
        lines.append(f"| {environment} | {precision} | {recorded.episodes} | {pair} |")
    return "\n".join(lines)


def ours_of(rows: list[Measured]) -> list[Measured]:
    """Our own rows."""
    return [row for row in rows if row.who == "Paddleport"]


def peer_of(rows: list[Measured], ours: Measured) -> Measured | None:
    """The peer's row beside one of ours."""
    return next(
        (row for row in rows if row is not ours and (row.name, row.precision) == (ours.name, ours.precision)), None
    )


def spread(values: list[float]) -> str:
    """Best, and the worst in brackets."""
    return f"{min(values):.2f} ({max(values):.2f})" if values else "–"


def version(tool: str) -> str:
    """The first line of what a tool says of its version."""
    try:
        return subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        return ""


if __name__ == "__main__":
    try:
        main()
    except PaddleportError as error:
        sys.exit(f"edge.py: {error}")
