"""Everything that only a machine with a GPU can tell, in one Markdown report: `make gpu-check`.

doctor, float32 against mixed precision (tools/gpu_check.py), train, quantize and export, and serving by CUDA and
TensorRT (tools/gpu_serving.py). What cannot run here is reported as not run, and the report passes only where all ran.

Training and serving load different CUDA versions: give the Python of an environment with `paddleport[serve-gpu]` as
`--serve-python`. Without it the serving part runs in this one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parent
NOT_RUN = "not run"
_TITLES = ("setting", "on", "return", "steps/s", "peak MiB", "skipped", "GPU against CPU")
_FIELDS = ("setting", "device", "mean_return", "steps_per_second", "peak_mib", "skipped", "parity")


def main() -> int:
    """Write the report and print it; 0 only where every part ran and passed."""
    options = _parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    parts = [_doctor(sys.executable), _training(options), _serving(options)]
    text, code = assemble(parts)
    report = options.folder / "report.md"
    report.write_text(text, encoding="utf-8")
    print(text)
    print(f"gpu-check: {report}", file=sys.stderr)
    return code


def assemble(parts: list[tuple[str, str, str]]) -> tuple[str, int]:
    """The report, and its exit code.

    Args:
        parts: of each its title, its verdict (`passed`, `failed`, `not run`, or why) and its text.
    """
    lines = ["# What was checked on a GPU", "", "| part | verdict |", "|---|---|"]
    lines += [f"| {title} | {verdict} |" for title, verdict, _ in parts]
    for title, _, text in parts:
        lines += ["", f"## {title}", "", text.strip()]
    return "\n".join(lines) + "\n", 0 if all(verdict == "passed" for _, verdict, _ in parts) else 1


def training_part(report: dict[str, Any]) -> tuple[str, str, str]:
    """The table of tools/gpu_check.py's JSON; on a CPU it is no check of a GPU, however well it went."""
    lines = ["| " + " | ".join(("problem", *_TITLES)) + " |", "|---" * (1 + len(_TITLES)) + "|"]
    for row in report["rows"]:
        cells = ["–" if row[field] is None else str(row[field]) for field in _FIELDS]
        lines.append("| " + " | ".join((row["problem"], *cells)) + " |")
    lines += ["", *(f"Failed: {name}: {why}" for name, why in report["failed"].items())]
    if report["failed"]:
        return "Training", "failed", "\n".join(lines)
    return "Training", "passed" if report["gpu_checked"] else f"{NOT_RUN} on a GPU", "\n".join(lines)


def serving_part(rows: list[dict[str, Any]], table: str) -> tuple[str, str, str]:
    """The verdict over all providers: passed only where each of them ran."""
    verdicts = {row["verdict"] for row in rows}
    verdict = next((one for one in ("failed", NOT_RUN) if one in verdicts), "passed")
    return "Serving", verdict, table


def _doctor(python: str) -> tuple[str, str, str]:
    done = _paddleport(python, "doctor", "--json")
    if done.returncode:
        return "Machine", "failed", done.stderr
    wrong = [check["name"] for check in json.loads(done.stdout)["checks"] if check["verdict"] == "wrong"]
    return "Machine", f"wrong: {', '.join(wrong)}" if wrong else "passed", f"```json\n{done.stdout.strip()}\n```"


def _training(options: argparse.Namespace) -> tuple[str, str, str]:
    command = [sys.executable, "-P", str(TOOLS / "gpu_check.py"), "--json", "--device", options.device]
    command += ["--steps", str(options.steps)] + [word for one in options.only or [] for word in ("--only", one)]
    command += [word for one in options.problem or [] for word in ("--problem", one)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        return "Training", NOT_RUN, done.stderr
    return training_part(json.loads(done.stdout))


def _serving(options: argparse.Namespace) -> tuple[str, str, str]:
    """Train, quantize and export a policy, and serve it every way."""
    for old in ("run", "models"):
        shutil.rmtree(options.folder / old, ignore_errors=True)
    run, models = str(options.folder / "run"), str(options.folder / "models")
    device = ["--device", "gpu"] if options.device == "gpu" else []
    steps = ["--total-steps", str(options.steps or 50_000)]
    made = ["train", "--algo", "ppo", "--env", "CartPole-v1", "--seed", "1", "--run-dir", run]
    for command in (
        [*made, *steps, *device],
        ["quantize", run, "--method", "ptq"],
        ["export", run, "--name", "cartpole", "--models", models, "--fp16"],
    ):
        done = _paddleport(sys.executable, *command)
        if done.returncode:
            return "Serving", NOT_RUN, f"`paddleport {' '.join(command)}`: {done.stderr.strip()[-500:]}"
    command = [options.serve_python, "-P", str(TOOLS / "gpu_serving.py"), models, "cartpole"]
    command += ["--requests", str(options.requests)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    if not done.stdout:
        return "Serving", NOT_RUN, done.stderr[-500:]
    rows = json.loads(done.stdout)
    return serving_part(rows, _table(rows))


def _table(rows: list[dict[str, Any]]) -> str:
    """A row a case, with a dash for what was not measured."""
    lines = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    for row in rows:
        cells = (
            f"{value:.3g}" if isinstance(value, float) else "–" if value is None else value for value in row.values()
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _paddleport(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, "-P", "-m", "paddleport", *arguments], capture_output=True, text=True, check=False)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="cpu checks these scripts alone")
    parser.add_argument("--steps", type=int, default=0, help="environment steps of each training; 0 is enough to learn")
    parser.add_argument("--only", action="append", help="a setting of the training; can be given several times")
    parser.add_argument("--problem", action="append", help="a problem of the training")
    parser.add_argument("--requests", type=int, default=200, help="requests that are timed, of each size")
    parser.add_argument("--serve-python", default=sys.executable, help="Python with paddleport[serve-gpu]")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu-check"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
