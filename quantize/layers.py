"""Which layers of a policy can be quantized, and which may stay in float."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from paddle import nn

from paddleport.errors import UsageError
from train.network import PolicyNetwork

_LISTED = 12


def quantizable(network: PolicyNetwork) -> dict[str, Any]:
    """Fully connected layers and convolutions with a bias, by structural path, in the order of the network."""
    return {path: layer for path, layer in network.named_sublayers() if _has_int8_form(layer)}


def check_layers(network: PolicyNetwork, keep_float: Collection[str]) -> None:
    """Refuse a policy with matrices that would be left in float without being named: int8 says that there are none.

    Args:
        network: the float policy.
        keep_float: structural paths of the layers that may stay in float; layers within them may, too.

    Raises:
        UsageError: there are other such layers, or a name is none of the network's.
    """
    every = dict(network.named_sublayers())
    if unknown := [path for path in keep_float if path not in every]:
        raise UsageError(
            "--keep-float names a layer that is not there", got=unknown[0], todo=_suggest(unknown[0], every)
        )
    left = {
        path: type(layer).__name__
        for path, layer in every.items()
        if not _has_int8_form(layer) and _holds_matrices(layer) and not _within(path, keep_float)
    }
    if left:
        raise UsageError(
            "These layers have no int8 form, and were not named to stay in float",
            expected="Linear or Conv2D with a bias",
            got=", ".join(f"{path} ({kind})" for path, kind in left.items()),
            todo=f"Name them: --keep-float {' '.join(left)}; or export in float32: --quantized none",
        )
    if not [path for path in quantizable(network) if not _within(path, keep_float)]:
        raise UsageError("Nothing is left to quantize", got=f"--keep-float {' '.join(keep_float)}")


def chosen(network: PolicyNetwork, keep_float: Collection[str]) -> dict[str, Any]:
    """The layers that are to be quantized: all that can be, but those that are kept in float."""
    return {path: layer for path, layer in quantizable(network).items() if not _within(path, keep_float)}


def left_float(network: PolicyNetwork, keep_float: Collection[str]) -> tuple[str, ...]:
    """Structural paths of every layer with matrices that `keep_float` leaves in float."""
    return tuple(
        path for path, layer in network.named_sublayers() if _holds_matrices(layer) and _within(path, keep_float)
    )


def _has_int8_form(layer: nn.Layer) -> bool:
    if isinstance(layer, nn.Conv2D):
        return layer.bias is not None and layer._padding_mode == "zeros" and layer._data_format == "NCHW"
    return isinstance(layer, nn.Linear) and layer.bias is not None


def _holds_matrices(layer: nn.Layer) -> bool:
    return any(parameter.ndim > 1 for parameter in layer.parameters(include_sublayers=False))


def _within(path: str, named: Collection[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in named)


def _suggest(name: str, every: Collection[str]) -> str:
    near = difflib.get_close_matches(name, every, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Its layers are {', '.join(list(every)[:_LISTED])}{' …' if len(every) > _LISTED else ''}"
