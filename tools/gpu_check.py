"""Train the same small problems in float32 and in mixed precision on a GPU, and print one table: `make gpu-check`.

Nothing of mixed precision counts as checked until this ran on a GPU. `--device cpu` runs the script itself on the CPU,
where Paddle computes in float32 throughout: it checks the script and no GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from train.runtime import load_paddle

NO_GPU_CHECK = "This ran on the CPU: it checks the script and no GPU."
_FAILED = "failed"


@dataclass(frozen=True)
class Problem:
    """What is trained: options of `paddleport train`. A new one is a row in `PROBLEMS`."""

    name: str
    options: tuple[str, ...]
    steps: int
    episodes: int = 100
    """How many its return is the mean of."""


@dataclass(frozen=True)
class Setting:
    """How it is trained."""

    name: str
    options: tuple[str, ...]
    device: str = "gpu"


_VECTOR = ("--algo", "ppo", "--env", "CartPole-v1", "--hidden-sizes", "256", "256", "--seed", "1")
_IMAGES = ("--algo", "ppo", "--env", "ALE/Pong-v5", "--num-envs", "8", "--n-steps", "128", "--seed", "1")
PROBLEMS = (
    Problem("PPO, CartPole, MLP 256×256", _VECTOR, steps=50_000),
    Problem("PPO, Pong, NatureCNN", _IMAGES, steps=20_000, episodes=10),
)
SETTINGS = (
    Setting("float32", ("--engine", "eager")),
    Setting("O1 float16", ("--amp", "O1", "--amp-dtype", "float16")),
    Setting("O2 float16", ("--amp", "O2", "--amp-dtype", "float16")),
    Setting("O2 bfloat16", ("--amp", "O2", "--amp-dtype", "bfloat16")),
    Setting("float32, recompute", ("--recompute",)),
    Setting("float32, compiled", ("--engine", "compiled")),
    Setting("float32, compiled, CPU", ("--engine", "compiled"), device="cpu"),
)


@dataclass(frozen=True)
class Row:
    """What one training came to."""

    problem: str
    setting: str
    device: str
    """Where its updates ran: `cpu`, or the GPU's name."""
    mean_return: float
    """Of the last policy, greedy."""
    steps_per_second: float
    """Environment steps, with everything: acting, updates, evaluation."""
    peak_mib: float | None
    """Most GPU memory that Paddle had allocated at once; None on the CPU."""
    skipped: int
    """Updates whose gradients overflowed float16."""
    parity: float
    """Largest |GPU - CPU| of the trained policy's float32 outputs on visited observations, relative to max(1, the
    observation's largest output). A GPU that multiplies in TF32 comes out at about 1e-3."""


def main() -> int:
    """Run every case in a process of its own and print the table; 0 where all of them ran."""
    options = _parse()
    paddle = load_paddle()
    if options.case:
        problem, setting = _case(options.case)
        json.dump(dataclasses.asdict(measure(problem, setting, options.device, options.steps)), sys.stdout)
        return 0
    if options.device == "gpu" and not (paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count()):
        why = "sees no GPU" if paddle.is_compiled_with_cuda() else "is built for the CPU only"
        print(f"gpu-check: this Paddle {why}, so nothing was checked.", file=sys.stderr)
        return 1
    console = Console(stderr=options.json)
    results = {}
    for name in _names(options.only, options.problem):
        console.print(f"gpu-check: {name} …", highlight=False, soft_wrap=True)
        results[name] = _in_a_process(name, options.device, options.steps)
    failures = {name: result for name, result in results.items() if isinstance(result, str)}
    rows = [result for result in results.values() if isinstance(result, Row)]
    for problem in PROBLEMS:
        of_problem = [row for row in rows if row.problem == problem.name]
        if of_problem:
            console.print(_table(of_problem, on_gpu=options.device == "gpu"))
    for name, why in failures.items():
        console.print(f"{_FAILED}: {name}: {why}", highlight=False, markup=False, soft_wrap=True)
    if options.device == "cpu":
        console.print(NO_GPU_CHECK)
    if options.json:
        report = {"gpu_checked": options.device == "gpu", "rows": [*map(dataclasses.asdict, rows)], _FAILED: failures}
        print(json.dumps(report, indent=2))
    return 1 if failures else 0


def measure(problem: Problem, setting: Setting, device: str, steps: int) -> Row:
    """Train one case in this process.

    Args:
        problem: what is trained.
        setting: how.
        device: `gpu`, or `cpu` to run even what is meant for a GPU there.
        steps: environment steps; 0 is the problem's own.
    """
    import paddle

    from paddleport.checkpoint import Run
    from train.command import parse, run
    from train.evaluate_command import Options
    from train.evaluate_command import run as evaluate

    on_gpu = device == setting.device == "gpu"
    # VisualDL's own thread may still write while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = str(Path(folder) / "run")
        where = ("--device", "gpu" if on_gpu else "cpu", "--run-dir", path)
        sizes = ("--total-steps", str(steps or problem.steps), "--evaluation-episodes", "5")
        trained = run(parse([*problem.options, *setting.options, *where, *sizes]))
        peak = round(paddle.device.cuda.max_memory_allocated() / 2**20, 1) if on_gpu else None
        name = paddle.device.cuda.get_device_name() if on_gpu else "cpu"
        checkpoint = Run(path).checkpoint("last")
        parity = _parity(checkpoint, "gpu" if on_gpu else "cpu")
        paddle.set_device("cpu")
        played = evaluate(Options(path=path, checkpoint="last", episodes=5 if steps else problem.episodes))
    return Row(
        problem=problem.name,
        setting=setting.name,
        device=name,
        mean_return=round(played.mean, 1),
        steps_per_second=trained.steps_per_second,
        peak_mib=peak,
        skipped=int(checkpoint.state.amp_scaler.get("skipped", 0)),
        parity=parity,
    )


def _parity(checkpoint: Any, trained_on: str) -> float:  # noqa: ANN401 - a Checkpoint, imported late
    """The policy's float32 outputs on visited observations, on the device that trained it against the CPU."""
    import numpy as np
    import paddle

    from paddleport.spaces import joined, leaves_of
    from train.environments import make_vector
    from train.network import network_of, run_network

    envs = make_vector(checkpoint.state.environment.id, 8)
    obs, _ = envs.reset(seed=1)
    envs.action_space.seed(1)
    visited = [obs] + [envs.step(envs.action_space.sample())[0] for _ in range(31)]
    envs.close()
    batch = joined([leaves_of(checkpoint.state.observation_space, each) for each in visited])
    outputs = []
    for device in (trained_on, "cpu"):
        paddle.set_device(device)
        found = run_network(network_of(checkpoint), batch)
        # Not the action: where two are worth the same to the last bit but one, either may be the best.
        outputs.append({name: value.reshape(len(value), -1) for name, value in found.items() if name != "action"})
    there, on_cpu = outputs
    scale = {name: np.maximum(1.0, np.abs(value).max(axis=1, keepdims=True)) for name, value in on_cpu.items()}
    return max(float((np.abs(there[name] - value) / scale[name]).max()) for name, value in on_cpu.items())


def _in_a_process(name: str, device: str, steps: int) -> Row | str:
    """One case in a process of its own, so that its memory is its own and its crash too; why it failed, if it did."""
    command = [sys.executable, *(["-P"] if sys.flags.safe_path else []), __file__, "--case", name, "--device", device]
    done = subprocess.run([*command, "--steps", str(steps)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return f"exit {done.returncode}: {said[-1] if said else 'and not a word'}"
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def _table(rows: list[Row], *, on_gpu: bool) -> Table:
    """What the trainings of one problem came to."""
    heading = rows[0].problem if on_gpu else f"{rows[0].problem} (no GPU check: all of it on the CPU)"
    table = Table(title=heading, title_justify="left")
    for column in ("setting", "on"):
        table.add_column(column)
    for column in ("return", "steps/s", "peak GPU MiB", "skipped updates", "|GPU - CPU|"):
        table.add_column(column, justify="right")
    for row in rows:
        peak = "" if row.peak_mib is None else f"{row.peak_mib:.1f}"
        speed, apart = f"{row.steps_per_second:.0f}", f"{row.parity:.1e}"
        figures = (f"{row.mean_return:.1f}", speed, peak, str(row.skipped), apart)
        table.add_row(row.setting, row.device, *figures)
    return table


def _names(settings: list[str] | None, problems: list[str] | None) -> list[str]:
    return [
        f"{problem.name}: {setting.name}"
        for problem in PROBLEMS
        for setting in SETTINGS
        if (not problems or problem.name in problems) and (not settings or setting.name in settings)
    ]


def _case(name: str) -> tuple[Problem, Setting]:
    problem, _, setting = name.partition(": ")
    return (
        next(entry for entry in PROBLEMS if entry.name == problem),
        next(entry for entry in SETTINGS if entry.name == setting),
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    settings = [setting.name for setting in SETTINGS]
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="cpu checks this script alone")
    parser.add_argument("--steps", type=int, default=0, help="environment steps of each training; 0 is enough to learn")
    parser.add_argument("--only", action="append", choices=settings, help="a setting; can be given several times")
    parser.add_argument("--problem", action="append", choices=[problem.name for problem in PROBLEMS])
    parser.add_argument("--json", action="store_true", help="print JSON on stdout, and the table on stderr")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # a child process: this one case, in this process
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
