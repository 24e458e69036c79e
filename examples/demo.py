"""The whole pipeline on CartPole: train, quantize, export, serve, and the same episodes played by all four.

`make demo` runs it. Everything it makes is in build/demo, which it empties first.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from paddleport import Client
from paddleport.manifest import ReturnStatistics
from train.episodes import play

FOLDER = Path("build") / "demo"
RUN, MODELS = FOLDER / "run", FOLDER / "models"
ENVIRONMENT, NAME, SEED = "CartPole-v1", "cartpole", 1
EPISODES, EVALUATION_SEED = 20, 7
SOLVED = 475.0
console = Console()


def main() -> int:
    """Run the demo; returns 0 if every way of acting solves the environment."""
    started = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    paddleport("train", "--algo", "ppo", "--env", ENVIRONMENT, "--seed", SEED, "--run-dir", RUN)
    paddleport("quantize", RUN, "--method", "ptq")
    exported = paddleport("export", RUN, "--name", NAME, "--models", MODELS)
    bundle = MODELS / NAME / str(exported["version"])
    played = {
        "trainer (Paddle, float32)": evaluate(RUN),
        "ONNX float32": evaluate(bundle, "--precision", "float32"),
        "ONNX int8": evaluate(bundle, "--precision", "int8"),
        "over HTTP": evaluate_over_http(),
    }
    console.print(table_of(played))
    console.print(f"The bundle is {bundle}. It took {time.monotonic() - started:.0f} s.", highlight=False)
    console.print(f"Serve it yourself: .venv/bin/paddleport serve --models {MODELS}", highlight=False, soft_wrap=True)
    failed = [who for who, returns in played.items() if returns.mean < SOLVED]
    if failed:
        console.print(f"Below {SOLVED}: {', '.join(failed)}")
    return 1 if failed else 0


def paddleport(*arguments: object) -> dict[str, Any]:
    """Run one command of the product, its progress on stderr, and read its JSON."""
    command = [str(argument) for argument in arguments]
    console.print(f"[bold]$ paddleport {' '.join(command)}[/bold]", highlight=False, soft_wrap=True)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "paddleport", *command, "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def evaluate(path: Path, *options: str) -> ReturnStatistics:
    """Returns of a run or bundle, by the command."""
    figures = paddleport("evaluate", path, "--episodes", EPISODES, "--seed", EVALUATION_SEED, *options)
    return ReturnStatistics(**{name: figures[name] for name in ReturnStatistics.__struct_fields__})


def evaluate_over_http() -> ReturnStatistics:
    """Returns of the policy behind a real server on a free port."""
    with server() as url, Client(url) as client:
        console.print(f"[bold]$ playing {EPISODES} episodes through {url}[/bold]", highlight=False)
        return play(lambda obs: client.act_batch(NAME, obs["obs"]), ENVIRONMENT, EPISODES, EVALUATION_SEED).statistics


@contextmanager
def server() -> Iterator[str]:
    """A running `paddleport serve`; yields its address once it says that it is ready."""
    command = [sys.executable, "-P", "-m", "paddleport", "serve", "--models", str(MODELS), "--port", "0"]
    console.print(f"[bold]$ paddleport serve --models {MODELS} --port 0[/bold]", highlight=False, soft_wrap=True)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield address_of(process)
    finally:
        process.terminate()
        process.wait(timeout=30)


def address_of(process: subprocess.Popen[str]) -> str:
    """The address in the line that the server prints when it is ready."""
    for line in process.stderr or ():
        sys.stderr.write(line)
        if " at http" in line:
            return line.split(" at ")[-1].strip()
    return sys.exit("The server stopped before it was ready.")


def table_of(played: dict[str, ReturnStatistics]) -> Table:
    """Mean returns, a row a way of acting."""
    table = Table("who acts", "mean return", "std", "min", "max", title=f"{ENVIRONMENT}, the same {EPISODES} episodes")
    for who, returns in played.items():
        numbers = (returns.mean, returns.std, returns.min, returns.max)
        table.add_row(who, *(f"{number:.1f}" for number in numbers))
    return table


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted.")
