"""Golden vectors: what each precision answered when it was exported, for whoever opens the bundle to ask again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import onnx

from export.observations import plainest
from export.parity import TOLERANCE, run_onnx
from paddleport.bundle import row_error
from paddleport.session import Session
from paddleport.spaces import Array, Leaves, Space, batch_size, joined, rows_of
from quantize.scales import LayerScales

_ROWS = 63
_NUDGE = 2e-4
_SAFETY = 2.0
_HALF_TOLERANCE = 2.0**-9  # a few of float16's last places

FLOAT32_TOLERANCE = TOLERANCE
Layers: TypeAlias = Mapping[str, LayerScales]


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
    write: Callable[[Layers], onnx.ModelProto], layers: Layers, obs: Leaves, names: Sequence[str]
) -> float:
    """How far another CPU's int8 answers may lie from the golden ones, in the measure of `row_error`.

    Integer kernels agree on every CPU, with VNNI or without. What lies between them does not: a tanh or a division
    that differs in its last place can put a number on the other side of a rounding boundary, and the number moves by
    a whole step. So the tolerance is what some flipped steps do: every activation's grid is made 0.02 % wider or
    narrower, in turns (a whole network scaled alike would flip nothing). That moves the outermost boundaries by 0.025
    of a step and flips about one number in a hundred, far more than another CPU would; twice the largest change
    that comes of it is allowed. It amounts to one or two steps of an output, where a wrong kernel (saturated
    products, a lost zero point) is off by tens. An image's grid stays: nothing is rounded there.

    Args:
        write: gives the int8 model for scales.
        layers: the scales.
        obs: the golden observations.
        names: of the outputs.
    """
    signs = itertools.cycle((1, -1))
    nudged = {
        path: scales
        if scales.reads_image
        else msgspec.structs.replace(scales, activation_abs_max=scales.activation_abs_max * (1 + sign * _NUDGE))
        for (path, scales), sign in zip(layers.items(), signs, strict=False)
    }
    sessions = [Session(write(chosen).SerializeToString()) for chosen in (layers, nudged)]
    exact, moved = (run_onnx(session, obs, names, batch=batch_size(obs)) for session in sessions)
    return max(_SAFETY * _worst(moved, exact), FLOAT32_TOLERANCE)


def half_tolerance(exact: Session, rounded: Session, obs: Leaves, names: Sequence[str]) -> float:
    """How far another machine's float16 answers may lie from the golden ones: twice as far as those are from float32.

    A CPU computes float16 files in float32, between roundings to float16; a GPU adds up in float16 too.

    Args:
        exact: the float32 file.
        rounded: the float16 file.
        obs: the golden observations.
        names: of the outputs.
    """
    before, after = (run_onnx(session, obs, names, batch=batch_size(obs)) for session in (exact, rounded))
    return max(_SAFETY * _worst(after, before), _HALF_TOLERANCE)


def _worst(moved: Mapping[str, Array], exact: Mapping[str, Array]) -> float:
    return max(row_error(moved[name], exact[name]) for name in exact if exact[name].dtype.kind == "f")
