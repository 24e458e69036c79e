"""What `paddleport.Policy` adds to a bare ONNX Runtime call at batch 1, and how long an export takes.

    .venv/bin/python -m benchmarks.policy_latency [--rounds 15] [--exports]

`bare` is `InferenceSession.run` as ONNX Runtime's documentation calls it, for the outputs that Policy looks at; the two
alternate. Processor time of this process, the median and the spread over rounds. `--exports` times `paddleport export`
of a CartPole and of a NatureCNN run as well, each in a process of its own, less the time that its imports take.
Writes benchmarks/results/policy.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.serve_policies import publish_mlp, publish_nature
from paddleport import Bundle, Policy
from paddleport.files import write_atomic
from paddleport.spaces import Array, Box

RESULT = Path(__file__).parent / "results" / "policy.md"
CALLS = 2000
RUNS = {
    "PPO CartPole, 4→64→64→2": (["--env", "CartPole-v1", "--total-steps", "8192"], ["--episodes", "20"], False),
    "PPO CartPole, 4→64→64→2, int8 too": (
        ["--env", "CartPole-v1", "--total-steps", "8192"], ["--episodes", "20"], True,
    ),
    # Games of a few dozen steps: what an export takes beside the game's own time.
    "PPO on examples/catch.py, NatureCNN on 84×84": (
        ["--env", "examples/catch.py:Catch", "--total-steps", "2048"], ["--episodes", "20"], False,
    ),
}  # fmt: skip


def per_call(work: Callable[[], object], calls: int) -> float:
    """Processor time of a call, in microseconds."""
    began = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - began) / calls * 1e6


def latencies(path: Path, rounds: int, calls: int) -> tuple[list[float], list[float]]:
    """Policy.act, and a bare run, a figure a round."""
    policy = Policy.load(path)
    space = policy.manifest.observation_space
    assert isinstance(space, Box)
    obs: Array = np.random.default_rng(0).normal(size=space.shape).astype(space.dtype)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(Bundle.open(path).onnx(), options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in policy.manifest.outputs if output.name in ("action", "logits", "mean")]
    batch = obs[np.newaxis]
    pairs = [
        (per_call(lambda: policy.act(obs), calls), per_call(lambda: session.run(outputs, {"obs": batch}), calls))
        for _ in range(rounds)
    ]
    return [own for own, _ in pairs], [bare for _, bare in pairs]


def export_seconds(training: list[str], exporting: list[str], *, quantized: bool, folder: Path) -> tuple[float, float]:
    """Wall and processor seconds of an export, less those of a process that only imports what it needs."""
    paddleport = [sys.executable, "-m", "paddleport"]
    run = str(folder / "run")
    _do([*paddleport, "train", *training, "--run-dir", run])
    if quantized:
        _do([*paddleport, "quantize", run])
    imports = (
        "from train.runtime import load_paddle; load_paddle(); import export.pipeline; "
        "from train.drawing import new_figure; new_figure(1, 1)"  # imports Matplotlib
    )
    idle = _timed([sys.executable, "-c", imports])
    took = _timed([*paddleport, "export", run, "--name", "policy", "--models", str(folder / "models"), *exporting])
    return took[0] - idle[0], took[1] - idle[1]


def _do(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _timed(command: list[str]) -> tuple[float, float]:
    before, began = os.times(), time.monotonic()
    _do(command)
    after = os.times()
    return time.monotonic() - began, sum(after[2:4]) - sum(before[2:4])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--exports", action="store_true")
    chosen = parser.parse_args()
    lines = [
        "# A policy in the caller's own process",
        "",
        f"`make bench-policy`, {time.strftime('%Y-%m-%d')}, ONNX Runtime {onnxruntime.__version__}, load average at "
        f"the start {os.getloadavg()[0]:.1f}. One observation, processor time, median of {chosen.rounds} alternating "
        "rounds.",
        "",
        "| policy | Policy.act, µs | bare session.run, µs | ratio | spread of the ratio |",
        "|---|--:|--:|--:|--:|",
    ]
    with tempfile.TemporaryDirectory(prefix="bench-policy-") as name:
        models = Path(name)
        policies = {
            "4→64→64→2, Discrete": (publish_mlp(models, "small", 4, 64, 2, discrete=True), CALLS),
            "17→256→256→6, Box": (publish_mlp(models, "wide", 17, 256, 6, discrete=False), CALLS),
            "NatureCNN": (publish_nature(models, "nature"), CALLS // 50),
        }
        for label, (path, calls) in policies.items():
            own, bare = latencies(path, chosen.rounds, calls)
            ratios = [a / b for a, b in zip(own, bare, strict=True)]
            lines.append(
                f"| {label} | {statistics.median(own):.1f} | {statistics.median(bare):.1f} | "
                f"**{statistics.median(ratios):.2f}** | {min(ratios):.2f} … {max(ratios):.2f} |"
            )
    if chosen.exports:
        lines += ["", "| `paddleport export` of | wall s after imports | processor s |", "|---|--:|--:|"]
        for label, (training, exporting, quantized) in RUNS.items():
            with tempfile.TemporaryDirectory(prefix="bench-export-") as name:
                wall, processor = export_seconds(training, exporting, quantized=quantized, folder=Path(name))
            lines.append(f"| {label} ({json.dumps(' '.join(exporting))}) | {wall:.1f} | {processor:.1f} |")
    write_atomic(RESULT, ("\n".join(lines) + "\n").encode())
    print("\n".join(lines))


if __name__ == "__main__":
    main()
