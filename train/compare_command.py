"""`paddleport compare`: several runs in one picture and one table, seeds of the same thing taken together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import tyro
from rich.console import Console
from rich.table import Column, Table

from paddleport import options
from paddleport.checkpoint import Run
from paddleport.errors import ArtifactError, UsageError
from paddleport.files import write_atomic
from paddleport.options import Flag
from train import configuration
from train.curves import Band, Curve, band_of, curve_of
from train.figures import comparison
from train.metrics import METRICS, read_metrics
from train.outputs import check_output

_DESCRIPTION = """Plot the evaluations of several runs over their steps, and put them into a table.

Runs whose options differ in the seed alone are one group: its line is the mean, its band reaches from the worst run to
the best one. Each environment gets a panel of its own."""
_OF_A_RUN = ("seed", "keep_checkpoints")
"""Options that may differ within a group."""


@dataclass(frozen=True)
class Options:
    """What to compare."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run directories, such as runs/ppo-*; they may still be training."""
    out: str = "compare.png"
    """The picture, a PNG file; one that is there is replaced."""
    json: Flag = False
    """Print the table as JSON on stdout."""


class Group(msgspec.Struct, frozen=True):
    """Runs that differ in the seed alone. Each run counts once, whatever the number of its evaluation episodes."""

    label: str
    algorithm: str
    environment: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    step: int
    """Where the shortest of the runs was evaluated last."""
    final_mean: float
    """Mean over the runs of the last evaluation's mean return."""
    final_std: float | None
    """Standard deviation (population) over the runs of the same; null for a single run."""
    best_mean: float
    """Mean over the runs of the best evaluation's mean return."""
    steps_per_second: float | None
    """Mean over the runs of the last one reported."""


class Comparison(msgspec.Struct, frozen=True):
    """The groups, in the order their first runs were named, and the picture."""

    out: str
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class _Member:
    """One run, read."""

    path: Path
    config: dict[str, Any]
    curve: Curve

    @property
    def kind(self) -> str:
        """What the runs of a group have in common, as a key."""
        return json.dumps({name: value for name, value in self.config.items() if name not in _OF_A_RUN})


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "compare", argv, _DESCRIPTION)


def run(chosen: Options) -> Comparison:
    """Read the runs, draw the picture and make the table.

    Raises:
        ArtifactError: a folder is no run, or its run has not been evaluated yet.
        UsageError: no run was named, runs of a group have no steps in common, or the picture cannot be written there.
    """
    if not chosen.runs:
        raise UsageError("There is nothing to compare", expected="one or more run directories")
    check_output(Path(chosen.out), ".png", "--out")
    named: dict[Path, Path] = {}
    for path in map(Path, chosen.runs):
        named.setdefault(path.resolve(), path)  # a run that is named twice counts once
    members = [_member(path) for path in named.values()]
    by_kind: dict[str, list[_Member]] = {}
    for member in members:
        by_kind.setdefault(member.kind, []).append(member)
    labels = _labels([same[0].config for same in by_kind.values()])
    groups = tuple(_group(label, same) for label, same in zip(labels, by_kind.values(), strict=True))
    panels: dict[str, list[tuple[str, Band]]] = {}
    for group, same in zip(groups, by_kind.values(), strict=True):
        panels.setdefault(group.environment, []).append((_legend(group), _band(same)))
    write_atomic(Path(chosen.out), comparison(panels))
    return Comparison(out=chosen.out, groups=groups)


def show(compared: Comparison) -> None:
    """Print a table for each environment."""
    console = Console(markup=False, emoji=False, highlight=False)
    for environment in dict.fromkeys(group.environment for group in compared.groups):
        console.print(_table(environment, [group for group in compared.groups if group.environment == environment]))
    console.print(f"The curves are in {compared.out}", soft_wrap=True)


def _table(environment: str, groups: Sequence[Group]) -> Table:
    table = Table(Column("group", overflow="fold"), "seeds", title=environment, title_justify="left")
    for heading in ("final\nmean", "± over\nseeds", "best\nmean", "steps/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for group in groups:
        table.add_row(
            group.label,
            ", ".join(map(str, group.seeds)),
            f"{group.final_mean:.1f}",
            "–" if group.final_std is None else f"{group.final_std:.1f}",
            f"{group.best_mean:.1f}",
            "–" if group.steps_per_second is None else f"{group.steps_per_second:.0f}",
        )
    return table


def _member(path: Path) -> _Member:
    config, _ = configuration.load(Run(path).path / configuration.CONFIG)
    curve = curve_of(read_metrics(path))
    if not len(curve.means):
        raise ArtifactError(
            f"{path} has not been evaluated yet",
            expected=f"an evaluation in its {METRICS}, which comes with each checkpoint",
            todo="Leave it out, or wait for its first checkpoint",
        )
    return _Member(path, configuration.to_mapping(config), curve)


def _labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What to call each group: its algorithm, and the options that tell it from others of the same on the same task."""
    labels = []
    for config in configs:
        rivals = [other for other in configs if (other["algo"], other["env"]) == (config["algo"], config["env"])]
        telling = [
            f"{name}={value}"
            for name, value in config.items()
            if name not in _OF_A_RUN and any(other[name] != value for other in rivals)
        ]
        labels.append(", ".join([config["algo"], *telling]))
    return labels


def _group(label: str, members: Sequence[_Member]) -> Group:
    curves = [member.curve for member in members]
    final = np.array([curve.means[-1] for curve in curves])
    rates = [curve.steps_per_second for curve in curves if curve.steps_per_second is not None]
    config = members[0].config
    return Group(
        label=label,
        algorithm=config["algo"],
        environment=config["env"],
        runs=tuple(str(member.path) for member in members),
        seeds=tuple(member.config["seed"] for member in members),
        step=min(int(curve.evaluated_at[-1]) for curve in curves),
        final_mean=float(final.mean()),
        final_std=float(final.std()) if len(final) > 1 else None,
        best_mean=float(np.mean([curve.means.max() for curve in curves])),
        steps_per_second=float(np.mean(rates)) if rates else None,
    )


def _legend(group: Group) -> str:
    if len(group.runs) == 1:
        return f"{group.label} (seed {group.seeds[0]})"
    return f"{group.label} (mean of {len(group.runs)} runs, band from the worst to the best)"


def _band(members: Sequence[_Member]) -> Band:
    band = band_of([member.curve for member in members])
    if not len(band.steps):
        spans = [f"{member.path} at {'–'.join(map(str, _span(member.curve)))}" for member in members]
        raise UsageError(
            "These runs differ in the seed alone, and were evaluated at no steps in common",
            got=", ".join(spans),
            todo="Compare them when the shorter ones have gone on, or leave those out",
        )
    return band


def _span(curve: Curve) -> list[int]:
    """The first and the last step of the evaluations; one, if they are the same."""
    return sorted({int(curve.evaluated_at[0]), int(curve.evaluated_at[-1])})
