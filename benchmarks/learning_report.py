"""From the results of `benchmarks/learning.py` to its table, `learning.md`, and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.learning_rows import Row
from paddleport.errors import ArtifactError
from paddleport.files import read_bytes, write_atomic
from train import configuration
from train.curves import Band, Curve, band_of
from train.figures import comparison

_LIMIT = 2**20
_INTRODUCTION = """# Learning

What the presets come to, written by `make bench-learning`. Every row is trained with the seeds 0, 1, 2, …, fixed before
anything was run; every seed that has run is here. A run's `best` checkpoint, chosen by its own evaluation episodes,
then plays {episodes} other episodes (seed {seed}) with the deterministic policy: these are the returns below.

`make bench-learning ONLY=…` makes a row again; the commands that it runs for one seed stand below the table, for the
others `--seed` and the folder change. Published figures are those of one training run.
"""


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One evaluation during training."""

    step: int
    mean: float
    std: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed came to: a file in `benchmarks/results/learning`."""

    environment: str
    algorithm: str
    seed: int
    mean: float
    std: float
    min: float
    max: float
    episodes: int
    evaluation_seed: int
    best_step: int
    """Of the checkpoint that played."""
    steps: int
    """Environment steps trained."""
    finished: bool
    """Whether that is all of them; a row with a time limit may have stopped before."""
    wall_seconds: float
    """Of training with its evaluations, all attempts together."""
    cpu_seconds: float
    attempts: int
    """Processes that trained it: more than one where it was interrupted and resumed."""
    curve: tuple[Point, ...]
    config: dict[str, Any]
    """As the run's checkpoints hold it."""
    commands: tuple[str, ...]
    commit: str
    """What was checked out when it was evaluated; `+` where there were changes beside it."""
    versions: dict[str, str]
    machine: str
    created: str


def file_name(row: Row, seed: int) -> str:
    """Where a seed's result lies, within the folder of results."""
    return f"{row.name}-{seed}.json"


def write_result(result: Result, path: Path) -> None:
    """Write a result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def read_results(folder: Path, row: Row) -> list[Result]:
    """The results of a row's declared seeds that are there, in order.

    Raises:
        ArtifactError: a file is damaged.
    """
    results = []
    for path in (folder / file_name(row, seed) for seed in range(row.seeds)):
        if path.is_file():
            try:
                results.append(msgspec.json.decode(read_bytes(path, _LIMIT), type=Result))
            except msgspec.DecodeError as error:
                raise ArtifactError(f"{path} is damaged", got=error, todo="Restore it, or run its row again") from error
    return results


def thinned(curve: Sequence[Point], most: int = 60) -> tuple[Point, ...]:
    """At most `most` points of a curve, evenly spread, its last one among them."""
    if len(curve) <= most:
        return tuple(curve)
    return tuple(curve[index] for index in np.linspace(0, len(curve) - 1, most).round().astype(int))


def verdict(row: Row, results: Sequence[Result]) -> str:
    """Whether a row's target is met, in a word."""
    if len(results) < row.seeds:
        return f"{len(results)} of {row.seeds} ran so far"
    if row.target is None:
        return "ran"
    return "met" if row.target.met([result.mean for result in results], row.seeds) else "**not met**"


def document(
    rows: Sequence[Row],
    results: Mapping[Row, Sequence[Result]],
    presets: Mapping[Row, Mapping[str, Any]],
    figures: Mapping[str, str],
) -> str:
    """`learning.md`.

    Args:
        rows: what was declared.
        results: of each row, those of its seeds that have run.
        presets: of each row, what its seeds would be trained with now, the seed apart.
        figures: of each environment, its picture.
    """
    some = next((result for found in results.values() for result in found), None)
    if some is None:
        return "# Learning\n\nNothing has run yet: `make bench-learning` fills this page.\n"
    parts = [_INTRODUCTION.format(episodes=some.episodes, seed=some.evaluation_seed), _table(rows, results)]
    for environment in dict.fromkeys(row.environment for row in rows):
        ran = [row for row in rows if row.environment == environment and results[row]]
        if not ran:
            continue
        parts.append(f"## {environment}\n")
        if environment in figures:
            parts.append(f"![Evaluations of {environment} during training]({figures[environment]})\n")
        parts += [_details(row, results[row], presets[row]) for row in ran]
    return "\n".join(parts)


def figure(rows: Sequence[Row], results: Mapping[Row, Sequence[Result]]) -> bytes | None:
    """The evaluations of an environment's rows during training, a band over the seeds of each, as a PNG.

    None where no row has any.

    Raises:
        ModuleNotFoundError: Matplotlib is not installed.
    """
    groups: list[tuple[str, Band]] = []
    for row in rows:
        curves = [_curve(result) for result in results[row] if result.curve]
        if curves:
            band = band_of(curves)
            over = f"mean of {len(curves)} seeds, band from the worst to the best" if len(curves) > 1 else "seed 0"
            groups.append((f"{row.algorithm} ({over})", band))
    return comparison({rows[0].environment: groups}) if groups else None


def _curve(result: Result) -> Curve:
    """The evaluations of a result as what the figures take; training returns are not kept."""
    steps, means, stds = np.array([(point.step, point.mean, point.std) for point in result.curve], dtype=np.float64).T
    none = np.zeros(0)
    return Curve(none.astype(np.int64), none, steps.astype(np.int64), means, stds, None)


def _table(rows: Sequence[Row], results: Mapping[Row, Sequence[Result]]) -> str:
    lines = [
        "| task | algorithm | steps | mean return | each seed | target | | published (steps) | command |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        found, published = results[row], row.published
        means = [result.mean for result in found]
        cells = [
            row.environment,
            row.algorithm,
            _range([result.steps for result in found]),
            f"{np.mean(means):.1f}" if means else "",
            ", ".join(f"{result.mean:.1f}" for result in found),
            row.target.words(row.seeds) if row.target else "–",
            verdict(row, found),
            f"{published.mean_return:g} ({published.steps:,}), {published.source}",
            f"`make bench-learning ONLY={row.name}`",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _details(row: Row, results: Sequence[Result], preset: Mapping[str, Any]) -> str:
    """A row's seeds one by one, and the commands behind them."""
    lines = [f"### {row.algorithm} on {row.environment}\n", "```bash", *results[0].commands, "```\n"]
    if row.minutes:
        lines.append(f"A training was asked to stop after {row.minutes:g} minutes, and stopped at a checkpoint.\n")
    lines += [
        "| seed | return | lowest … highest | best checkpoint / steps | wall s | CPU s | commit |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        where = f"{result.best_step:,} / {result.steps:,}" + ("" if result.finished else ", stopped")
        resumed = f" ({result.attempts} attempts)" if result.attempts > 1 else ""
        cells = [
            f"{result.seed}",
            f"{result.mean:.1f} ± {result.std:.1f}",
            f"{result.min:.1f} … {result.max:.1f}",
            where,
            f"{result.wall_seconds:.0f}{resumed}",
            f"{result.cpu_seconds:.0f}",
            f"`{result.commit}`",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    outdated = [
        str(result.seed)
        for result in results
        if configuration.differences(result.config, {**preset, "seed": result.seed})
    ]
    if outdated:
        lines.append(f"\nOf an older preset than today's: seed {', '.join(outdated)}.")
    return "\n".join(lines) + "\n"


def _range(steps: Sequence[int]) -> str:
    """Steps of several runs, which may differ by a rollout."""
    ends = sorted({min(steps), max(steps)}) if steps else []
    return " … ".join(f"{step:,}" for step in ends)
