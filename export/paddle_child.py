"""The child process that converts: `python -m export.paddle_child CHECKPOINT FOLDER OPSET [trust-code]`.

paddle2onnx aborts the process where it fails, so it runs in one that may die. It leaves three files in FOLDER:
Paddle's own `model.json` and `model.pdiparams`, the raw `model.onnx`, and `names.json`, which maps Paddle's generated
parameter names (`linear_0.w_0`) to structural paths (`policy_trunk.layers.0.weight`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from export.convert import NAMES, RAW, TRUST_CODE
from paddleport.checkpoint import Checkpoint
from paddleport.spaces import Space, leaf_spaces
from train.runtime import load_paddle

if TYPE_CHECKING:
    from train.network import PolicyNetwork


def main(checkpoint: Path, folder: Path, opset: int, *, trust_code: bool) -> None:
    """Rebuild a checkpoint's policy in Paddle and convert it."""
    load_paddle()
    from train.network import network_of

    opened = Checkpoint.open(checkpoint)
    save(network_of(opened, trust_code=trust_code), opened.state.observation_space, folder)
    to_onnx(folder, opset)


def save(network: PolicyNetwork, space: Space, folder: Path) -> None:
    """Write Paddle's own form of a policy, and the names in it, to `folder`."""
    import paddle

    leaves: dict[str, Any] = leaf_spaces(space)
    signature = {name: paddle.static.InputSpec([None, *leaf.shape], leaf.dtype, name) for name, leaf in leaves.items()}
    paddle.jit.save(network, str(folder / "model"), input_spec=[signature])
    named = [*network.named_parameters(), *network.named_buffers()]
    (folder / NAMES).write_bytes(msgspec.json.encode({tensor.name: path for path, tensor in named}))


def to_onnx(folder: Path, opset: int) -> None:
    """Convert what `save` wrote to `model.onnx` in the same folder; where that fails, the process ends."""
    import paddle2onnx

    paddle2onnx.export(
        str(folder / "model.json"),
        str(folder / "model.pdiparams"),
        str(folder / RAW),
        opset_version=opset,
        optimize_tool="None",  # the others would install packages, or write the file in spite of an error
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), trust_code=TRUST_CODE in sys.argv[4:])
