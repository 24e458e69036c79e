"""Mixed precision for the eager engine: what is computed in 16 bits, and how the loss is scaled for it.

The network's heads run in 16 bits; the loss behind them, the weights that the optimizer steps and its moments stay
in float32 (Micikevicius et al. 2018, "Mixed Precision Training"). Paddle does this on a GPU only: on the CPU it
computes in float32 all the same.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import paddle
from paddle import nn

from paddleport.errors import TrainingError

INITIAL_SCALE = 1024.0
SKIPPED_LIMIT = 20
"""This many skipped steps in a row stop the run: they have halved the scale to a thousandth, so it is not to blame."""


@dataclass(frozen=True)
class Amp:
    """Automatic mixed precision as Paddle names it."""

    level: Literal["O1", "O2"]
    """O1 casts the inputs of matrix products and convolutions; O2 keeps the weights themselves in 16 bits too."""
    dtype: Literal["float16", "bfloat16"]

    @property
    def active(self) -> bool:
        """Whether Paddle really computes in 16 bits on the device that is set."""
        return paddle.get_device() != "cpu"

    @property
    def scales(self) -> bool:
        """Whether the loss is scaled: float16 needs it, bfloat16 has the range of float32."""
        return self.active and self.dtype == "float16"


class MixedNetwork:
    """A network as its loss sees it: `heads` computes in 16 bits and gives float32. Its parts are seen so as well.

    Args:
        network: has a method `heads`, or parts that have one.
        amp: level and type.
    """

    def __init__(self, network: nn.Layer, amp: Amp) -> None:
        self._network, self._amp = network, amp

    def heads(self, *inputs: Any) -> dict[str, paddle.Tensor]:  # noqa: ANN401 - as the network takes them
        """The network's heads, each as float32: what a loss makes of them is sensitive to rounding."""
        with paddle.amp.auto_cast(enable=self._amp.active, level=self._amp.level, dtype=self._amp.dtype):
            outputs = self._network.heads(*inputs)
        return {name: output.astype("float32") for name, output in outputs.items()}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the network has
        part = getattr(self._network, name)
        return MixedNetwork(part, self._amp) if isinstance(part, nn.Layer) else part


def lower_weights(network: nn.Layer, optimizer: paddle.optimizer.Optimizer, amp: Amp) -> None:
    """For O2: the layers' weights to 16 bits, and the optimizer to float32 gradients and float32 master weights.

    Parameters of the network itself, such as a Gaussian's `log_std`, stay float32. With O1, and on the CPU, Paddle
    leaves everything as it is.
    """
    paddle.amp.decorate(
        network,
        optimizer,
        level=amp.level,
        dtype=amp.dtype,
        master_weight=True,
        # Else the global norm is summed up in 16 bits: beyond 256 its square is infinite, and clipping gives zeros.
        master_grad=True,
        excluded_layers=[type(network)],  # by type, which leaves out the layer's own parameters and not its parts
    )


def master_weights(parameters: Mapping[str, paddle.Tensor]) -> dict[str, paddle.Tensor]:
    """A float32 copy of each parameter that is kept in 16 bits, by structural path, named as Paddle names its own."""
    masters = {}
    for path, parameter in parameters.items():
        if parameter.dtype != paddle.float32:
            masters[path] = parameter.detach().astype("float32")
            masters[path].name = f"{parameter.name}_fp32_master_0"
    return masters


def grad_scaler(amp: Amp) -> paddle.amp.GradScaler:
    """Paddle's scaler, which does nothing where there is nothing to scale."""
    return paddle.amp.GradScaler(enable=amp.scales, init_loss_scaling=INITIAL_SCALE)


class LossScaler:
    """Steps on a scaled loss, skipping those whose gradients overflow, and counting them.

    Paddle halves the scale at each skipped step and doubles it after 2000 good ones in a row.

    Args:
        scaler: Paddle's own.
    """

    def __init__(self, scaler: paddle.amp.GradScaler) -> None:
        self._scaler = scaler
        self._skipped = 0
        self._skipped_in_a_row = 0

    def step(self, loss: paddle.Tensor, optimizer: paddle.optimizer.Optimizer) -> bool:
        """Backward and a step of the optimizer; returns whether the step was taken.

        Raises:
            TrainingError: `SKIPPED_LIMIT` steps in a row were skipped.
        """
        before = self._scaler.state_dict()
        self._scaler.scale(loss).backward()
        # Unscales the gradients and looks for infinite ones first; the clipping inside the optimizer comes behind it.
        self._scaler.step(optimizer)
        with contextlib.redirect_stdout(io.StringIO()):  # Paddle prints a line at each skipped step
            self._scaler.update()
        skipped = _was_skipped(before, self._scaler.state_dict())
        self._skipped += skipped
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if skipped else 0
        if self._skipped_in_a_row >= SKIPPED_LIMIT:
            raise TrainingError(
                f"The gradients overflowed float16 in {SKIPPED_LIMIT} updates in a row",
                got=f"a loss scale of {self.state()['scale']:g} after {self._skipped} skipped updates in all",
                todo="Lower --learning-rate, look at the environment's rewards, "
                "or train with --amp-dtype bfloat16, --amp O1 or --amp off; the last checkpoint is kept",
            )
        return not skipped

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps; empty where nothing is scaled."""
        state = self._scaler.state_dict()
        if not state:
            return {}
        return {
            "scale": float(state["scale"][0]),
            "good_steps": float(state["incr_count"]),
            "bad_steps": float(state["decr_count"]),
            "skipped": float(self._skipped),
            "skipped_in_a_row": float(self._skipped_in_a_row),
        }

    def load_state(self, state: Mapping[str, float]) -> None:
        """Continue from what `state` gave; where that is nothing, or nothing is scaled here, start anew."""
        if not state or not self._scaler.is_enable():
            return
        restored: Any = self._scaler.state_dict()
        restored["scale"] = np.array([state["scale"]], dtype=np.float32)
        restored["incr_count"], restored["decr_count"] = int(state["good_steps"]), int(state["bad_steps"])
        self._scaler.load_state_dict(restored)
        self._skipped, self._skipped_in_a_row = int(state["skipped"]), int(state["skipped_in_a_row"])


def _was_skipped(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether Paddle's scaler skipped the step between two of its states.

    It does not say so itself. A good step counts up, or doubles the scale and counts from 0 again.
    """
    return bool(after) and after["incr_count"] == 0 and bool(after["scale"][0] <= before["scale"][0])
