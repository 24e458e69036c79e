"""Golden vectors: what each precision answered when it was exported, for whoever opens the bundle to ask again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import onnx

from export.observations import plainest
from export.parity import TOLERANCE, run_onnx
from export.qdq import quantized
from paddleport.bundle import row_error
from paddleport.session import Session
from paddleport.spaces import Array, Leaves, Space, batch_size, joined, rows_of
from quantize.scales import LayerScales

_ROWS = 63
_NUDGE = 2e-4
_SAFETY = 2.0

FLOAT32_TOLERANCE = TOLERANCE


def golden_observations(space: Space, visited: Leaves) -> Leaves:
    """The plainest observation and a thinned selection of visited ones, each array [at most 64, …]."""
    count = batch_size(visited)
    rows = np.linspace(0, count - 1, min(_ROWS, count)).round().astype(np.intp)
    return joined([plainest(space), rows_of(visited, rows)])


def golden_arrays(obs: Leaves, sessions: Mapping[str, Session], outputs: Sequence[str]) -> dict[str, Array]:
    """The graph's inputs, and `<precision>.<output>` for every session and output."""
    arrays = dict(obs)
    for precision, session in sessions.items():
        answers = run_onnx(session, obs, outputs, batch=batch_size(obs))
        arrays.update({f"{precision}.{name}": values for name, values in answers.items()})
    return arrays


def int8_tolerance(
    model: onnx.ModelProto,
    layers: Mapping[str, LayerScales],
    weights: Mapping[str, Array],
    obs: Leaves,
) -> float:
    """How far another CPU's int8 answers may lie from the golden ones, in the measure of `row_error`.

    Integer kernels agree on every CPU, with VNNI or without. What lies between them does not: a tanh or a division
    that differs in its last place can put a number on the other side of a rounding boundary, and the number moves by
    a whole step. So the tolerance is what some flipped steps do: every activation's grid is made 0.02 % wider or
    narrower, in turns (a whole network scaled alike would flip nothing). That moves the outermost boundaries by 0.025
    of a step and flips about one number in a hundred, far more than another CPU would; twice the largest change
    that comes of it is allowed. It amounts to one or two steps of an output, where a wrong kernel (saturated
    products, a lost zero point) is off by tens.

    Args:
        model: the canonical float32 model.
        layers: the scales.
        weights: the quantized policy's weights.
        obs: the golden observations.
    """
    nudged = {
        path: msgspec.structs.replace(scales, activation_abs_max=scales.activation_abs_max * (1 + sign * _NUDGE))
        for (path, scales), sign in zip(layers.items(), itertools.cycle((1, -1)), strict=False)
    }
    names = [output.name for output in model.graph.output]
    sessions = [Session(quantized(model, chosen, weights).SerializeToString()) for chosen in (layers, nudged)]
    exact, moved = (run_onnx(session, obs, names, batch=batch_size(obs)) for session in sessions)
    worst = max(row_error(moved[name], exact[name]) for name in names if exact[name].dtype.kind == "f")
    return max(_SAFETY * worst, FLOAT32_TOLERANCE)
