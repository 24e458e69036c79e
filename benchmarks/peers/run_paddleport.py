"""Paddleport on a task of the comparison, by the trainer that `paddleport train` runs.

The trainer reports as it always does (metrics.jsonl, VisualDL), in a folder that is thrown away. It checkpoints and
evaluates once, behind the last step, where the clocks have stopped; the peers do neither.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from meter import Meter, begin


def main() -> None:
    """Measure."""
    meter = begin("paddleport")
    from train.runtime import load_paddle

    load_paddle()
    with tempfile.TemporaryDirectory() as folder:
        learn(meter, Path(folder) / "run")
    names = {name: version(name) for name in ("paddlepaddle", "gymnasium", "numpy")}
    meter.finish({"paddleport": os.environ.get("PADDLEPORT_COMMIT", "unknown"), **names})


def learn(meter: Meter, folder: Path) -> None:
    """Train in `folder`, with the meter told about every iteration."""
    from train import configuration
    from train.devices import choose_device
    from train.environments import describe_environment, make_vector
    from train.trainer import Trainer

    task = meter.task
    options = {
        "algo": task.algo,
        "env": task.env,
        "seed": meter.seed,
        "total_steps": meter.steps,
        "run_dir": str(folder),
        "checkpoint_every": meter.steps,
        "evaluation_episodes": 1,
    }
    config = configuration.of_run({**options, **task.settings}, "benchmarks/peers/tasks.py")
    configuration.check(config)
    folder.mkdir()
    with contextlib.closing(make_vector(task.env, config.algorithm.num_envs, config.run.vector)) as envs:
        trainer = Trainer(config, folder, choose_device(config.run), describe_environment(task.env), envs)
        trainer.resume_or_start("benchmark")
        _watch(trainer, meter)
        trainer.run(None)


def _watch(trainer: object, meter: Meter) -> None:
    """Let the meter see the algorithm's iterations and the episodes that end in them."""
    algorithm = trainer.algorithm  # type: ignore[attr-defined]
    iterate, ended = algorithm.iterate, algorithm.stepper.ended
    returns: list[float] = []

    def ended_and_kept() -> tuple[list[float], list[int]]:
        episodes: tuple[list[float], list[int]] = ended()
        returns.extend(episodes[0])
        return episodes

    def iterate_and_tell(progress: float) -> dict[str, float | None]:
        if meter.last is None:
            meter.start()
        metrics: dict[str, float | None] = iterate(progress)
        meter.phase(algorithm.step, algorithm.updates > 0, returns)
        returns.clear()
        return metrics

    algorithm.iterate, algorithm.stepper.ended = iterate_and_tell, ended_and_kept


if __name__ == "__main__":
    main()
