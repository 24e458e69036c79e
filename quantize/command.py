"""`paddleport quantize`: int8 scales for a run's policy, decided by PaddleSlim and bounded by a gate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from paddleport import options
from paddleport.checkpoint import Run
from paddleport.errors import UsageError
from paddleport.manifest import ReturnStatistics
from paddleport.options import Flag
from train.configuration import check_environment_named
from train.runtime import load_paddle

_DESCRIPTION = """Decide int8 scales for a run's policy, and measure what they cost.

The result lies in RUN_DIR/quantized/METHOD, where paddleport export finds it. A policy that suffers is refused."""


@dataclass(frozen=True)
class Options:
    """What to quantize."""

    run_dir: Annotated[str, tyro.conf.Positional]
    """A run directory, made by paddleport train."""
    method: Literal["ptq"] = "ptq"
    """How: ptq decides the scales after training, on observations that the policy visits itself."""
    observer: Literal["absmax", "avg", "mse", "emd", "hist", "kl"] = "absmax"
    """PaddleSlim's observer of activations; kl takes some ten seconds, the others less than one.
    All but absmax cut off what is rare, which a policy may need most."""
    calibration_episodes: int = 10
    """Episodes that the policy plays to show the observer its observations."""
    checkpoint: str = ""
    """best, last or step-N; left out, the best one, or the last where there is no best."""
    episodes: int = 20
    """Episodes that the gate plays with the float and with the quantized policy."""
    seed: int = 7
    """Seed of the first episode that the gate plays."""
    trust_code: Flag = False
    """Import the trunk that the checkpoint names, where it names one of its maker's own: that runs its code."""
    json: Flag = False
    """Print the result as JSON."""


class Result(msgspec.Struct, frozen=True):
    """What came of it."""

    path: str
    method: str
    observer: str
    step: int
    checkpoint_sha256: str
    layers: int
    calibration_episodes: int
    calibration_observations: int
    agreement: float
    float32: ReturnStatistics
    int8: ReturnStatistics
    """Returns of the policy fake-quantized in Paddle."""
    return_drop: float
    return_interval: float | None
    seconds: float


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "quantize", argv, _DESCRIPTION)


def run(chosen: Options) -> Result:
    """Quantize a run's policy.

    Raises:
        GateError: the quantized policy is too far from the float one.
        ArtifactError: the run or the checkpoint is missing or damaged.
        UsageError: an option is out of range.
    """
    began = time.monotonic()
    _check(chosen)
    checkpoint = Run(chosen.run_dir).checkpoint(chosen.checkpoint or None)
    check_environment_named(Run(chosen.run_dir), checkpoint)
    load_paddle()
    from quantize import pipeline  # only now: Paddle reads its settings when it is first imported

    request = pipeline.Request(
        run=Path(chosen.run_dir),
        checkpoint=checkpoint,
        method=chosen.method,
        observer=chosen.observer,
        calibration_episodes=chosen.calibration_episodes,
        episodes=chosen.episodes,
        seed=chosen.seed,
        trust_code=chosen.trust_code,
    )
    path, document = pipeline.quantize_run(request)
    returns = document.report.returns
    return Result(
        path=str(path),
        method=document.method,
        observer=document.observer,
        step=document.step,
        checkpoint_sha256=document.checkpoint_sha256,
        layers=len(document.layers),
        calibration_episodes=document.calibration_episodes,
        calibration_observations=document.calibration_observations,
        agreement=document.report.agreement,
        float32=returns.reference,
        int8=returns.candidate,
        return_drop=returns.drop,
        return_interval=returns.interval,
        seconds=round(time.monotonic() - began, 2),
    )


def show(result: Result) -> None:
    """Print the result as a table."""
    table = Table(title=f"{result.path} ({result.method}, {result.observer})", show_header=False, title_justify="left")
    table.add_row("checkpoint", f"step {result.step}, {result.checkpoint_sha256[:12]}…")
    table.add_row("layers", str(result.layers))
    calibration = f"{result.calibration_observations} observations of {result.calibration_episodes} episodes"
    table.add_row("calibration", calibration)
    table.add_row("agreement", f"{result.agreement:.4f}")
    for name, played in (("float32", result.float32), ("int8, in Paddle", result.int8)):
        table.add_row(f"return, {name}", f"{played.mean:.1f} ± {played.std:.1f} ({played.episodes} episodes)")
    console = Console(emoji=False, markup=False)
    console.print(table)
    run = Path(result.path).parent.parent
    console.print(f"{result.seconds} s. Next: paddleport export {run} --name NAME --models models", soft_wrap=True)


def _check(chosen: Options) -> None:
    if chosen.calibration_episodes < 1:
        raise UsageError("--calibration-episodes is too small", expected="at least 1", got=chosen.calibration_episodes)
    if chosen.episodes < 2:
        todo = "One episode tells nothing of how far a mean may be off"
        raise UsageError("--episodes is too small", expected="at least 2", got=chosen.episodes, todo=todo)
    if chosen.seed < 0:
        raise UsageError("--seed is negative", expected="0 or more", got=chosen.seed)
