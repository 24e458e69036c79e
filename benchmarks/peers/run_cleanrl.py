"""CleanRL's own `ppo.py` and `dqn.py`, as its package has them, on a task of the comparison.

The package on the public index is 0.4.8 of 2021, for classic gym 0.21, so its CartPole-v1 is that one. The files run
unchanged, from where pip put them; the meter reads what they write to TensorBoard. What they cannot be told:

- ppo.py: the clip range stays (the task's falls), and actions of the whole rollout are stored as floats;
- dqn.py: 120×84 units, a squared error, and one update every second step instead of 128 every 256 steps.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from meter import Meter, begin

_MARKS = {"ppo": "charts/learning_rate", "dqn": "losses/td_loss"}
"""What each file writes behind its updates."""


def main() -> None:
    """Measure."""
    meter = begin("cleanrl")
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    _watch(meter)
    package = importlib.util.find_spec("cleanrl")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("cleanrl is not installed here: make bench-train makes an environment for it")
    script = Path(package.submodule_search_locations[0]) / f"{meter.task.algo}.py"
    sys.argv = [str(script), *(str(word) for pair in _arguments(meter).items() for word in pair)]
    said, sys.stdout = sys.stdout, sys.stderr  # the files print every episode
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # where they put their TensorBoard files
        runpy.run_path(str(script), run_name="__main__")
        os.chdir("/")
    sys.stdout = said
    names = ("cleanrl", "torch", "gym", "stable-baselines3", "numpy")
    meter.finish({name: version(name) for name in names})


def _watch(meter: Meter) -> None:
    """Let the meter see what the files write; it is written as well."""
    from torch.utils import tensorboard

    returns: list[float] = []

    class Seen(tensorboard.SummaryWriter):
        """Tells the meter; the files make one after their imports and before their environments."""

        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            meter.start()

        def add_scalar(self, tag: str, scalar_value: Any, global_step: int, **more: Any) -> None:
            super().add_scalar(tag, scalar_value, global_step, **more)
            if tag == "charts/episode_reward":
                returns.append(float(scalar_value))
            elif tag == _MARKS[meter.task.algo]:
                meter.phase(global_step, learnt=True, returns=returns)
                returns.clear()

    tensorboard.SummaryWriter = Seen


def _arguments(meter: Meter) -> dict[str, object]:
    """The task's hyper-parameters as the files' options, as far as they have them."""
    settings = meter.task.settings
    common = {
        "--gym-id": meter.task.env,
        "--seed": meter.seed + 1,  # 0 asks for the time of day
        "--total-timesteps": meter.steps,
        "--learning-rate": settings["learning_rate"],
        "--gamma": settings["gamma"],
        "--max-grad-norm": settings["max_grad_norm"],
        "--cuda": False,
    }
    if meter.task.algo == "dqn":
        return common | {
            "--buffer-size": settings["replay_capacity"],
            "--batch-size": settings["batch_size"],
            "--learning-starts": settings["learning_starts"],
            "--target-network-frequency": settings["target_every"],
            "--train-frequency": settings["train_every"] // settings["gradient_steps"],
            "--start-e": settings["exploration_start"],
            "--end-e": settings["exploration_end"],
            "--exploration-fraction": settings["exploration_fraction"],
        }
    rows = settings["num_envs"] * settings["n_steps"]
    return common | {
        "--num-envs": settings["num_envs"],
        "--num-steps": settings["n_steps"],
        "--n-minibatch": rows // settings["batch_size"],
        "--update-epochs": settings["epochs"],
        "--gae-lambda": settings["gae_lambda"],
        "--ent-coef": settings["entropy_coef"],
        "--vf-coef": 2 * settings["value_coef"],  # it halves the squared error
        "--clip-coef": settings["clip_range"],
        "--clip-vloss": False,
        "--anneal-lr": settings["learning_rate_schedule"] == "linear",
    }


if __name__ == "__main__":
    main()
