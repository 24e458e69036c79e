"""Pictures of curves, drawn by Matplotlib into PNG bytes; it is imported when a picture is asked for."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from train.curves import Band, Curve, moving_mean
from train.drawing import new_figure, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES = (8.0, 4.5)
_RETURN = "return per episode (undiscounted)"
_STEPS = "environment steps"


def learning_curve(curve: Curve, title: str) -> bytes:
    """One training as a PNG: training returns with their moving mean, and evaluations with their deviation.

    The moving mean is over a twentieth of the iterations; where there are few, there is none.

    Raises:
        ModuleNotFoundError: Matplotlib is not installed.
    """
    figure = new_figure(*_INCHES)
    axes: Axes = figure.subplots()
    window = max(1, len(curve.steps) // 20)
    if window > 1:
        axes.plot(curve.steps, curve.returns, color="C0", alpha=0.3, linewidth=0.8, label="training")
        means = moving_mean(curve.returns, window)
        axes.plot(curve.steps, means, color="C0", label=f"training, mean of {window} iterations")
    elif len(curve.steps):
        axes.plot(curve.steps, curve.returns, ".-", color="C0", label="training")
    if len(curve.means):
        low, high = curve.means - curve.stds, curve.means + curve.stds
        axes.fill_between(curve.evaluated_at, low, high, color="C1", alpha=0.2, linewidth=0)
        marks: dict[str, Any] = {"fmt": "o-", "color": "C1", "markersize": 4, "elinewidth": 1}
        label = "evaluation ± std of its episodes"
        axes.errorbar(curve.evaluated_at, curve.means, curve.stds, label=label, **marks)
    _finish(axes, title, legend_columns=3)
    return png(figure)


def comparison(panels: Mapping[str, Sequence[tuple[str, Band]]]) -> bytes:
    """Groups of runs as a PNG, a panel for each environment.

    Args:
        panels: for each environment its groups: what to call one, and its band over seeds.

    Raises:
        ModuleNotFoundError: Matplotlib is not installed.
    """
    width, height = _INCHES
    figure = new_figure(width, height * len(panels))
    every = figure.subplots(len(panels), squeeze=False)[:, 0]
    for axes, (environment, groups) in zip(every, panels.items(), strict=True):
        for number, (label, band) in enumerate(groups):
            color = f"C{number % 10}"
            axes.fill_between(band.steps, band.low, band.high, color=color, alpha=0.2, linewidth=0)
            axes.plot(band.steps, band.mean, "o-", color=color, markersize=3, label=textwrap.fill(label, 70))
        _finish(axes, environment, legend_columns=1)
    return png(figure)


def _finish(axes: Axes, title: str, legend_columns: int) -> None:
    """Title, axes, and a legend below them, where it hides no curve."""
    from matplotlib.ticker import EngFormatter

    axes.set_title(title, loc="left", fontsize=11, wrap=True, parse_math=False)
    axes.set_xlabel(_STEPS)
    axes.set_ylabel(_RETURN)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    legend: Any = axes.legend(
        loc="upper left", bbox_to_anchor=(0, -0.13), ncols=legend_columns, frameon=False, fontsize=9
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name with dollar signs is no formula
