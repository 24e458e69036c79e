"""Activation checkpointing: memory for time (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")."""

from __future__ import annotations

from functools import partial

from paddle import nn
from paddle.distributed import fleet
from paddle.distributed.fleet.utils import recompute

TRUNK = "trunk"
"""The layers whose name ends so are recomputed: `trunk`, `policy_trunk`, `value_trunk`."""


def recompute_trunks(network: nn.Layer) -> None:
    """Let each trunk forget its activations after the forward pass and compute them again in the backward pass.

    Structural paths, weights and gradients stay the same, bit for bit.

    Args:
        network: changed in place.
    """
    # Its one line at each call says that a block whose input needs no gradient need not be recomputed. Ours have
    # weights that need one, and observations never do.
    fleet.set_log_level("ERROR")
    for path, layer in network.named_sublayers():
        if path.endswith(TRUNK):
            # The re-entrant form, Paddle's default, gives no gradients at all where no input needs one.
            layer.forward = partial(recompute, layer.forward, use_reentrant=False)  # type: ignore[method-assign]
