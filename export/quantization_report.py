"""What a bundle says of its quantization: in the manifest, in words in the model card, and in a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from export.latency import latencies
from export.precisions import Proven
from paddleport.manifest import Manifest, ReturnStatistics
from paddleport.spaces import Leaves
from quantize.gate import half_width
from quantize.scales import Quantized
from train.drawing import new_figure, png

FIGURE = "quantization.png"
_TIMED = ("float32", "int8")
_SMALLEST = 1e-6
_KEPT = (
    "method",
    "observer",
    "seed",
    "calibration_episodes",
    "calibration_observations",
    "calibration_file",
    "kept_float",
    "training",
    "tolerance",
    "layers",
    "report",
)


def quantization_report(
    scales: Quantized, proven: Mapping[str, Proven], agreement: float, obs: Leaves
) -> dict[str, Any]:
    """What the manifest says of the quantization.

    Args:
        scales: what was decided.
        proven: the files by precision.
        agreement: of the int8 file with the policy fake-quantized in Paddle.
        obs: observations to measure latencies with.
    """
    document = msgspec.to_builtins(scales.document)
    int8 = proven["int8"].returns
    return {
        **{key: document[key] for key in _KEPT},
        "agreement_with_paddle": agreement,
        "return_drop": int8.drop,
        "return_interval": int8.interval,
        "sizes": {name: len(each.data) for name, each in proven.items()},
        "latency_us": latencies({name: proven[name].session for name in _TIMED}, obs),
    }


def quantization_text(manifest: Manifest) -> str:
    """The model card's section on quantization: how it was done, what it costs, and where."""
    made = manifest.quantization
    if made is None:
        return ""
    parts = [_method(made), _latency(made), f"![Error by layer, and returns by precision]({FIGURE})", _layers(made)]
    return "\n\n".join(parts)


def _method(made: dict[str, Any]) -> str:
    source = f" of {made['calibration_episodes']} episodes" if made["calibration_episodes"] else ""
    kept = f" These layers stay in float: {', '.join(made['kept_float'])}." if made["kept_float"] else ""
    learnt = ""
    if made["training"]:
        learnt = (
            f" A fake-quantized student then learnt to act as the float policy for {made['training']['updates']:,} "
            f"updates, on {made['training']['observations']:,} observations, most of which it visited itself."
        )
    return (
        f"int8 by {made['method'].upper()} with PaddleSlim's `{made['observer']}` observer on "
        f"{made['calibration_observations']:,} observations{source}: {len(made['layers'])} layers with int8 weights a "
        f"channel and 8-bit activations.{kept}{learnt} It agrees with the policy fake-quantized in Paddle to "
        f"{made['agreement_with_paddle']:.4f}. The mean return drops by {made['return_drop']:.2f}"
        f"{_interval(made['return_interval'])}, episode by episode."
    )


def _interval(width: float | None) -> str:
    return "" if width is None else f" ± {width:.2f}"


def _latency(made: dict[str, Any]) -> str:
    times, reference = made["latency_us"], made["latency_us"]["float32"]
    lines = ["| batch | float32, µs | int8, µs | ratio |", "| --- | --- | --- | --- |"]
    for batch, exact in reference.items():
        rounded = times["int8"][batch]
        lines.append(f"| {batch} | {exact:.1f} | {rounded:.1f} | {rounded / exact:.2f} |")
    said = "One call of ONNX Runtime on one thread of the CPU that exported this, the two taking turns:"
    return said + "\n\n" + "\n".join(lines)


def _layers(made: dict[str, Any]) -> str:
    errors = made["report"]["layer_errors"]
    lines = ["| layer | error | agreement |", "| --- | --- | --- |"]
    for path, layer in errors.items():
        name = f"`{path}`" + (" (kept in float)" if path not in made["layers"] else "")
        lines.append(f"| {name} | {layer['error']:.4f} | {layer['agreement']:.4f} |")
    said = (
        "What each layer costs when it alone is quantized: the root mean square of what changes in an output, over "
        "that output's standard deviation (the worst output's), and the agreement of the actions."
    )
    return said + "\n\n" + "\n".join(lines)


def quantization_figure(manifest: Manifest, trainer: ReturnStatistics) -> bytes:
    """Error by layer, and mean returns with their 95 % intervals by precision, as a PNG.

    Args:
        manifest: of a quantized policy.
        trainer: returns of the policy in Paddle.
    """
    made = manifest.quantization or {}
    errors = made["report"]["layer_errors"]
    figure = new_figure(9.0, 1.8 + 0.28 * max(4, len(errors)))
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    names = list(errors)
    colors = ["C0" if name in made["layers"] else "C7" for name in names]
    widths = [max(errors[name]["error"], _SMALLEST) for name in names]
    left.barh(names, widths, color=colors)
    left.set_xscale("log")
    left.set_xlim(10 ** np.floor(np.log10(min(widths)) - 0.5), 10 ** np.ceil(np.log10(max(widths))))
    left.invert_yaxis()
    left.set_title("error of each layer alone (grey: kept in float)", loc="left", fontsize=10)
    left.set_xlabel("RMS change of an output / its deviation")
    played = {"trainer": trainer}
    played |= {name: info.measured_return for name, info in manifest.precisions.items() if info.measured_return}
    means = [each.mean for each in played.values()]
    intervals = [half_width(each.std, each.episodes) or 0.0 for each in played.values()]
    right.errorbar(means, range(len(played)), xerr=intervals, fmt="o", color="C1", capsize=3)
    # Of a few episodes the interval may reach beyond all that was ever returned.
    lowest, highest = min(each.min for each in played.values()), max(each.max for each in played.values())
    margin = 0.05 * (highest - lowest) or 1.0
    right.set_xlim(lowest - margin, highest + margin)
    right.set_yticks(range(len(played)), list(played))
    right.invert_yaxis()
    right.set_title("mean return, 95 % interval", loc="left", fontsize=10)
    for axes in (left, right):
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3, axis="x")
        axes.spines[["top", "right"]].set_visible(False)
    return png(figure)
