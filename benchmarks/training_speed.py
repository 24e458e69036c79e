"""How fast Paddleport trains beside other libraries: the same tasks, one core, in turn.

    make bench-train
    make bench-train ARGS='--only dqn-cartpole --repeats 1'

Each measurement is a process of its own (`benchmarks/peers/run_*.py`, in the side's own environment) and is kept at
once in build/bench-train/, under the commit it was made at: a run that was stopped goes on where it was. The whole
table is written to benchmarks/results/train.md; a part of it, or a quick one, only to the terminal.

This file is not called train.py: that would hide the package `train` from every script in this folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peers.sides import SIDES, Side
from peers.tasks import TASKS
from rich.console import Console
from speed_report import Measured, document, figure, rate, rows_of, shortfalls, tables

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "benchmarks/peers"
RESULTS = ROOT / "benchmarks/results"
LIMIT_SECONDS = 1800
"""No measurement may take longer."""


def main() -> int:
    """Measure what is not measured yet, and print the table; 0 where everything could be measured."""
    options = _parse()
    console = Console(stderr=options.json, highlight=False)
    say = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    path = options.measurements or _store(options.quick)
    path.parent.mkdir(parents=True, exist_ok=True)
    failed = []
    for side, task, repeat, steps in _plan(options.only or tuple(TASKS), options.repeats, options.quick):
        if any(_same(line, side, task, repeat, steps) for line in read(path)):
            continue
        say.print(f"{task}, repeat {repeat}: {side.name} …", end=" ")
        measured = measure(side, task, repeat, steps)
        if isinstance(measured, str):
            failed.append(f"{side.name} on {task}: {measured}")
            say.print(f"failed: {measured}")
            continue
        append(path, {**measured, "repeat": repeat})
        shares = f"others had {measured['others_share']:.0%} of the core"
        say.print(f"{rate(measured):,.0f} steps per CPU-second, {shares}")
    lines = [line for line in read(path) if line["task"] in (options.only or tuple(TASKS))]
    rows = rows_of(lines)
    for shown in tables(rows):
        console.print(shown)
    if options.json:
        report = {"rows": [dataclasses.asdict(row) for row in rows], "short": shortfalls(rows), "failed": failed}
        print(json.dumps(report, indent=2))
    if options.quick or options.only or failed:
        say.print("This is not the whole table, so benchmarks/results/train.md stays as it is.")
    else:
        RESULTS.mkdir(exist_ok=True)
        notes = {side.name: side.note for side in SIDES}
        (RESULTS / "train.md").write_text(document(rows, _facts(lines), notes), encoding="utf-8")
        figure(rows, RESULTS / "train.svg")
        say.print("Written: benchmarks/results/train.md, benchmarks/results/train.svg")
    return 1 if failed or not rows else 0


def measure(side: Side, task: str, repeat: int, steps: int) -> dict[str, Any] | str:
    """One training in a process of its own; what it printed, or what went wrong."""
    python = ROOT / "build/peers" / side.environment / "bin/python" if side.environment else Path(sys.executable)
    if not python.exists():
        return "its environment is not there: make bench-train makes it"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if not side.environment:
        environment |= {"PYTHONPATH": str(ROOT), "PADDLEPORT_COMMIT": _commit()}
    command = [python, PEERS / side.script, task, "--steps", str(steps), "--seed", str(repeat)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it took longer than {LIMIT_SECONDS} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    measured: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return measured


def append(path: Path, measured: Measured) -> None:
    """Keep a measurement, on a line of its own also behind one that a kill cut."""
    cut = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * cut + json.dumps(measured) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[dict[str, Any]]:
    """The measurements kept so far; a line that a kill cut is left out."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return list(_parsed(lines))


def _parsed(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _same(line: Measured, side: Side, task: str, repeat: int, steps: int) -> bool:
    wanted = (side.name, task, repeat, steps)
    return (line["side"], line["task"], line["repeat"], line["steps"]) == wanted


def _plan(only: Sequence[str], repeats: int, quick: bool) -> Iterator[tuple[Side, str, int, int]]:
    """Side, task, repeat and steps of each measurement; the sides take turns, every other time in reverse."""
    for task in only:
        steps = TASKS[task].quick_steps if quick else TASKS[task].steps
        for repeat in range(1 if quick else repeats):
            for side in SIDES[:: -1 if repeat % 2 else 1]:
                if task in side.tasks:
                    yield side, task, repeat, steps


def _store(quick: bool) -> Path:
    return ROOT / "build/bench-train" / f"{_commit()}{'-quick' if quick else ''}.jsonl"


def _commit() -> str:
    """The commit that is measured, with a mark where files differ from it; a word where git does not tell."""
    try:
        described = ["git", "describe", "--always", "--exclude", "*", "--dirty"]
        done = subprocess.run(described, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def _facts(lines: Sequence[Measured]) -> dict[str, str]:
    """What it was measured on, when and with."""
    versions = {f"{name} {number}" for line in lines for name, number in line["versions"].items()}
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace") if info.is_file() else ""
    model = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")
    return {
        "Machine": f"{model or platform.machine()}, {os.cpu_count()} cores, {platform.system()}, one core used",
        "Date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "Versions": ", ".join(sorted(versions)),
        "Command": "`make bench-train`; one measurement alone: `build/peers/sb3/bin/python benchmarks/peers/run_sb3.py "
        "dqn-cartpole --seed 0`",
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training speed beside other libraries.")
    parser.add_argument("--only", action="append", choices=TASKS, metavar="TASK", help=f"one of {', '.join(TASKS)}")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each side, with seeds 0, 1, …")
    parser.add_argument("--quick", action="store_true", help="one short measurement each; shows that all of it runs")
    parser.add_argument("--measurements", type=Path, help="the file to keep them in and to go on from")
    parser.add_argument("--json", action="store_true", help="JSON alone on stdout")
    options = parser.parse_args()
    if not 1 <= options.repeats <= 100:
        parser.error(f"--repeats: expected 1 … 100, got {options.repeats}")
    return options


if __name__ == "__main__":
    sys.exit(main())
