"""From a head's outputs to the environment's action: sizes, bounds, and the deterministic choice in Paddle."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import nn

from paddleport.errors import UsageError
from paddleport.spaces import Array, Box, Discrete, MultiBinary, MultiDiscrete, Space, describe

_FLOAT32_MAX = float(np.finfo(np.float32).max)


def head_size(space: Space) -> int:
    """How many numbers a policy's head gives.

    Raises:
        UsageError: there is no head for such actions.
    """
    if isinstance(space, Discrete):
        return space.n
    if isinstance(space, MultiDiscrete):
        return sum(space.nvec)
    if isinstance(space, MultiBinary):
        return space.size
    if isinstance(space, Box) and np.dtype(space.dtype).kind == "f" and space.size:
        return space.size
    raise UsageError(
        "This action space has no head",
        expected="Discrete, MultiDiscrete, MultiBinary, or a Box of floats",
        got=describe(space),
    )


class ActionHead(nn.Layer):
    """The deterministic action in the environment's units, from a distribution's parameters; holds no weights.

    Args:
        space: the action space.
        squash: whether a Box's mean goes through tanh instead of being clipped.
    """

    def __init__(self, space: Space, *, squash: bool = False) -> None:
        super().__init__()
        self.space: Any = space  # of one kind or another
        self.squash = squash
        if isinstance(space, Box):
            for name, values in affine_bounds(space).items():
                self.register_buffer(name, paddle.to_tensor(values), persistable=False)

    def forward(self, outputs: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """`logits` or `q_values` or `mean` [batch, …] → [batch] for Discrete, [batch, …] for other spaces."""
        space = self.space
        if isinstance(space, Discrete):
            return best(outputs["logits"], space.start)
        if isinstance(space, MultiDiscrete):
            parts = paddle.split(outputs["logits"], list(space.nvec), axis=-1)
            starts = space.starts
            choices = [best(part, starts[index]) for index, part in enumerate(parts)]
            return paddle.stack(choices, axis=-1)
        if isinstance(space, MultiBinary):
            return (outputs["logits"] > 0).astype("int8").reshape([-1, *space.shape])
        return self._box(outputs["mean"])

    def _box(self, mean: paddle.Tensor) -> paddle.Tensor:
        if self.squash:
            mean = paddle.tanh(mean) * self.bounded + mean * (1.0 - self.bounded)
        clipped = paddle.minimum(paddle.maximum(mean, self.mean_low), self.mean_high)
        action = clipped * self.action_scale + self.action_offset
        inside = paddle.minimum(paddle.maximum(action, self.action_low), self.action_high)
        return inside.astype(self.space.dtype).reshape([-1, *self.space.shape])


def best(values: paddle.Tensor, start: int) -> paddle.Tensor:
    """The action with the largest value, int64 [batch]."""
    index = paddle.argmax(values, axis=-1)
    return index + start if start else index


def affine_bounds(space: Box) -> dict[str, Array]:
    """Constants, float32 [size], of the affine map from [-1, 1] to the bounds.

    A dimension without two finite bounds is not scaled: `bounded` is then 0, `mean_low` and `mean_high` the largest
    floats.

    Raises:
        UsageError: two bounds are further apart than float32 can say.
    """
    low, high = (bound.reshape(-1) for bound in space.bounds())
    both = np.isfinite(low) & np.isfinite(high)
    if (np.abs(np.where(both, high - low, 0.0)) > _FLOAT32_MAX).any():
        raise UsageError(
            "This action space is wider than float32 reaches",
            expected=f"bounds that are at most {_FLOAT32_MAX:.3g} apart, or infinite",
            got=describe(space),
        )
    span = np.where(both, high, 0.0) - np.where(both, low, 0.0)
    middle = np.where(both, high, 0.0) + np.where(both, low, 0.0)
    constants = {
        "bounded": both,
        "mean_low": np.where(both, -1.0, -_FLOAT32_MAX),
        "mean_high": np.where(both, 1.0, _FLOAT32_MAX),
        "action_scale": np.where(both, span / 2, 1.0),
        "action_offset": middle / 2,
    }
    rounded = {name: values.astype(np.float32) for name, values in constants.items()}
    return rounded | {"action_low": _inside(low, np.inf), "action_high": _inside(high, -np.inf)}


def _inside(bounds: Array, inwards: float) -> Array:
    """Bounds, float64 [size], as the nearest float32 that are not outside them."""
    nearest = np.clip(bounds, -_FLOAT32_MAX, _FLOAT32_MAX).astype(np.float32)
    outside = nearest < bounds if inwards > 0 else nearest > bounds
    outside &= np.isfinite(bounds)
    return np.where(outside, np.nextafter(nearest, np.float32(inwards)), nearest).astype(np.float32)
