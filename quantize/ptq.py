"""Post-training quantization: PaddleSlim's observers watch the policy on observations that it visits itself."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn
from paddle.nn.quant.qat.linear import QuantedLinear
from paddle.quantization import PTQ, QuantConfig
from paddle.quantization.base_observer import BaseObserver
from paddle.quantization.factory import ObserverFactory

from paddleport.errors import UsageError
from paddleport.spaces import Leaves
from quantize.scales import LayerScales
from train.encoding import VECTOR
from train.network import PolicyNetwork

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it imports distutils' replacement
    from paddleslim.quant import observers as slim

OBSERVERS: dict[str, Callable[[], ObserverFactory]] = {
    "absmax": slim.AbsmaxObserver,
    "avg": slim.AVGObserver,
    "mse": slim.MSEObserver,
    "emd": slim.EMDObserver,
    "hist": slim.HistObserver,
    # Of magnitudes, half of its usual 2048 bins resolve as much, and its search takes a quarter of the time.
    "kl": functools.partial(slim.KLObserver, bins_count=1024),
}
"""PaddleSlim's observers of activations by the name that the command takes."""


HEADROOM = 4.0
"""The grid of an observation reaches this much further than what calibration saw."""


def refuse_what_stays_float(network: PolicyNetwork) -> None:
    """Refuse a policy with matrices that no scales would be decided for: an int8 file of it would hold floats.

    Raises:
        UsageError: the message names the kinds of its layers.
    """
    left = {
        type(layer).__name__
        for layer in network.sublayers(include_self=True)
        if not (isinstance(layer, nn.Linear) and layer.bias is not None)
        and any(parameter.ndim > 1 for parameter in layer.parameters(include_sublayers=False))
    }
    if left:
        raise UsageError(
            "Only fully connected layers with a bias can be quantized so far, and this policy has others",
            got=", ".join(sorted(left)),
            todo="Export it in float32: paddleport export RUN_DIR --quantized none",
        )


def calibrate(network: PolicyNetwork, observations: Leaves, observer: str) -> dict[str, LayerScales]:
    """Decide the scales of every linear layer, in the policy's branch and in the value's.

    Layers that read the observation itself get two digits and some headroom. Most of what int8 costs a small policy is
    lost there: a state far from the usual ones is rare in calibration and decides whether the episode goes on, and one
    grid cannot both reach it and resolve the rest.

    Args:
        network: the float policy, in evaluation mode; it is left as it is.
        observations: raw observations, each array [n, …]. They go through in one batch: PaddleSlim's MSE and EMD
            observers forget the batches before the last.
        observer: a key of `OBSERVERS`.

    Returns:
        Scales by structural path.
    """
    config = QuantConfig(activation=None, weight=None)
    config.add_type_config(
        nn.Linear, activation=_Magnitudes(inner=OBSERVERS[observer]()), weight=slim.AbsMaxChannelWiseWeightObserver()
    )
    watched = PTQ(config).quantize(network)
    with paddle.no_grad():
        features = watched.features({name: paddle.to_tensor(array) for name, array in observations.items()})
        watched.heads(features)
    layers = [(path, layer) for path, layer in watched.named_sublayers() if isinstance(layer, QuantedLinear)]
    return {path: _scales(layer, features.get(VECTOR)) for path, layer in layers}


def _scales(layer: Any, vector: paddle.Tensor | None) -> LayerScales:  # noqa: ANN401 - Paddle types quanters as optional
    layer.weight_quanter.cal_thresholds()
    reads_observation = layer.activation_quanter.seen is vector
    return LayerScales(
        activation_abs_max=float(layer.activation_quanter.scales()) * (HEADROOM if reads_observation else 1.0),
        activation_digits=2 if reads_observation else 1,
        weight_abs_max=tuple(float(scale) for scale in layer.weight_quanter.scales().numpy()),
        weight_axis=int(layer.weight_quanter.quant_axis()),
    )


class _Magnitudes(ObserverFactory):
    """Shows an observer |x| instead of x.

    On a grid symmetric around zero only magnitudes matter, and two of PaddleSlim's observers are right for these
    alone: EMD takes the largest value for the largest magnitude, and KL takes the smallest value for zero.
    """

    def __init__(self, inner: ObserverFactory) -> None:
        super().__init__(inner=inner)

    def _get_class(self) -> type[_MagnitudeObserver]:
        return _MagnitudeObserver


class _MagnitudeObserver(BaseObserver):
    def __init__(self, layer: Any, inner: ObserverFactory) -> None:  # noqa: ANN401 - the layer that is observed
        super().__init__()
        self._inner = inner._instance(layer)
        self._constant: float | None = None
        self.seen: paddle.Tensor | None = None

    def forward(self, inputs: paddle.Tensor) -> paddle.Tensor:
        self.seen = inputs
        magnitudes = paddle.abs(inputs)
        smallest, largest = float(magnitudes.min()), float(magnitudes.max())
        # Histogram observers have no answer where every value is the same; the value itself is the right one.
        self._constant = max(largest, 1e-8) if smallest == largest else None
        if self._constant is None:
            self._inner(magnitudes)
        return inputs

    def cal_thresholds(self) -> None:
        if self._constant is None:
            self._inner.cal_thresholds()

    def scales(self) -> paddle.Tensor:
        return paddle.to_tensor(float(self._inner.scales()) if self._constant is None else self._constant)

    def zero_points(self) -> paddle.Tensor:
        return paddle.to_tensor(0.0)

    def bit_length(self) -> int:
        return 8

    def quant_axis(self) -> int:
        return -1
