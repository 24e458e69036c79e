"""`paddleport inspect`: what a bundle says of itself, for a person or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from paddleport import options
from paddleport.bundle import Bundle
from paddleport.manifest import Manifest
from paddleport.options import Flag
from paddleport.spaces import describe


@dataclass(frozen=True)
class Options:
    """What to inspect."""

    bundle: Annotated[str, tyro.conf.Positional]
    """A bundle's folder, or a policy's folder (its newest version is taken)."""
    json: Flag = False
    """Print the whole manifest as JSON."""


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "inspect", argv, "Verify a bundle's files and show its manifest.")


def run(chosen: Options) -> Manifest:
    """The manifest of a bundle whose files are whole.

    Raises:
        ArtifactError: there is no bundle, or it is damaged.
    """
    return Bundle.open(chosen.bundle, replay=False).manifest


def show(manifest: Manifest) -> None:
    """Print the manifest as tables."""
    console = Console(markup=False, emoji=False)  # "[batch, 2]" is meant as it stands
    table = Table(title=f"{manifest.name} version {manifest.version}", show_header=False, title_justify="left")
    for label, text in _facts(manifest):
        table.add_row(label, text)
    console.print(table)
    console.print(_precisions(manifest))


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    source = manifest.provenance
    outputs = ", ".join(f"{output.name} {['batch', *output.shape]}".replace("'", "") for output in manifest.outputs)
    return [
        ("algorithm", manifest.algorithm),
        ("environment", manifest.environment.id),
        ("observation", describe(manifest.observation_space)),
        ("action", f"{describe(manifest.action_space)} ({manifest.action_transform.kind})"),
        ("outputs", outputs),
        ("opset, IR", f"{manifest.opset}, {manifest.ir_version}"),
        ("trained", f"{source.step} steps, seed {source.seed}, run {source.run_id}" if source.run_id else "elsewhere"),
        ("exported", source.created),
        ("parity", _parity(manifest)),
        *(("not checked", sentence) for sentence in manifest.not_checked),
    ]


def _parity(manifest: Manifest) -> str:
    proof = manifest.parity
    return (
        f"within {proof.worst_visited:.2g} on {proof.observations} observations" if proof else "not compared: adopted"
    )


def _precisions(manifest: Manifest) -> Table:
    table = Table("precision", "file", "bytes", "mean return ± std (episodes)", "agreement")
    for name, info in manifest.precisions.items():
        played = info.measured_return
        returns = f"{played.mean:.1f} ± {played.std:.1f} ({played.episodes})" if played else "–"
        agreement = "–" if info.action_agreement is None else f"{info.action_agreement:.4f}"
        table.add_row(name, info.file, str(manifest.files[info.file].size), returns, agreement)
    return table
