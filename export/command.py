"""`paddleport export`: a run's policy as a bundle, proven equal to what was trained before it appears."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from export.convert import converting
from paddleport import options
from paddleport.checkpoint import Checkpoint, Run
from paddleport.errors import ArtifactError, MissingExtraError, UsageError
from paddleport.manifest import Parity, ReturnStatistics, check_name
from paddleport.options import Flag
from quantize.scales import METHODS, Quantized, folder_of
from train.configuration import check_environment_named
from train.runtime import load_paddle

if TYPE_CHECKING:
    from export.pipeline import Outcome

_DESCRIPTION = """Publish a run's policy as a bundle of ONNX files.

What is not equal to the trainer's policy, or earns less, is not published."""


@dataclass(frozen=True)
class Options:
    """What to export, and where to."""

    run_dir: Annotated[str, tyro.conf.Positional]
    """A run directory, made by paddleport train."""
    name: str
    """What to call the policy: its folder in the models folder, and its name on a server."""
    models: str = "models"
    """The models folder; the bundle appears in it as NAME/<next integer>."""
    checkpoint: str = ""
    """best, last or step-N; left out, the best one, or the last where there is no best."""
    quantized: Literal["auto", "none", "ptq", "qat"] = "auto"
    """Which scales to write the int8 files from: auto takes the newest of paddleport quantize, where there are any."""
    fp16: Flag = False
    """Write a float16 file too, for GPUs; its inputs and outputs keep their types."""
    episodes: int = 20
    """Episodes to play with the trainer's policy and with every ONNX file."""
    seed: int = 7
    """Seed of the first episode."""
    conversion_limit: float = 120.0
    """Seconds of processor time that paddle2onnx may take."""
    trust_code: Flag = False
    """Import the trunk that the checkpoint names, where it names one of its maker's own: that runs its code."""
    json: Flag = False
    """Print the result as JSON on stdout; progress goes to stderr."""


class PrecisionResult(msgspec.Struct, frozen=True):
    """One ONNX file of the bundle."""

    file: str
    size: int
    returns: ReturnStatistics | None
    agreement: float | None


class Result(msgspec.Struct, frozen=True):
    """What was published."""

    bundle: str
    name: str
    version: int
    step: int
    trainer: ReturnStatistics
    """Returns of the policy in Paddle, on the same episodes as the files'."""
    precisions: dict[str, PrecisionResult]
    left_out: dict[str, str]
    """Files that did not pass and that the others do without, by precision, with what was wrong."""
    parity: Parity
    seconds: float


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "export", argv, _DESCRIPTION)


def run(chosen: Options) -> Result:
    """Export a run's policy.

    Raises:
        GateError: the policy cannot be converted, or a file is not equal enough to what was trained.
        ArtifactError: the run, the checkpoint or the scales are missing, damaged, or do not belong together.
        UsageError: an option is out of range.
        MissingExtraError: paddle2onnx is not installed.
    """
    began = time.monotonic()
    _check(chosen)
    checkpoint = Run(chosen.run_dir).checkpoint(chosen.checkpoint or None)
    check_environment_named(Run(chosen.run_dir), checkpoint)
    if importlib.util.find_spec("paddle2onnx") is None:  # the child process needs it, and could not say so as well
        raise MissingExtraError("paddle2onnx", "export")
    scales = _quantized(chosen, checkpoint)
    # Started before Paddle is imported here, which takes as long as importing it in the child.
    with converting(checkpoint.path, limit_s=chosen.conversion_limit, trust_code=chosen.trust_code) as conversion:
        load_paddle()
        from export import pipeline  # only now: Paddle reads its settings when it is first imported

        models = Path(chosen.models)
        playing = chosen.episodes, chosen.seed
        request = pipeline.Request(
            checkpoint, scales, chosen.name, models, *playing, half=chosen.fp16, trust_code=chosen.trust_code
        )
        outcome = pipeline.export_run(request, conversion)
    return _result(outcome, time.monotonic() - began)


def show(result: Result) -> None:
    """Print what was published as a table."""
    console = Console(emoji=False, markup=False)
    table = Table(
        "policy",
        "file",
        "bytes",
        "mean return ± std (episodes)",
        "agreement",
        title=result.bundle,
        title_justify="left",
    )
    table.add_row("trainer", "", "", _played(result.trainer), "")
    for name, info in result.precisions.items():
        agreement = "–" if info.agreement is None else f"{info.agreement:.4f}"
        table.add_row(name, info.file, str(info.size), _played(info.returns), agreement)
    console.print(table)
    for name, why in result.left_out.items():
        console.print(f"There is no {name} file. {why}.", highlight=False, soft_wrap=True)
    parity = result.parity
    console.print(
        f"Equal to the trainer within {parity.worst_visited:.2g} on visited observations "
        f"({parity.observations} observations compared). {result.seconds} s.",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"Next: paddleport serve --models {Path(result.bundle).parent.parent}", soft_wrap=True)


def _result(outcome: Outcome, seconds: float) -> Result:
    manifest = outcome.manifest
    precisions = {
        name: PrecisionResult(
            file=info.file,
            size=(outcome.path / info.file).stat().st_size,
            returns=info.measured_return,
            agreement=info.action_agreement,
        )
        for name, info in manifest.precisions.items()
    }
    return Result(
        bundle=str(outcome.path),
        name=manifest.name,
        version=manifest.version,
        step=manifest.provenance.step,
        trainer=outcome.trainer,
        precisions=precisions,
        left_out=outcome.left_out,
        parity=outcome.parity,
        seconds=round(seconds, 2),
    )


def _quantized(chosen: Options, checkpoint: Checkpoint) -> Quantized | None:
    """The scales that the options mean; None where there are none, or none are wanted."""
    if chosen.quantized == "none":
        return None
    methods = METHODS if chosen.quantized == "auto" else (chosen.quantized,)
    folders = [folder for method in methods if (folder := folder_of(Path(chosen.run_dir), method)).exists()]
    if not folders:
        if chosen.quantized == "auto":
            return None
        raise ArtifactError(
            f"{chosen.run_dir} was not quantized by {chosen.quantized}",
            todo=f"Do it with: paddleport quantize RUN_DIR --method {chosen.quantized}",
        )
    found = sorted((Quantized.open(folder) for folder in folders), key=lambda each: each.document.created)
    fitting = [each for each in found if each.document.checkpoint_sha256 == checkpoint.sha256]
    newest = (fitting or found)[-1]
    newest.check_source(checkpoint)
    return newest


def _check(chosen: Options) -> None:
    check_name(chosen.name)
    if chosen.episodes < 2:
        todo = "One episode tells nothing of how far a mean may be off"
        raise UsageError("--episodes is too small", expected="at least 2", got=chosen.episodes, todo=todo)
    if chosen.seed < 0:
        raise UsageError("--seed is negative", expected="0 or more", got=chosen.seed)
    if Path(chosen.models).exists() and not Path(chosen.models).is_dir():
        raise UsageError("--models is no folder", expected="a folder, or a path where none is yet", got=chosen.models)
    if not chosen.conversion_limit > 0:
        raise UsageError("--conversion-limit is too small", expected="more than 0 s", got=chosen.conversion_limit)


def _played(played: ReturnStatistics | None) -> str:
    return f"{played.mean:.1f} ± {played.std:.1f} ({played.episodes})" if played else "–"
