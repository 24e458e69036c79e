"""The fake-quantized twin of a policy: Paddle's own arithmetic for what int8 will do to it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import paddle
from paddle import nn
from paddle.nn.quant.format import LinearDequanter, LinearQuanter, LinearQuanterDequanter

from paddleport.errors import ArtifactError
from quantize.grid import LEVELS, UNSIGNED_LEVELS, layer_grid
from quantize.layers import quantizable
from quantize.scales import LayerScales
from train.network import PolicyNetwork


def fake_quantized(network: PolicyNetwork, layers: Mapping[str, LayerScales]) -> PolicyNetwork:
    """A copy of `network` whose named layers see their inputs and weights on their grids.

    Rounding is Paddle's quantize_linear: half to even, then clip. QuantizeLinear of ONNX does the same.

    Args:
        network: the float policy, in evaluation mode.
        layers: scales by structural path; layers without stay float.

    Raises:
        ArtifactError: the network has no such layer, or another number of channels.
    """
    twin = copy.deepcopy(network)
    twin.eval()
    found = quantizable(twin)
    for path, scales in layers.items():
        layer = found.get(path)
        if layer is None or layer.weight.shape[scales.weight_axis] != len(scales.weight_abs_max):
            raise ArtifactError("These scales do not belong to this network", got=path, todo="Quantize the run again")
        grid = layer_grid(scales, layer.bias.numpy())
        on_grid = _round_trip([float(step) * LEVELS for step in grid.weight], axis=scales.weight_axis)
        with paddle.no_grad():
            layer.weight.set_value(on_grid(layer.weight))
            layer.bias.set_value(grid.bias_numbers(layer.bias.numpy()).astype("float32") * grid.bias)
        coarse, *fine = (float(step) for step in grid.activation)
        digits = [_activation(coarse, unsigned=grid.unsigned), *(_activation(step, unsigned=False) for step in fine)]
        layer.register_forward_pre_hook(_quantize_input(digits))
    return twin


def _activation(step: float, *, unsigned: bool) -> LinearQuanterDequanter:
    """Float → grid → float. What is never negative uses the upper half of nine bits, 0 … 255."""
    return _round_trip(step * UNSIGNED_LEVELS, bits=9) if unsigned else _round_trip(step * LEVELS)


def _round_trip(abs_max: float | list[float], *, axis: int = -1, bits: int = 8) -> LinearQuanterDequanter:
    """Float → integers → float, per tensor (`axis` -1) or per channel."""
    zero_point = [0.0] * len(abs_max) if isinstance(abs_max, list) else 0.0
    settings: dict[str, Any] = {"zero_point": zero_point, "quant_axis": axis, "bit_length": bits}
    return LinearQuanterDequanter(LinearQuanter(abs_max, **settings), LinearDequanter(abs_max, **settings))


def _quantize_input(digits: list[LinearQuanterDequanter]) -> Callable[[nn.Layer, Any], Any]:
    """A hook that replaces a layer's input by the sum of its digits, each taking what the one before left."""

    def hook(_: nn.Layer, inputs: Any) -> Any:  # noqa: ANN401 - Paddle types a hook's inputs as a single tensor
        rest, total = inputs[0], None
        for digit in digits:
            rounded = digit(rest)
            rest, total = rest - rounded, rounded if total is None else total + rounded
        return (total, *inputs[1:])

    return hook
