"""The integer grids that scales stand for, as the fake-quantized twin and the ONNX writer both use them.

Every number q on a grid stands for q × step. Weights take q from -127 … 127, biases from int32. Activations that may be
negative take q from -128 … 127, one step being abs-max / 127; those that never are take q from 0 … 255, one step being
abs-max / 255. An image, 0 … 255 over 255, is on such a grid already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from paddleport.spaces import Array
from quantize.scales import LayerScales

LEVELS = 127
"""Steps of int8 on either side of zero: one step is abs-max / 127."""
UNSIGNED_LEVELS = 255
"""Steps of uint8 above zero."""
DIGIT_BASE = 2 * LEVELS
"""A second digit has steps this much smaller: what rounding to the first leaves fits its 127 steps on either side."""
_BIAS_LIMIT = 2**30  # half of int32, so that the sum of products has room as well


@dataclass(frozen=True)
class LayerGrid:
    """Steps of one layer, float32."""

    activation: tuple[np.float32, ...]
    """Of each digit of the input, the coarse one first."""
    unsigned: bool
    """Whether the input's coarse digit is on a grid from zero upwards; what it leaves may be negative."""
    weight: Array
    """Of each output channel, [channels]."""
    weight_axis: int

    @property
    def bias(self) -> Array:
        """[channels]: the products' own grid, with the finest digit of the input."""
        return self.weight * self.activation[-1]

    def weight_numbers(self, weight: Array) -> Array:
        """A float weight as int8 numbers of the same shape."""
        shape = [1] * weight.ndim
        shape[self.weight_axis] = -1
        return np.clip(np.rint(weight / self.weight.reshape(shape)), -LEVELS, LEVELS).astype(np.int8)

    def bias_numbers(self, bias: Array) -> Array:
        """A float bias [channels] as int32 numbers."""
        return np.rint(bias / self.bias.astype(np.float64)).astype(np.int32)


def layer_grid(scales: LayerScales, bias: Array) -> LayerGrid:
    """The grids of one layer.

    Where a channel's weights are so small beside its bias that the bias would not fit 32 bits on the grid of the
    products, the weights' step is made larger: such weights count for nothing there.

    Args:
        scales: as a method decided them.
        bias: float [channels].
    """
    coarse = scales.activation_abs_max / (UNSIGNED_LEVELS if scales.activation_unsigned else LEVELS)
    activation = tuple(np.float32(coarse / DIGIT_BASE**digit) for digit in range(scales.activation_digits))
    wanted = np.asarray(scales.weight_abs_max, np.float64) / LEVELS
    least = np.abs(bias.astype(np.float64)) / (float(activation[-1]) * _BIAS_LIMIT)
    weight = np.maximum(wanted, least).astype(np.float32)
    return LayerGrid(activation, scales.activation_unsigned, weight, scales.weight_axis)


def signed(layers: Mapping[str, LayerScales]) -> dict[str, LayerScales]:
    """The same scales on grids that are symmetric around zero everywhere, for consumers that know no others."""
    return {path: msgspec.structs.replace(scales, activation_unsigned=False) for path, scales in layers.items()}
