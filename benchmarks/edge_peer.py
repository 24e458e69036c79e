"""emx-onnx-cgen alone, as the peer of the target `c`: its C in the folder that `paddleport edge` writes.

The shim gives it the same interface, so that the same self-test, clock and emulator measure both.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import onnx
from onnx.utils import Extractor

from paddleport.bundle import Bundle

LIMIT_S = 300.0
PYTHON = Path(__file__).resolve().parents[1] / "build" / "peers" / "emx" / "bin" / "python"
_SHIM = """\
#include "policy.h"
#include <float.h>
#include <stddef.h>
#include "model.c"

int policy_evaluate(const policy_obs_t obs[POLICY_OBS_SIZE], policy_action_t action[POLICY_ACTION_SIZE],
                    float head[POLICY_HEAD_SIZE])
{
    @ACTION@ chosen[POLICY_ACTION_SIZE];
    size_t i;
    for (i = 0; i < @CHECKED@; i++) {
        if (!((float)obs[i] >= -FLT_MAX && (float)obs[i] <= FLT_MAX)) {
            return POLICY_BAD_OBSERVATION;
        }
    }
    model((void *)(uintptr_t)obs, (void *)chosen, (void *)head);
    for (i = 0; i < POLICY_ACTION_SIZE; i++) {
        action[i] = (policy_action_t)chosen[i];
    }
    return POLICY_OK;
}

int policy_act(const policy_obs_t obs[POLICY_OBS_SIZE], policy_action_t action[POLICY_ACTION_SIZE])
{
    float head[POLICY_HEAD_SIZE];
    return policy_evaluate(obs, action, head);
}
"""


def is_installed() -> bool:
    """Whether emx-onnx-cgen is in its environment, which `make bench-edge` makes."""
    return PYTHON.exists()


def write_peer(bundle: Bundle, precision: str, ours: Path, folder: Path) -> str:
    """Copy our folder and put the peer's C into it; returns why that failed, or nothing.

    The peer gets the graph with the value's branch left out, as our own does, and a batch of one.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ours, folder, ignore=shutil.ignore_patterns("build"))
    manifest = bundle.manifest
    head = next(output.name for output in manifest.outputs if output.name in ("logits", "q_values", "mean"))
    model = Extractor(onnx.load_model_from_string(bundle.onnx(precision))).extract_model(["obs"], ["action", head])
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]
    onnx.save(model, folder / "model.onnx")
    arguments = ["compile", "--model-name", "model", "--large-weight-threshold", "0", "model.onnx", "src/model.c"]
    try:
        done = subprocess.run(
            [PYTHON, "-m", "emx_onnx_cgen", *arguments], cwd=folder, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"took more than {LIMIT_S:g} s"
    if done.returncode:
        return (done.stderr or done.stdout).strip().splitlines()[-1]
    action = next(output for output in manifest.outputs if output.name == "action")
    shim = _SHIM.replace("@ACTION@", "int64_t" if action.dtype == "int64" else "float")
    shim = shim.replace("@CHECKED@", "0" if manifest.inputs[0].dtype == "uint8" else "POLICY_OBS_SIZE")
    (folder / "src" / "policy.c").write_text(shim)
    return ""


def static_bytes(folder: Path) -> int | None:
    """Bytes of zeroed memory that a compiled policy keeps for itself, on a Cortex-M4F."""
    path = folder / "build" / "cortex-m4f.o"
    if not path.is_file():
        return None
    done = subprocess.run(["arm-none-eabi-size", path], capture_output=True, text=True, check=True)
    return int(re.split(r"\s+", done.stdout.splitlines()[-1].strip())[2])
