"""`paddleport train`: a policy from an environment."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from paddleport import options
from paddleport.checkpoint import Run
from paddleport.errors import UsageError
from train import configuration
from train.config import AlgorithmConfig, RunOptions, TrainConfig
from train.configuration import CONFIG
from train.runtime import load_paddle

if TYPE_CHECKING:
    from train.trainer import Training

_DESCRIPTION = """Train a policy. The run directory gets checkpoints, metrics.jsonl and VisualDL logs.

The options and defaults below are those of --algo for --env: name them beside --help to see others."""


def parse(argv: Sequence[str]) -> TrainConfig[AlgorithmConfig]:
    """Read the command line, in two passes: --algo, --env and --resume decide the defaults of everything else.

    Raises:
        UsageError: an unknown algorithm, an option that differs from the run to resume, or a trunk that only the run
            names and nobody trusts.
    """
    first = argparse.ArgumentParser(prog="paddleport train", add_help=False, allow_abbrev=False)
    first.add_argument("--algo", nargs="?", default="ppo", const="")
    first.add_argument("--env", nargs="?", default=None, const=RunOptions.env)
    first.add_argument("--run-dir", "--run_dir", nargs="?", default="", const="")
    first.add_argument("--trunk-class", "--trunk_class", nargs="?", default="", const="")
    first.add_argument("--resume", action="store_true")
    known, _ = first.parse_known_args(list(argv))
    env_id = known.env or RunOptions.env
    fresh = configuration.preset(known.algo, env_id)
    saved = _saved(known.run_dir) if known.resume and known.run_dir else None
    if known.resume and not saved and not known.env:
        raise UsageError(
            f"There is nothing to resume at {known.run_dir or 'a run directory that nobody named'}",
            expected="--run-dir with a run in it, or --env as well to start it there",
        )
    default = saved or fresh
    kind: Any = TrainConfig
    of_algorithm = kind[type(default.algorithm)]  # offers this algorithm's options alone
    chosen: TrainConfig[AlgorithmConfig] = options.parse(of_algorithm, "train", argv, _DESCRIPTION, default=default)
    if saved:
        _refuse_changes(saved, chosen)
        _refuse_distrusted(chosen, named=bool(known.trunk_class))
    return _with_run_dir(chosen)


def run(config: TrainConfig[AlgorithmConfig]) -> Training:
    """Train.

    Raises:
        UsageError, ArtifactError, TrainingError: see `train.trainer.train`.
    """
    load_paddle(config.run.threads)
    from train.trainer import train  # only now: Paddle reads its settings when it is first imported

    return train(config)


def show(training: Training) -> None:
    """Print what the training came to, and what to do next."""
    console = Console(markup=False, emoji=False, highlight=False)
    played = training.evaluation
    quality = f"{played.mean:.1f} ± {played.std:.1f} over {played.episodes} episodes" if played else "not evaluated"
    if played and training.best_mean_return is not None and training.best_mean_return > played.mean:
        quality += f"; the best checkpoint, which the next commands take, had {training.best_mean_return:.1f}"
    state = "finished" if training.finished else "stopped"
    console.print(
        f"{training.algorithm} on {training.environment}: {state} at step {training.step}, {quality}", soft_wrap=True
    )
    trust = " --trust-code" if training.trunk_class else ""
    resume = f"train --run-dir {training.run_dir} --resume{trust}"
    following = f"evaluate {training.run_dir}{trust}" if training.finished else resume
    console.print(f"Next: paddleport {following}", soft_wrap=True)


def _saved(run_dir: str) -> TrainConfig[AlgorithmConfig] | None:
    """The configuration of the run to resume; None where the folder is new, so that the run simply starts."""
    folder = Path(run_dir)
    if not folder.is_dir() or not any(entry.name != ".lock" for entry in folder.iterdir()):
        return None
    saved, _ = configuration.load(Run(folder).path / CONFIG)
    return saved


def _refuse_changes(saved: TrainConfig[AlgorithmConfig], chosen: TrainConfig[AlgorithmConfig]) -> None:
    changed = configuration.differences(configuration.to_mapping(saved), configuration.to_mapping(chosen))
    if changed:
        raise UsageError(
            "A resumed run continues exactly, with the options it was started with",
            got=", ".join(changed),
            todo="Leave these options out, or train in another --run-dir",
        )


def _refuse_distrusted(chosen: TrainConfig[AlgorithmConfig], *, named: bool) -> None:
    """Refuse a trunk that the run names and the command line does not: importing it runs its code."""
    if chosen.algorithm.trunk_class and not (chosen.run.trust_code or named):
        raise UsageError(
            f"{chosen.run.run_dir} names a trunk of its maker's own, and importing it runs its code",
            got=chosen.algorithm.trunk_class,
            todo="Add --trust-code if you trust whoever made this run",
        )


def _with_run_dir(config: TrainConfig[AlgorithmConfig]) -> TrainConfig[AlgorithmConfig]:
    if config.run.run_dir:
        return config
    name = f"{config.run.algo}-{config.run.env}-{config.run.seed}".replace("/", "_").replace(":", "_")
    return dataclasses.replace(config, run=dataclasses.replace(config.run, run_dir=str(Path("runs") / name)))
