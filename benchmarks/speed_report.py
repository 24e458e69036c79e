"""What the comparison of training speeds comes to: ratios with their spread, tables, and a figure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from peers.sides import OURS, REFERENCE
from peers.tasks import GOAL_EPISODES, GOAL_RETURN, TASKS
from rich import box
from rich.table import Table

AIM_OTHERS = 1.2
"""Times the steps per CPU-second of the fastest peer beside stable-baselines3 that Paddleport aims at."""
NOISY = 0.1
"""A measurement during which others took more than this share of its core is marked."""

Measured: TypeAlias = Mapping[str, Any]
"""A line that `peers/meter.py` printed, with its `repeat`."""


@dataclass(frozen=True)
class Spread:
    """A median and what it lies between."""

    median: float
    low: float
    high: float

    def show(self, digits: int = 0) -> str:
        """As `median (low…high)`."""
        median, low, high = (f"{value:,.{digits}f}" for value in (self.median, self.low, self.high))
        return f"{median} ({low}…{high})"


@dataclass(frozen=True)
class Row:
    """One side on one task."""

    task: str
    side: str
    rate: Spread
    """Environment steps per CPU-second, learning included."""
    times_reference: Spread | None
    """Its rate over stable-baselines3's, repeat by repeat; None without that one."""
    ours_over_it: Spread | None
    """Paddleport's rate over its own."""
    goal_seconds: float | None
    """Median wall time to the goal, over the repeats that reached it."""
    goal_reached: int
    repeats: int
    others_share: float
    """The largest share of the core that others took in a repeat."""
    start_up: float
    """Median CPU seconds until learning runs at its pace: imports, making environments, the first phase, compiling."""


def rate(measured: Measured) -> float:
    """Environment steps per CPU-second from the end of the first learning phase to the end of the last.

    What came before is left out on every side: imports, and the compiling that a first update sets off.
    """
    first, last = measured["first_learnt"], measured["last"]
    steps: float = last["steps"] - first["steps"]
    return steps / (last["cpu_seconds"] - first["cpu_seconds"])


def spread(values: Iterable[float]) -> Spread | None:
    """Median, least and largest; None of nothing."""
    known = list(values)
    return Spread(statistics.median(known), min(known), max(known)) if known else None


def ratios(over: Mapping[int, float], under: Mapping[int, float]) -> Spread | None:
    """Spread of the ratios of two sides' rates, repeat by repeat: both sides of a repeat ran one after the other."""
    return spread(over[repeat] / under[repeat] for repeat in over if repeat in under)


def rows_of(measurements: Sequence[Measured]) -> list[Row]:
    """A row a task and side, in the order of the tasks, ours first."""
    rows: list[Row] = []
    for task in TASKS:
        sides = list(dict.fromkeys(line["side"] for line in measurements if line["task"] == task))
        lines = {
            side: [line for line in measurements if (line["task"], line["side"]) == (task, side)] for side in sides
        }
        rates = {side: {line["repeat"]: rate(line) for line in lines[side]} for side in sides}
        rows += [_row(task, side, lines[side], rates) for side in sides]
    return rows


def _row(task: str, side: str, lines: Sequence[Measured], rates: Mapping[str, Mapping[int, float]]) -> Row:
    goals = [line["goal"]["wall_seconds"] for line in lines if line["goal"]]
    own = spread(rates[side].values())
    assert own is not None  # a side is there because it has a line
    return Row(
        task=task,
        side=side,
        rate=own,
        times_reference=ratios(rates[side], rates.get(REFERENCE, {})),
        ours_over_it=ratios(rates.get(OURS, {}), rates[side]),
        goal_seconds=statistics.median(goals) if goals else None,
        goal_reached=len(goals),
        repeats=len(lines),
        others_share=max(line["others_share"] for line in lines),
        start_up=statistics.median(
            line["start_up_cpu_seconds"] + line["first_learnt"]["cpu_seconds"] for line in lines
        ),
    )


def fastest_other(rows: Sequence[Row], task: str) -> Row | None:
    """The fastest peer on a task beside stable-baselines3; None where there is no other."""
    others = [row for row in rows if row.task == task and row.side not in (OURS, REFERENCE)]
    return max(others, key=lambda row: row.rate.median, default=None)


def shortfalls(rows: Sequence[Row]) -> list[str]:
    """A sentence for each aim that the medians miss."""
    missed = []
    for name, task in TASKS.items():
        reference = next((row for row in rows if (row.task, row.side) == (name, REFERENCE)), None)
        for peer, aim in ((reference, task.aim), (fastest_other(rows, name), AIM_OTHERS)):
            if peer and peer.ours_over_it and peer.ours_over_it.median < aim:
                times = peer.ours_over_it.show(2)
                missed.append(f"{task.title}: {times} times {peer.side}, and the aim is {aim:g}.")
    return missed


HEADINGS = ("side", "steps/CPU-s", "Paddleport ÷ it", "s to 475", "start")


def cells(row: Row) -> tuple[str, ...]:
    """A row as words, under `HEADINGS`; `!` marks measurements that others disturbed."""
    goal = "–"
    if TASKS[row.task].has_goal:
        reached = f"{row.goal_seconds:.0f}" if row.goal_seconds is not None else "never"
        goal = f"{reached} ({row.goal_reached}/{row.repeats})"
    noisy = "!" if row.others_share > NOISY else ""
    over = row.ours_over_it.show(2) if row.ours_over_it and row.side != OURS else "–"
    return row.side, row.rate.show() + noisy, over, goal, f"{row.start_up:.0f}"


def tables(rows: Sequence[Row]) -> list[Table]:
    """One a task, for a terminal of 80 columns."""
    shown = []
    for task in dict.fromkeys(row.task for row in rows):
        of_task = Table(
            *HEADINGS, title=TASKS[task].title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        for row in rows:
            if row.task == task:
                of_task.add_row(*cells(row))
        shown.append(of_task)
    return shown


def document(rows: Sequence[Row], facts: Mapping[str, str], notes: Mapping[str, str]) -> str:
    """The results as Markdown.

    Args:
        rows: of `rows_of`.
        facts: what it was measured on, and with.
        notes: for each side, why it is as fast as it is, and what it could not be told.
    """
    lines = ["# Training speed, beside other libraries", "", "Made by `make bench-train`; nothing here is by hand.", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", *_explanation(), "", "![Training speed](train.svg)", ""]
    lines += [f"| task | {' | '.join(HEADINGS)} |", "|" + "---|" * (1 + len(HEADINGS))]
    lines += [f"| {TASKS[row.task].title} | {' | '.join(cells(row))} |" for row in rows]
    missed = shortfalls(rows)
    lines += ["", "## What falls short", ""]
    lines += [f"- {sentence}" for sentence in missed] or ["Every aim was reached."]
    lines += ["", "## The sides", ""]
    lines += [f"- **{side}**: {note}" for side, note in notes.items()]
    return "\n".join(lines) + "\n"


def _explanation() -> list[str]:
    return [
        "Each number is a median (least…largest) over repeats with seeds 0, 1, 2, …; in every repeat the sides ran one",
        "after the other, on the same core with one thread, and ratios are taken repeat by repeat.",
        "",
        "- steps/CPU-s: environment steps by the CPU time of everything, learning included, from the end of the first",
        f"  learning phase to the end of the last. `!`: during a repeat others took more than {NOISY:.0%} of the core.",
        "- s to 475: wall time from the first environment step, compiling included, until the last"
        f" {GOAL_EPISODES} training",
        f"  episodes have a mean return of {GOAL_RETURN:g}; behind it, in how many repeats they had.",
        "- start: CPU seconds of what comes before: imports, environments, the first phase, compiling.",
        "",
        "Hyper-parameters are in `benchmarks/peers/tasks.py`, the same on every side but for what is said below.",
    ]


def figure(rows: Sequence[Row], path: Path) -> None:
    """Bars of each side's speed as multiples of stable-baselines3's, with their spread, as an SVG."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "paddleport"  # the same picture from the same numbers
    import matplotlib.pyplot as plt

    shown = [row for row in rows if row.times_reference]
    tasks, sides = list(dict.fromkeys(row.task for row in shown)), list(dict.fromkeys(row.side for row in shown))
    drawing, axes = plt.subplots(figsize=(8, 0.9 + 0.9 * len(tasks)), layout="constrained")
    height = 0.8 / max(1, len(sides))
    for number, side in enumerate(sides):
        of_side = [row for row in shown if row.side == side and row.times_reference]
        places = [tasks.index(row.task) + (number - (len(sides) - 1) / 2) * height for row in of_side]
        spreads = [row.times_reference for row in of_side if row.times_reference]
        medians = [each.median for each in spreads]
        errors = [[each.median - each.low for each in spreads], [each.high - each.median for each in spreads]]
        axes.barh(places, medians, height * 0.9, xerr=errors, label=side, error_kw={"linewidth": 0.8})
    axes.set_yticks(range(len(tasks)), [TASKS[task].title for task in tasks])
    axes.invert_yaxis()
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("environment steps per CPU-second, as multiples of stable-baselines3's")
    axes.legend(frameon=False, fontsize="small")
    drawing.savefig(path, format="svg", metadata={"Date": None})
    plt.close(drawing)
