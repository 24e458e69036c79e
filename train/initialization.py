"""What a network starts from."""

from __future__ import annotations

import numpy as np
from paddle import nn

from paddleport.spaces import Array

_USERS = ".layer."
"""A user's own trunk is a sub-layer of this name (`train.trunks.UserTrunk`)."""


def initial_weights(network: nn.Layer, rng: np.random.Generator, log_std: float = 0.0) -> dict[str, Array]:
    """Orthogonal weights and zero biases by structural path, as PPO's reference implementations use.

    Gains: √2 in the trunks, 0.01 for the policy's head, 1 for heads of values (Engstrom et al. 2020, table 1; Huang et
    al. 2022, detail 2). Drawn with NumPy, so that both engines start from the same numbers. A user's own trunk keeps
    what its layers were made with.

    Args:
        network: made in eager mode.
        rng: the run's generator.
        log_std: where a Gaussian's `log_std` starts.
    """
    weights = {}
    for name, parameter in network.named_parameters():
        shape = tuple(parameter.shape)
        if _USERS in name:
            weights[name] = np.array(parameter.numpy())
        elif name == "log_std":
            weights[name] = np.full(shape, log_std, dtype=np.float32)
        elif len(shape) == 4:
            flat = _orthogonal((shape[0], shape[1] * shape[2] * shape[3]), 2**0.5, rng)
            weights[name] = flat.reshape(shape)
        elif len(shape) == 2:
            gain = {"policy_head.weight": 0.01}.get(name, 1.0 if "head." in name else 2**0.5)
            weights[name] = _orthogonal(shape, gain, rng)
        else:
            weights[name] = np.zeros(shape, dtype=np.float32)
    return weights


def _orthogonal(shape: tuple[int, ...], gain: float, rng: np.random.Generator) -> Array:
    """Saxe et al. 2013: Q of a Gaussian matrix's QR, signs fixed so that it is uniformly distributed."""
    rows, columns = max(shape), min(shape)
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    q *= np.sign(np.diag(r))
    return (gain * (q if shape[0] >= shape[1] else q.T)).astype(np.float32)
