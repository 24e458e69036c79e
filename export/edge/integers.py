"""Fixed-point arithmetic of integer layers, with a proof that nothing overflows.

A layer's sum times `scale` is a real number. In int8 it becomes `round(sum × factor)`, with `factor` as a 32-bit
multiplier and a shift (Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", section 2.2). Tanh needs no function: the int8 result is how many of the numbers
`atanh((k - 1/2) × step)` lie below, since tanh grows with its argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from export.edge.program import IntegerLayer
from paddleport.errors import GateError
from paddleport.spaces import Array
from quantize.grid import DIGIT_BASE

INT32 = 2**31 - 1
_STEPS = 128
_FINEST = 26
_LARGEST_SHIFT = 61


@dataclass(frozen=True)
class FixedPoint:
    """Sum × factor = (sum × multiplier + half) >> shift, for each output."""

    multiplier: Array
    """int32 [outputs]."""
    shift: int


def sum_bounds(layer: IntegerLayer) -> Array:
    """The largest magnitude that each output's sum can have, int64 [outputs], whatever the observation.

    Raises:
        GateError: one does not fit 32 bits.
    """
    largest = {"int8": 128, "uint8": 255, "int16": 128 * DIGIT_BASE + 128}[layer.source.dtype]
    bounds = np.abs(layer.weight.astype(np.int64)).sum(axis=1) * largest + np.abs(layer.bias.astype(np.int64))
    if (bounds > INT32).any():
        raise GateError(
            f"The layer {layer.name} can overflow 32-bit sums",
            expected=f"at most {INT32}",
            got=int(bounds.max()),
            todo="Use float32, or the targets ort and web",
        )
    return bounds


def fixed_point(layer: IntegerLayer, unit: float) -> FixedPoint:
    """How a layer's sums become whole numbers of `unit`.

    Raises:
        GateError: a number of that size would not fit 32 bits.
    """
    bounds, factors = sum_bounds(layer), layer.scale / unit
    if (bounds * factors >= INT32).any():
        got = f"{(bounds * layer.scale).max():.3g}"
        raise GateError(f"The layer {layer.name} gives numbers too large for the grid behind it", got=got)
    shift = max(1, min(_LARGEST_SHIFT, 31 - math.frexp(float(factors.max()))[1]))
    multiplier = np.minimum(np.rint(factors * 2.0**shift), INT32)
    return FixedPoint(multiplier.astype(np.int32), shift)


def tanh_unit(layer: IntegerLayer) -> float:
    """The finest power of two in which every argument of the layer's tanh fits 32 bits."""
    largest = float((sum_bounds(layer) * layer.scale).max())
    room = math.floor(math.log2((INT32 - 1) / largest)) if largest > 0 else _FINEST
    return 2.0 ** -min(_FINEST, room)


def tanh_thresholds(step: float, unit: float) -> Array:
    """int32 [128]: in units, from where on tanh rounds to 1, 2, … 128 steps; the largest int32 where it never does."""
    middles = (np.arange(1, _STEPS + 1) - 0.5) * step
    reached = middles < 1.0
    arguments = np.arctanh(np.where(reached, middles, 0.0)) / unit
    return np.where(reached & (arguments < INT32), np.ceil(arguments), INT32).astype(np.int32)
