"""`paddleport diff`: what changed between two bundles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from paddleport import options
from paddleport.bundle import Bundle, row_error
from paddleport.manifest import Manifest
from paddleport.options import Flag
from paddleport.spaces import Array, Box, Leaves, Space, joined

_MISSING_BOUNDS = {"low": "-∞", "high": "∞"}
"""What a Box has in place of null, by the bound's name."""
_WIDEST_NAME = 32
"""So much of a terminal's width the names of what changed may take before they are broken in two."""
_DESCRIPTION = """Show what changed from one bundle to another: spaces, precisions, returns, and how alike they act.

Both policies answer the golden observations of both bundles, where their observations have the same form."""


@dataclass(frozen=True)
class Options:
    """What to compare."""

    before: Annotated[str, tyro.conf.Positional]
    """A bundle's folder, or a policy's folder (its newest version is taken)."""
    after: Annotated[str, tyro.conf.Positional]
    """Another one."""
    json: Flag = False
    """Print the result as JSON on stdout."""


class Change(msgspec.Struct, frozen=True):
    """One entry of the manifests, as text; null where there is none."""

    what: str
    before: str | None
    after: str | None


class Agreement(msgspec.Struct, frozen=True):
    """How alike one precision of both acts on the golden observations of both."""

    precision: str
    observations: int
    actions: float
    """Discrete: the share of equal actions. Box: 1 - mean |difference| over the range of each dimension, or over the
    largest magnitude where a dimension has no two bounds."""
    worst_output: dict[str, float]
    """Largest difference of each output that both have, over max(1, largest magnitude in the row)."""


class Difference(msgspec.Struct, frozen=True):
    """What changed."""

    before: str
    after: str
    changes: list[Change]
    agreement: list[Agreement]
    not_compared: str
    """Why their actions could not be compared; empty where they were."""


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "diff", argv, _DESCRIPTION)


def run(chosen: Options) -> Difference:
    """Compare two bundles.

    Raises:
        ArtifactError: one of them is missing or damaged.
    """
    before, after = Bundle.open(chosen.before), Bundle.open(chosen.after)
    one, other = _facts(before.manifest), _facts(after.manifest)
    changes = [
        Change(what, one.get(what), other.get(what)) for what in {**one, **other} if one.get(what) != other.get(what)
    ]
    reason = _incomparable(before.manifest, after.manifest)
    agreement = [] if reason else _agreements(before, after)
    return Difference(str(before.path), str(after.path), changes, agreement, reason)


def show(result: Difference) -> None:
    """Print what changed as tables."""
    console = Console(markup=False, emoji=False, highlight=False)
    if result.changes:
        title = f"{result.before} → {result.after}"
        table = Table(title=title, title_justify="left")
        widest = max(len(change.what) for change in result.changes)
        table.add_column("what", overflow="fold", min_width=min(widest, _WIDEST_NAME))
        table.add_column("before", overflow="fold")
        table.add_column("after", overflow="fold")
        for change in result.changes:
            table.add_row(change.what, change.before or "–", change.after or "–")
        console.print(table)
    else:
        console.print(f"{result.before} and {result.after} say the same of themselves.", soft_wrap=True)
    if result.not_compared:
        console.print(f"Their actions were not compared: {result.not_compared}.", soft_wrap=True)
        return
    table = Table("precision", "observations", "actions agree", "largest difference of outputs")
    for each in result.agreement:
        worst = ", ".join(f"{name} {value:.2g}" for name, value in each.worst_output.items()) or "–"
        table.add_row(each.precision, str(each.observations), f"{each.actions:.4f}", worst)
    console.print(table)


def _facts(manifest: Manifest) -> dict[str, str]:
    """What is worth comparing, flat: `precisions.int8.measured_return.mean` and so on."""
    source = manifest.provenance
    plain: dict[str, Any] = msgspec.to_builtins({
        "name": manifest.name,
        "version": manifest.version,
        "algorithm": manifest.algorithm,
        "environment": manifest.environment,
        "observation": _space(manifest.observation_space),
        "action": _space(manifest.action_space),
        "action_transform": manifest.action_transform.kind,
        "outputs": [output.name for output in manifest.outputs],
        "opset": manifest.opset,
        "ir_version": manifest.ir_version,
        "precisions": {
            name: {
                "bytes": manifest.files[info.file].size,
                "sha256": manifest.files[info.file].sha256[:12],
                "return": _played(info.measured_return),
                "agreement with the trainer": info.action_agreement,
            }
            for name, info in manifest.precisions.items()
        },
        "quantization": _quantization(manifest),
        "trained": {"run": source.run_id, "step": source.step, "seed": source.seed,
                    "checkpoint": source.checkpoint_sha256[:12]},
        "config": source.config,
        "versions": source.versions,
    })  # fmt: skip
    return _flat(plain, "")


def _space(space: Space) -> object:
    return msgspec.to_builtins(space)


def _played(played: Any) -> str | None:  # noqa: ANN401 - statistics or None
    return f"{played.mean:.2f} ± {played.std:.2f} ({played.episodes} episodes)" if played else None


def _quantization(manifest: Manifest) -> dict[str, Any]:
    found = manifest.quantization or {}
    return {key: found.get(key) for key in ("method", "observer") if key in found}


def _flat(value: Any, where: str) -> dict[str, str]:  # noqa: ANN401 - what JSON can hold
    if not isinstance(value, dict):
        missing = _MISSING_BOUNDS.get(where.rpartition(".")[2])
        return {} if value is None and not missing else {where: _text(value, missing or "none")}
    found: dict[str, str] = {}
    for key, part in value.items():
        found |= _flat(part, f"{where}.{key}" if where else str(key))
    return found


def _text(value: Any, missing: str) -> str:  # noqa: ANN401 - what JSON can hold
    """A value as people write it; `missing` stands for null."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(each, missing) for each in value)}]"
    if value is None:
        return missing
    return f"{value:g}" if isinstance(value, float) else str(value)


def _incomparable(before: Manifest, after: Manifest) -> str:
    if before.inputs != after.inputs:
        return "they take other observations"
    actions = [(type(each.action_space), [o for o in each.outputs if o.name == "action"]) for each in (before, after)]
    return "" if actions[0] == actions[1] else "they give other actions"


def _agreements(before: Bundle, after: Bundle) -> list[Agreement]:
    names = [given.name for given in before.manifest.inputs]
    obs = joined([{name: bundle.golden()[name] for name in names} for bundle in (before, after)])
    shared = [name for name in before.manifest.precisions if name in after.manifest.precisions]
    return [_agreement(before, after, precision, obs) for precision in shared]


def _agreement(before: Bundle, after: Bundle, precision: str, obs: Leaves) -> Agreement:
    offered = {output.name: output.shape for output in after.manifest.outputs}
    outputs = [out.name for out in before.manifest.outputs if offered.get(out.name) == out.shape]
    one, other = (
        dict(zip(outputs, bundle.session(precision).run(obs, outputs), strict=True)) for bundle in (before, after)
    )
    worst = {name: row_error(other[name], one[name]) for name in outputs if one[name].dtype.kind == "f"}
    actions = _alike(before.manifest.action_space, one["action"], other["action"])
    return Agreement(precision, len(one["action"]), actions, worst)


def _alike(space: Space, one: Array, other: Array) -> float:
    if not isinstance(space, Box):
        return float((one == other).reshape(len(one), -1).all(axis=1).mean())
    low, high = space.bounds()
    largest = np.maximum(1.0, np.maximum(np.abs(one), np.abs(other)).max(axis=0))
    span = np.where(np.isfinite(high - low) & (high > low), high - low, largest)
    return float(1.0 - (np.abs(one.astype(np.float64) - other) / span).mean())
