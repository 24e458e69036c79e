"""`paddleport verify`: does a bundle hold what it claims, here and now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from paddleport import options
from paddleport.bundle import Bundle, replay_golden, versions_in
from paddleport.errors import ArtifactError
from paddleport.options import Flag

_DESCRIPTION = """Check a bundle's claim: its manifest's seal, every file's SHA-256, every golden vector computed anew.

Exits with 1 where anything does not hold. Give a policy's folder to look at all versions in it with --all, the ones
after a damaged one too."""


@dataclass(frozen=True)
class Options:
    """What to verify."""

    bundle: Annotated[str, tyro.conf.Positional]
    """A bundle's folder, or a policy's folder (its newest version is taken)."""
    all: Flag = False
    """All versions in a policy's folder."""
    json: Flag = False
    """Print the result as JSON on stdout."""


class Verified(msgspec.Struct, frozen=True):
    """What held of one bundle."""

    bundle: str
    name: str
    version: int
    files: int
    """How many have the SHA-256 that the manifest lists."""
    golden: int
    """How many golden observations every precision was asked again."""
    worst: dict[str, float]
    """For each precision, the largest difference to its golden outputs, in the measure of its tolerance."""
    tolerance: dict[str, float]
    not_checked: tuple[str, ...]
    """What the exporter could not check, in its words."""


class Damaged(msgspec.Struct, frozen=True):
    """A version that does not hold."""

    bundle: str
    error: str
    """What is wrong with it, in words."""


class Result(msgspec.Struct, frozen=True):
    """All bundles that were looked at."""

    bundles: list[Verified]
    """Those that hold."""
    damaged: list[Damaged]
    """Those that do not; empty without --all, where that is an error."""


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "verify", argv, _DESCRIPTION)


def run(chosen: Options) -> Result:
    """Verify a bundle, or all versions of a policy.

    Raises:
        ArtifactError: there is none; or, without --all, it is damaged or does not give its golden outputs.
    """
    if not chosen.all:
        return Result([_verified(chosen.bundle)], [])
    verdicts = [_verdict(path) for path in _paths(chosen.bundle)]
    return Result(
        [each for each in verdicts if isinstance(each, Verified)],
        [each for each in verdicts if isinstance(each, Damaged)],
    )


def exit_code(result: Result) -> int:
    """1 where a version is damaged."""
    return 1 if result.damaged else 0


def show(result: Result) -> None:
    """Print what held, and what did not."""
    console = Console(markup=False, emoji=False, highlight=False)
    for bundle in result.bundles:
        title = f"{bundle.name} version {bundle.version}: {bundle.files} files and the manifest are whole"
        table = Table("precision", "golden vectors", "largest difference", "allowed", title=title, title_justify="left")
        for precision, worst in bundle.worst.items():
            table.add_row(precision, str(bundle.golden), f"{worst:.2g}", f"{bundle.tolerance[precision]:.2g}")
        console.print(table)
        for sentence in bundle.not_checked:
            console.print(f"Not checked when it was made: {sentence}", soft_wrap=True)
    for each in result.damaged:
        console.print(f"Does not hold: {each.bundle}: {each.error}", soft_wrap=True)
    if result.damaged:
        count = len(result.damaged)
        console.print(f"{count} of {count + len(result.bundles)} versions do not hold.")


def _paths(folder: str) -> list[str]:
    versions = versions_in(folder)
    if not versions:
        raise ArtifactError(f"{folder} has no versions", expected="a policy's folder, with folders 1, 2, … in it")
    return [f"{folder}/{version}" for version in versions]


def _verdict(path: str) -> Verified | Damaged:
    try:
        return _verified(path)
    except (ArtifactError, OSError) as error:
        return Damaged(path, str(error))


def _verified(path: str) -> Verified:
    bundle = Bundle.open(path, replay=False)
    manifest = bundle.manifest
    worst = {name: replay_golden(bundle, name, bundle.session(name)) for name in manifest.precisions}
    return Verified(
        bundle=str(bundle.path),
        name=manifest.name,
        version=manifest.version,
        files=len(manifest.files),
        golden=len(bundle.golden()[manifest.inputs[0].name]),
        worst=worst,
        tolerance={name: info.tolerance for name, info in manifest.precisions.items()},
        not_checked=manifest.not_checked,
    )
