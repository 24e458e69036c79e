"""The bundle's README.md: what the policy is, what it was measured to do, and how to call it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from export.quantization_report import quantization_text
from paddleport.manifest import Manifest, ReturnStatistics
from paddleport.spaces import (
    OBSERVATION,
    Box,
    DictSpace,
    Discrete,
    Leaf,
    Leaves,
    Space,
    TupleSpace,
    describe,
    leaf_spaces,
)
from quantize.gate import half_width

_OPENING = "Whoever opens this bundle checks every file's SHA-256 and replays `golden.npz`."
_ROWS = 32
_LARGE = 256
_INLINE = 64


CURVE = "learning_curve.png"


def model_card(
    manifest: Manifest, sizes: Mapping[str, int], example: Leaves, *, trainer: ReturnStatistics | None = None
) -> str:
    """Write the model card.

    Args:
        manifest: the bundle's, with its version.
        sizes: bytes of each file.
        example: one observation, array by array.
        trainer: returns of the policy as it was trained, in Paddle; None where it was adopted.
    """
    sections = [
        _head(manifest),
        "## Observation\n\n" + _space_tables(manifest.observation_space),
        "## Action\n\n" + _space_tables(manifest.action_space) + "\n\n" + _action_rule(manifest),
        "## Returns\n\n" + _returns(manifest, trainer),
        *(["## Learning\n\n![Returns over the training](" + CURVE + ")"] if CURVE in sizes else []),
        "## Precisions\n\n" + _precisions(manifest, sizes),
        *(["## Quantization\n\n" + quantization_text(manifest)] if manifest.quantization else []),
        "## Proof\n\n" + _proof(manifest),
        "## Use\n\n" + _use(manifest, example),
    ]
    return "\n\n".join(sections) + "\n"


def _head(manifest: Manifest) -> str:
    source, environment = manifest.provenance, manifest.environment
    limit = f", at most {environment.max_episode_steps} steps an episode" if environment.max_episode_steps else ""
    title = f"# {manifest.name}, version {manifest.version}\n\n"
    if manifest.parity is None:
        return (
            f"{title}A policy for `{environment.id}`{limit}, adopted from another tool's ONNX file (SHA-256 "
            f"`{source.checkpoint_sha256[:12]}`, {source.versions.get('producer', 'an unnamed producer')}), "
            f"{source.created}. ONNX opset {manifest.opset}, IR version {manifest.ir_version}."
        )
    return (
        f"{title}A policy for `{environment.id}`{limit}, trained with {manifest.algorithm.upper()} in PaddlePaddle for "
        f"{source.step:,} steps (seed {source.seed}, run `{source.run_id}`, checkpoint "
        f"`{source.checkpoint_sha256[:12]}`), exported {source.created}. It takes the environment's raw observation "
        f"and gives the action that `env.step` takes. ONNX opset {manifest.opset}, IR version {manifest.ir_version}."
    )


def _space_tables(space: Space) -> str:
    """A table for each array of the observation, under the name of the graph's input."""
    leaves = leaf_spaces(space)
    if len(leaves) == 1 and OBSERVATION in leaves:
        return _space_table(leaves[OBSERVATION])
    return "\n\n".join(f"### `{name}`\n\n{_space_table(leaf)}" for name, leaf in leaves.items())


def _space_table(space: Leaf) -> str:
    if not isinstance(space, Box | Discrete):
        return f"{describe(space)}; {space.dtype}."
    if isinstance(space, Discrete):
        names = space.names or ("",) * space.n
        rows = [(str(space.start + index), name) for index, name in enumerate(names)]
        return "One int64 a row.\n\n" + _table(("value", "meaning"), rows)
    if space.size > _LARGE:
        return f"{describe(space)}."
    return f"{space.dtype}, shape {list(space.shape)}.\n\n" + _table(
        ("element", "name", "unit", "lowest", "highest"), _elements(space)
    )


def _elements(space: Box) -> list[tuple[str, ...]]:
    low, high = (bound.reshape(-1) for bound in space.bounds())
    names, units = space.names or ("",) * space.size, space.units or ("",) * space.size
    return [
        (str(index), names[index], units[index], f"{low[index]:g}", f"{high[index]:g}") for index in range(space.size)
    ]


def _action_rule(manifest: Manifest) -> str:
    if "q_values" in {output.name for output in manifest.outputs}:
        return "The action is the one with the largest of `q_values`; there is no distribution to sample from."
    transform = manifest.action_transform
    if transform.splits:
        parts = ", ".join(map(str, transform.splits))
        return f"`logits` are parts of {parts}; the action is the largest of each. Sample from each part's softmax."
    if transform.kind == "threshold":
        return "The action is 1 where `logits` are above 0; sample 1 with the probability sigmoid(`logits`)."
    if transform.kind == "argmax" and "logits" not in {output.name for output in manifest.outputs}:
        return "The action is a choice; there is no distribution to sample from."
    if transform.kind == "argmax":
        return "The action is the one with the largest of `logits`; sample from their softmax to act at random."
    if transform.kind == "tanh":
        return (
            "The action is tanh(`mean`), mapped from [-1, 1] to the bounds (a dimension without two finite bounds is "
            "passed through); sample a Gaussian of `mean` and exp(`log_std`) before the tanh to act at random."
        )
    if not {"mean", "log_std"} <= {output.name for output in manifest.outputs}:
        return "The action is in the environment's units and bounds; there is no distribution to sample from."
    if transform.kind == "clip":
        return (
            "The action is `mean`, clipped to the bounds; sample a Gaussian of `mean` and exp(`log_std`) before the "
            "clip to act at random."
        )
    return (
        "The action is `mean`, clipped to [-1, 1] and mapped to the bounds (a dimension without two finite bounds is "
        "passed through); sample a Gaussian of `mean` and exp(`log_std`) before the clip to act at random."
    )


def _returns(manifest: Manifest, trainer: ReturnStatistics | None) -> str:
    measured = {"trainer (Paddle)": trainer} if trainer else {}
    measured |= {name: info.measured_return for name, info in manifest.precisions.items() if info.measured_return}
    rows = []
    for name, played in measured.items():
        width = half_width(played.std, played.episodes)
        interval = "–" if width is None else f"±{width:.2f}"
        figures = (f"{played.mean:.2f}", interval, f"{played.std:.2f}", f"{played.min:.2f}", f"{played.max:.2f}")
        rows.append((name, *figures, str(played.episodes)))
    first = next(iter(measured.values())).seed
    return (
        f"Undiscounted, whole episodes, deterministic actions; episode k starts from seed {first} + k, the same for "
        "each row.\n\n" + _table(("policy", "mean", "95 % interval", "std", "lowest", "highest", "episodes"), rows)
    )


def _precisions(manifest: Manifest, sizes: Mapping[str, int]) -> str:
    rows = [
        (
            name,
            f"`{info.file}`",
            f"{sizes[info.file]:,}",
            "–" if info.action_agreement is None else f"{info.action_agreement:.4f}",
            f"{info.tolerance:.2g}",
        )
        for name, info in manifest.precisions.items()
    ]
    table = _table(("precision", "file", "bytes", "action agreement", "golden tolerance"), rows)
    text = (
        "Agreement with the trainer on visited observations: the share of equal actions (of choices), or 1 - mean "
        "|difference| over the action's range (Box)."
    )
    trt = " `int8-trt` is int8 in the form that TensorRT takes." if "int8-trt" in manifest.precisions else ""
    return f"{table}\n\n{text}{trt}"


def _proof(manifest: Manifest) -> str:
    parity = manifest.parity
    if parity is None:
        return "\n".join([*(f"- Not checked: {each}" for each in manifest.not_checked), f"- {_OPENING}"])
    return (
        f"`policy.onnx` was compared with the trainer on {parity.observations} observations in batches of 1, 2, 7 and "
        f"64. The largest difference, over max(1, largest magnitude in the row), is {parity.worst_visited:.2g} on "
        f"visited observations ({parity.tolerance:g} is allowed) and {parity.worst_extreme:.2g} on samples around the "
        f"bounds, zeros and ±1e6. {_OPENING}"
    )


def _use(manifest: Manifest, example: Leaves) -> str:
    value = _literal(manifest.observation_space, example)
    body = f"'{{\"observation\": {value}}}'" if value else '@body.json   # {"observation": …}'
    given = value or "observation"
    name = manifest.name
    return (
        "Over HTTP:\n\n```\n"
        "paddleport serve --models models --port 8000\n"
        f"curl -s http://127.0.0.1:8000/v1/policies/{name}/act -H 'Content-Type: application/json' \\\n"
        f"  -d {body}\n"
        "```\n\nIn Python, in process or from a server:\n\n```python\n"
        "from paddleport import Client, Policy\n\n"
        f'Policy.load("models/{name}/{manifest.version}").act({given})\n'
        f'Client("http://127.0.0.1:8000").act("{name}", {given})\n'
        f"```{_c_call(manifest)}"
    )


def _c_call(manifest: Manifest) -> str:
    """How a device calls it; nothing where the C target takes no such policy."""
    if not isinstance(manifest.observation_space, Box) or not isinstance(manifest.action_space, Box | Discrete):
        return ""
    command = f"paddleport edge models/{manifest.name}/{manifest.version} --target c --out build/edge"
    return (
        f"\n\nIn C, on a device (`{command}` writes `policy.h` and `policy.c`):\n\n```c\n"
        '#include "policy.h"\n\n'
        "policy_obs_t obs[POLICY_OBS_SIZE]; /* in the order of the table above */\n"
        "policy_action_t action[POLICY_ACTION_SIZE];\n"
        "if (policy_act(obs, action) != POLICY_OK) { /* keep the action from before */ }\n```"
    )


def _literal(space: Space, example: Leaves) -> str | None:
    """One observation as JSON, which Python reads too; None where it is too long to show."""
    if sum(array.size for array in example.values()) > _INLINE:
        return None
    return json.dumps(_nested(space, example, OBSERVATION))


def _nested(space: Space, example: Leaves, name: str) -> Any:  # noqa: ANN401 - nested as the space is
    if isinstance(space, DictSpace):
        return {key: _nested(part, example, f"{name}.{key}") for key, part in space.spaces.items()}
    if isinstance(space, TupleSpace):
        return [_nested(part, example, f"{name}.{index}") for index, part in enumerate(space.spaces)]
    array = example[name]
    return (array.astype(np.float64).round(3) if array.dtype.kind == "f" else array).tolist()


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    listed = list(rows)
    lines = [head, ["---"] * len(head), *listed[:_ROWS]]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return text if len(listed) <= _ROWS else f"{text}\n\n… and {len(listed) - _ROWS} more, as in `manifest.json`."
