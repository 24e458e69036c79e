"""`paddleport quantize`: int8 scales for a run's policy, decided by PaddleSlim and bounded by a gate."""

from __future__ import annotations

import math
import sys
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
from quantize.gate import Tolerance, half_width
from quantize.scales import LayerError
from train.configuration import check_environment_named
from train.runtime import load_paddle

_DESCRIPTION = """Decide int8 scales for a run's policy, and measure what they cost.

The result lies in RUN_DIR/quantized/METHOD, where paddleport export finds it. A policy that suffers is refused."""
_WORST = 4
_MOST_ROUNDS = 1000


@dataclass(frozen=True)
class Options:
    """What to quantize."""

    run_dir: Annotated[str, tyro.conf.Positional]
    """A run directory, made by paddleport train."""
    method: Literal["ptq", "qat", "auto"] = "ptq"
    """How: ptq decides the scales after training, on observations that the policy visits itself.
    qat lets a fake-quantized student learn to act as the policy does, on states that it visits itself; some minutes.
    auto does qat only if ptq is refused."""
    observer: Literal["auto", "absmax", "avg", "mse", "emd", "hist", "kl"] = "absmax"
    """PaddleSlim's observer of activations; kl takes some ten seconds, the others less than one.
    All but absmax cut off what is rare, which a policy may need most.
    auto tries them all and takes the one whose actions agree best."""
    calibration_episodes: int = 10
    """Episodes that the policy plays to show the observer its observations, and that a student plays in each round."""
    calibration: str = ""
    """An .npz with observations to show the observer instead: an array [n, …] for each input of the policy, by name."""
    keep_float: tuple[str, ...] = ()
    """Layers to leave in float, by name, such as policy_head; what is within them stays in float too.
    auto leaves as few as it takes to pass."""
    qat_rounds: int = 8
    """Rounds of qat: in each the student plays, and learns on all that was seen."""
    qat_updates: int = 0
    """Gradient steps in a round; 0 for 400, or for 60 where the policy sees images."""
    qat_learning_rate: float = 3e-4
    """Adam's, falling to zero over all rounds."""
    resume: Flag = False
    """Go on with the qat that was interrupted, from its last whole round, with the same end."""
    min_agreement: float = 0.98
    """The gate: smallest share of equal actions, or 1 - mean difference over the range of a Box.
    paddleport export goes by the same tolerance."""
    max_drop: float = 0.02
    """The gate: largest drop of the mean return, as a share of it; one within the 95 % interval passes anyway."""
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
    kept_float: tuple[str, ...]
    calibration_episodes: int
    calibration_observations: int
    agreement: float
    float32: ReturnStatistics
    int8: ReturnStatistics
    """Returns of the policy fake-quantized in Paddle."""
    return_drop: float
    return_interval: float | None
    layer_errors: dict[str, LayerError]
    """By structural path."""
    tried: dict[str, float]
    """Agreement by observer, where several were tried."""
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
        calibration_file=Path(chosen.calibration) if chosen.calibration else None,
        keep_float=chosen.keep_float,
        qat=pipeline.QatOptions(
            rounds=chosen.qat_rounds,
            updates=chosen.qat_updates,
            learning_rate=chosen.qat_learning_rate,
            resume=chosen.resume,
        ),
        tolerance=Tolerance(agreement=chosen.min_agreement, drop=chosen.max_drop),
    )
    try:
        path, document = pipeline.quantize_run(request)
    except KeyboardInterrupt:
        if (kept := pipeline.unfinished(request.run)).is_dir() and chosen.method != "ptq":
            print(f"{kept} holds the rounds that were done; go on with --resume.", file=sys.stderr)
        raise
    returns = document.report.returns
    return Result(
        path=str(path),
        method=document.method,
        observer=document.observer,
        step=document.step,
        checkpoint_sha256=document.checkpoint_sha256,
        layers=len(document.layers),
        kept_float=document.kept_float,
        calibration_episodes=document.calibration_episodes,
        calibration_observations=document.calibration_observations,
        agreement=document.report.agreement,
        float32=returns.reference,
        int8=returns.candidate,
        return_drop=returns.drop,
        return_interval=returns.interval,
        layer_errors=document.report.layer_errors,
        tried=document.report.tried,
        seconds=round(time.monotonic() - began, 2),
    )


def show(result: Result) -> None:
    """Print the result as a table."""
    table = Table(title=f"{result.path} ({result.method}, {result.observer})", show_header=False, title_justify="left")
    table.add_row("checkpoint", f"step {result.step}, {result.checkpoint_sha256[:12]}…")
    table.add_row("layers", str(result.layers))
    if result.kept_float:
        table.add_row("kept in float", ", ".join(result.kept_float))
    source = f" of {result.calibration_episodes} episodes" if result.calibration_episodes else ""
    table.add_row("calibration", f"{result.calibration_observations} observations{source}")
    if result.tried:
        table.add_row("tried", ", ".join(f"{name} {agreement:.4f}" for name, agreement in result.tried.items()))
    table.add_row("agreement", f"{result.agreement:.4f}")
    for name, played in (("float32", result.float32), ("int8, in Paddle", result.int8)):
        width = half_width(played.std, played.episodes) or 0.0
        shown = f"{played.mean:.1f}, 95 % within ± {width:.1f} ({played.episodes} episodes)"
        table.add_row(f"mean return, {name}", shown)
    worst = sorted(result.layer_errors.items(), key=lambda item: -item[1].error)[:_WORST]
    for path, layer in worst:
        table.add_row(f"error, {path}", f"{layer.error:.4f} of the output's deviation")
    if len(worst) < len(result.layer_errors):
        table.add_row("", f"the {len(worst)} worst of {len(result.layer_errors)}; --json has all")
    console = Console(emoji=False, markup=False)
    console.print(table)
    run = Path(result.path).parent.parent
    console.print(f"{result.seconds} s. Next: paddleport export {run} --name NAME --models models", soft_wrap=True)


def _check(chosen: Options) -> None:
    if chosen.episodes < 2:
        todo = "One episode tells nothing of how far a mean may be off"
        raise UsageError("--episodes is too small", expected="at least 2", got=chosen.episodes, todo=todo)
    ranges = {
        "--calibration-episodes": (chosen.calibration_episodes, 1, math.inf),
        "--qat-rounds": (chosen.qat_rounds, 1, _MOST_ROUNDS),
        "--qat-updates": (chosen.qat_updates, 0, math.inf),
        "--qat-learning-rate": (chosen.qat_learning_rate, 1e-12, 1.0),
        "--seed": (chosen.seed, 0, math.inf),
        "--min-agreement": (chosen.min_agreement, 0, 1),
        "--max-drop": (chosen.max_drop, 0, 1e6),
    }
    for name, (value, least, most) in ranges.items():
        if not least <= value <= most:
            expected = f"{least:g} to {most:g}" if most < math.inf else f"{least:g} or more"
            raise UsageError(f"{name} is out of range", expected=expected, got=value)
    if chosen.resume and chosen.method == "ptq":
        raise UsageError("Only qat is resumed", expected="--method qat or auto with --resume", got="--method ptq")
    if "auto" in chosen.keep_float and len(chosen.keep_float) > 1:
        raise UsageError("--keep-float takes names, or auto alone", got=" ".join(chosen.keep_float))
