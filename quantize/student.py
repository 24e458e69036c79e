"""The student of quantization-aware training: a policy whose layers see Paddle's fake quantization while they learn."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import paddle
from paddle.quantization import QAT, QuantConfig
from paddle.quantization.quanters import FakeQuanterWithAbsMaxObserver

from paddleport.spaces import Array
from quantize.scales import LayerScales
from train.network import PolicyNetwork

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it imports distutils' replacement
    from paddleslim.quant.quanters import FakeQuanterChannelWiseAbsMaxObserver

_MOVING_RATE = 0.99
_OWN = (".weight_quanter.", ".activation_quanter.")


def student_of(network: PolicyNetwork, layers: Mapping[str, LayerScales]) -> PolicyNetwork:
    """A copy of a policy whose named layers are fake-quantized by Paddle as they learn.

    Weights go through PaddleSlim's channel-wise quanter, inputs through Paddle's moving average of the largest
    magnitude, which starts from the scales given. Inputs on two digits, and images, pass as they are: their grids are
    so fine, or exact, that there is nothing to learn.

    Args:
        network: the float policy; it is left as it is.
        layers: scales by structural path, as `quantize.ptq` decided them.
    """
    student = copy.deepcopy(network)
    student.train()
    config = QuantConfig(activation=None, weight=None)
    found = dict(student.named_sublayers())
    for path, scales in layers.items():
        activation = None if _is_exact(scales) else _activation_quanter(unsigned=scales.activation_unsigned)
        config.add_layer_config([found[path]], activation=activation, weight=FakeQuanterChannelWiseAbsMaxObserver())
    learning: Any = QAT(config).quantize(student, inplace=True)
    for path, layer in learning.named_sublayers():
        if path in layers and layer.activation_quanter is not None:
            _start_from(layer.activation_quanter, layers[path].activation_abs_max)
    return learning


def learnt_scales(student: PolicyNetwork, layers: Mapping[str, LayerScales]) -> dict[str, LayerScales]:
    """Scales of a student: each weight's, and each input's where a quanter watched it; the rest as `layers` says."""
    found: dict[str, Any] = dict(student.named_sublayers())
    return {path: _scales_of(found[path], scales) for path, scales in layers.items()}


def _scales_of(layer: Any, before: LayerScales) -> LayerScales:  # noqa: ANN401 - Paddle types quanters as optional
    with paddle.no_grad():
        layer.weight_quanter(layer.weight)  # it takes the weights' scales as it sees them
    changes: dict[str, Any] = {
        "weight_abs_max": tuple(max(float(scale), 1e-8) for scale in layer.weight_quanter.scales().numpy())
    }
    if layer.activation_quanter is not None:
        changes["activation_abs_max"] = float(layer.activation_quanter.scales())
    return msgspec.structs.replace(before, **changes)


def float_weights(student: PolicyNetwork) -> dict[str, Array]:
    """The student's float weights and normaliser, under the names that they have in the policy it is a copy of."""
    return {
        name: np.array(tensor.numpy())
        for name, tensor in student.state_dict().items()
        if not any(own in f".{name}" for own in _OWN)
    }


def _activation_quanter(*, unsigned: bool) -> Any:  # noqa: ANN401 - Paddle's own factory
    """Steps of abs-max / 127; of abs-max / 255 for what is never negative, by the upper half of nine bits."""
    return FakeQuanterWithAbsMaxObserver(moving_rate=_MOVING_RATE, bit_length=9 if unsigned else 8)


def _is_exact(scales: LayerScales) -> bool:
    return scales.activation_digits > 1 or scales.reads_image


def _start_from(quanter: Any, abs_max: float) -> None:  # noqa: ANN401 - Paddle's own layer
    """Let the moving average begin at a scale instead of at Paddle's 0.001: accumulated sum over accumulated count."""
    quanter._scale.set_value(np.full([1], abs_max, np.float32))
    quanter._accum.set_value(np.full([1], abs_max, np.float32))
    quanter._state.set_value(np.ones([1], np.float32))
