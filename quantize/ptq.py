"""Post-training quantization: PaddleSlim's observers watch the policy on observations that it visits itself."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection
from typing import Any

import msgspec
import paddle
from paddle import nn
from paddle.quantization import PTQ, QuantConfig
from paddle.quantization.base_observer import BaseObserver
from paddle.quantization.factory import ObserverFactory

from paddleport.errors import UsageError
from paddleport.spaces import Leaves
from quantize.layers import chosen
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


def calibrate(
    network: PolicyNetwork, observations: Leaves, observer: str, keep_float: Collection[str] = ()
) -> dict[str, LayerScales]:
    """Decide the scales of every layer, in the policy's branch and in the value's.

    Layers that read the vector of an observation get two digits and some headroom. Most of what int8 costs a small
    policy is lost there: a state far from the usual ones is rare in calibration and decides whether the episode goes
    on, and one grid cannot both reach it and resolve the rest. Convolutions that read an image lose nothing: its
    grid is the one of their inputs. Layers that give Q-values get two digits as well: which action is best hangs on
    differences of a hundredth of the values, finer than one grid's steps are.

    Args:
        network: the float policy, in evaluation mode; it is left as it is.
        observations: raw observations, each array [n, …]. They go through in one batch: PaddleSlim's MSE and EMD
            observers forget the batches before the last.
        observer: a key of `OBSERVERS`.
        keep_float: structural paths of layers to pass over.

    Returns:
        Scales by structural path.
    """
    config = QuantConfig(activation=None, weight=None)
    weight, inner = slim.AbsMaxChannelWiseWeightObserver(), OBSERVERS[observer]()
    config.add_type_config([nn.Linear, nn.Conv2D], activation=_Magnitudes(inner=inner), weight=weight)
    watched = PTQ(config).quantize(network)
    with paddle.no_grad():
        features = watched.features({name: paddle.to_tensor(array) for name, array in observations.items()})
        for layer in watched.sublayers():
            if isinstance(layer, _MagnitudeObserver):
                layer.vector = features.get(VECTOR)
        watched.heads(features)
    found = dict(watched.named_sublayers())
    scales = {path: _scales(found[path]) for path in chosen(network, keep_float)}
    finer = {path: msgspec.structs.replace(scales[path], activation_digits=2) for path in _value_heads(network, scales)}
    return {**scales, **finer}


def _value_heads(network: PolicyNetwork, layers: Collection[str]) -> list[str]:
    """The layers that give Q-values."""
    return [path for path in layers if "q_values" in network.output_names and path in ("head", "state_head")]


def _scales(layer: Any) -> LayerScales:  # noqa: ANN401 - Paddle types quanters as optional
    layer.weight_quanter.cal_thresholds()
    seen: _MagnitudeObserver = layer.activation_quanter
    if not seen.was_asked:
        raise UsageError("A layer of this policy was never used", got=type(layer).__name__)
    return LayerScales(
        activation_abs_max=float(seen.scales()) * (HEADROOM if seen.reads_vector else 1.0),
        activation_digits=2 if seen.reads_vector else 1,
        activation_unsigned=seen.unsigned and not seen.reads_vector,
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
    """Watches one layer's inputs.

    Attributes:
        vector: the vector of the observations that go through, [n, size]; None where there is none.
        was_asked: whether anything went through.
        reads_vector: whether the inputs are that vector, or end with it.
        unsigned: whether none of them was negative.
    """

    def __init__(self, layer: Any, inner: ObserverFactory) -> None:  # noqa: ANN401 - the layer that is observed
        super().__init__()
        self._inner = inner._instance(layer)
        self._constant: float | None = None
        self._is_convolution = isinstance(layer, nn.Conv2D)
        self.vector: paddle.Tensor | None = None
        self.was_asked = self.reads_vector = self.unsigned = False

    def forward(self, inputs: paddle.Tensor) -> paddle.Tensor:
        """Show the observer the magnitudes of inputs [batch, …], and note what they are; returns them as they came."""
        self.was_asked = True
        self.reads_vector = _ends_with(inputs, self.vector)
        self.unsigned = float(inputs.min()) >= 0
        if self._is_convolution and _is_image(inputs):
            self._constant = 1.0  # whatever part of its range was seen
            return inputs
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


def _ends_with(inputs: paddle.Tensor, vector: paddle.Tensor | None) -> bool:
    """Whether inputs [n, …] are the vector [n, size], or end with it, as behind a concatenation with images."""
    if vector is None or inputs.ndim != 2 or inputs.shape[1] < vector.shape[1]:
        return False
    return inputs is vector or bool((inputs[:, -vector.shape[1] :] == vector).all())


def _is_image(inputs: paddle.Tensor) -> bool:
    """Whether inputs [n, …] are whole numbers of 0 … 255, over 255."""
    if float(inputs.min()) < 0 or float(inputs.max()) > 1:
        return False
    numbers = inputs * 255.0
    return bool((paddle.abs(numbers - paddle.round(numbers)) < 1e-3).all())
