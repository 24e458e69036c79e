"""Serve one bundle by CPU, CUDA and TensorRT in each precision, and compare: the serving part of `make gpu-check`.

It runs in the environment that serves (`paddleport[serve-gpu]`), which cannot be the one that trains: their CUDA
differ. What this machine lacks is reported as not run, never as passed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NOT_RUN, PASSED, FAILED = "not run", "passed", "failed"
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
CASES = (
    *(("cpu", precision) for precision in ("float32", "int8")),
    *(("cuda", precision) for precision in ("float32", "fp16")),
    *(("tensorrt", precision) for precision in ("float32", "fp16", "int8")),
)
TOLERANCE = {"float32": 2e-3, "fp16": 5e-2}
"""Largest error of an output, relative to max(1, the observation's largest output). float32 on a GPU may be TF32."""
AGREEMENT = 0.95
"""Least share of observations on which int8 takes the action of float32."""
ROWS, REQUESTS = 64, 200


@dataclass(frozen=True)
class Served:
    """What came of one provider and precision."""

    provider: str
    precision: str
    verdict: str
    why: str = ""
    start_s: float | None = None
    """From the start of the server to ready; with TensorRT this builds the engines."""
    error: float | None = None
    """Of the outputs against float32 on the CPU."""
    agreement: float | None = None
    """Share of observations with the same action; None for actions of real numbers."""
    p50_ms_1: float | None = None
    """Median time of a request with one observation, in milliseconds."""
    p50_ms_64: float | None = None


def check(models: Path, name: str, available: Sequence[str], requests: int = REQUESTS) -> list[Served]:
    """Every case, in the order of `CASES`; the first, float32 on the CPU, is what the others are compared with.

    Args:
        models: a models folder.
        name: its policy.
        available: the execution providers of this ONNX Runtime.
        requests: how many are timed, of each size.
    """
    found, reference = [], None
    for provider, precision in CASES:
        if PROVIDERS[provider] not in available:
            found.append(Served(provider, precision, NOT_RUN, f"ONNX Runtime has no {PROVIDERS[provider]} here"))
            continue
        try:
            row, outputs = _serve(models, name, provider, precision, reference, requests)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            found.append(Served(provider, precision, FAILED, str(error)))
            continue
        reference = outputs if reference is None else reference
        found.append(row)
    return found


def markdown(rows: Sequence[Served]) -> str:
    """A table, with a dash for everything that was not measured."""
    heading = "| provider | precision | verdict | ready, s | error | same action | p50 of 1, ms | p50 of 64, ms | why |"
    lines = [heading, "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        numbers = (row.start_s, row.error, row.agreement, row.p50_ms_1, row.p50_ms_64)
        shown = ["–" if number is None else f"{number:.3g}" for number in numbers]
        lines.append("| " + " | ".join([row.provider, row.precision, row.verdict, *shown, row.why]) + " |")
    return "\n".join(lines) + "\n"


def judge(precision: str, error: float, agreement: float | None) -> str:
    """Why a case does not pass, or an empty string."""
    if precision in TOLERANCE and error > TOLERANCE[precision]:
        return f"error {error:.1e}, expected at most {TOLERANCE[precision]:.0e}"
    if precision == "int8" and agreement is not None and agreement < AGREEMENT:
        return f"same action on {agreement:.3f}, expected at least {AGREEMENT}"
    return ""


def _serve(
    models: Path, name: str, provider: str, precision: str, reference: dict[str, Any] | None, requests: int
) -> tuple[Served, dict[str, Any]]:
    started = time.monotonic()
    with _server(models, name, provider, precision) as url:
        start_s = time.monotonic() - started
        in_use = _get(f"{url}/v1/policies/{name}")["provider"]
        if in_use != PROVIDERS[provider]:
            raise RuntimeError(f"expected {PROVIDERS[provider]}, got {in_use}")
        described = _get(f"{url}/v2/models/{name}")
        outputs = _infer(url, name, described, ROWS)
        error, agreement = _apart(reference or outputs, outputs)
        why = judge(precision, error, agreement)
        times = [_median_ms(url, name, described, rows, requests) for rows in (1, ROWS)]
    verdict = FAILED if why else PASSED
    return Served(provider, precision, verdict, why, start_s, error, agreement, *times), outputs


@contextlib.contextmanager
def _server(models: Path, name: str, provider: str, precision: str) -> Iterator[str]:
    """A real server on a free port, and its address once it is ready."""
    command = [sys.executable, "-P", "-m", "paddleport", "serve", "--models", str(models), "--port", "0"]
    command += ["--policy", name, "--provider", provider, "--precision", precision]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said = ""
    try:
        for line in process.stderr or ():
            said = line
            if " at http" in line:
                break
        else:
            raise RuntimeError(f"the server did not start: {said.strip()}")
        yield said.split(" at ")[-1].strip()
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _infer(url: str, name: str, described: dict[str, Any], rows: int) -> dict[str, Any]:
    """Every output for the same `rows` observations, drawn small and near zero, by name: [rows, …]."""
    random = np.random.default_rng(1)
    inputs = []
    for one in described["inputs"]:
        shape = [rows, *one["shape"][1:]]
        if one["datatype"].startswith("FP"):
            data = random.normal(0, 0.5, shape).astype(np.float32)
        else:
            data = random.integers(0, 2 if one["datatype"] != "UINT8" else 256, shape)
        inputs.append({"name": one["name"], "shape": shape, "datatype": one["datatype"], "data": data.ravel().tolist()})
    answer = _get(f"{url}/v2/models/{name}/infer", {"inputs": inputs})
    return {one["name"]: np.array(one["data"]).reshape(rows, -1) for one in answer["outputs"]}


def _apart(reference: dict[str, Any], outputs: dict[str, Any]) -> tuple[float, float | None]:
    """Largest error of what is no action, and the share of the same actions where these are choices."""
    error = 0.0
    for name, value in reference.items():
        if name != "action":
            scale = np.maximum(1.0, np.abs(value).max(axis=1, keepdims=True))
            error = max(error, float((np.abs(outputs[name] - value) / scale).max()))
    action = reference["action"]
    if not np.issubdtype(action.dtype, np.integer):
        return error, None
    return error, float((action == outputs["action"]).all(axis=1).mean())


def _median_ms(url: str, name: str, described: dict[str, Any], rows: int, requests: int) -> float:
    times = []
    for _ in range(requests):
        started = time.perf_counter()
        _infer(url, name, described, rows)
        times.append(time.perf_counter() - started)
    return float(np.median(times)) * 1000


def _get(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=120) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
    return found


def main() -> int:
    """Print the table, or the rows as JSON; 1 where a case failed."""
    import onnxruntime

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("models", type=Path)
    parser.add_argument("name")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of a table")
    options = parser.parse_args()
    rows = check(options.models, options.name, onnxruntime.get_available_providers(), options.requests)
    print(json.dumps([dataclasses.asdict(row) for row in rows]) if options.json else markdown(rows))
    return 1 if any(row.verdict == FAILED for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
