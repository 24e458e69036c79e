"""The policy server beside others: the same ONNX files, one core for server and client, alternating.

    .venv/bin/python -m benchmarks.serve [--seconds 3] [--rounds 3] [--only paddleport mosec]

Closed loop by wrk at 1, 8 and 64 connections; requests/s, p50, p99, p99.9, CPU time of the server's processes for a
request, their memory (PSS) and the time until the first answer. Then an open loop, from another core: at half of what
the server did at 8 connections, and at fixed rates. Peers run in environments of their own, which `make bench-serve`
makes under build/peers. Where our own request spends its time is measured last. Writes benchmarks/results/serve.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import urllib3

from benchmarks import serve_stages
from benchmarks.open_loop import open_loop
from benchmarks.serve_policies import publish_mlp, publish_nature

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "build" / "peers"
SERVICES = ROOT / "benchmarks" / "peers"
RESULT = ROOT / "benchmarks" / "results" / "serve.md"
CONNECTIONS = (1, 8, 64)
SHAPES: dict[str, tuple[int, ...]] = {"4-64-64-2": (4,), "17-256-256-6": (17,), "NatureCNN": (4, 84, 84)}
CORE, CLIENT_CORE = "0", "1"  # the second one is the open loop's alone, where there is one
FIXED_RATES = (250, 1000)


@dataclass
class Subject:
    """One server, and one way to ask it."""

    name: str
    kind: str
    path: str
    figures: dict[int, list[dict[str, float]]] = field(default_factory=dict)
    open_figures: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    memory: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)

    @property
    def label(self) -> str:
        """For the table."""
        return f"{self.name} ({self.kind})"


def subjects(policy: str, only: list[str]) -> list[Subject]:
    """The servers that are there."""
    found = [
        Subject("paddleport", "act", f"/v1/policies/{policy}/act"),
        Subject("paddleport", "infer", f"/v2/models/{policy}/infer"),
        Subject("paddleport", "infer, binary", f"/v2/models/{policy}/infer"),
    ]
    peers = {"mosec": ("json", "/inference"), "mlserver": ("infer", "/v2/models/policy/infer"),
             "litserve": ("json", "/predict"), "bentoml": ("json", "/act"), "ray": ("json", "/")}  # fmt: skip
    found += [Subject(name, *how) for name, how in peers.items() if (PEERS / name / "bin" / "python").exists()]
    if policy != next(iter(SHAPES)):  # the slow ones' own time is the same whatever they run
        found = [one for one in found if one.name in ("paddleport", "mosec", "mlserver")]
    if len(SHAPES[policy]) == 3:  # an image as JSON is no fair question to anybody's parser
        found = [one for one in found if one.name == "paddleport"]
    return [one for one in found if not only or one.name in only]


def body_of(kind: str, shape: tuple[int, ...]) -> tuple[bytes, dict[str, str]]:
    """A request's body and headers."""
    rng = np.random.default_rng(0)
    image = len(shape) == 3
    obs = rng.integers(0, 256, shape) if image else rng.normal(size=shape).round(4)
    datatype = "UINT8" if image else "FP32"
    if kind in ("act", "json"):
        return json.dumps({"observation": obs.tolist()}).encode(), {"Content-Type": "application/json"}
    tensor = {"name": "obs", "shape": [1, *shape], "datatype": datatype}
    if kind == "infer":
        content = {"inputs": [{**tensor, "data": obs.ravel().tolist()}], "outputs": [{"name": "action"}]}
        return json.dumps(content).encode(), {"Content-Type": "application/json"}
    raw = obs.astype(np.uint8 if image else np.float32).tobytes()
    content = {
        "inputs": [{**tensor, "parameters": {"binary_data_size": len(raw)}}],
        "outputs": [{"name": "action", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(content).encode()
    return head + raw, {"Inference-Header-Content-Length": str(len(head))}


def command_of(subject: Subject, models: Path, policy: str, port: int) -> tuple[list[str], dict[str, str]]:
    """How to start a server: command and environment."""
    environment = {**os.environ, "MODEL": str(models / policy / "1" / "policy.onnx"), "PYTHONPATH": str(ROOT)}
    if subject.name == "paddleport":
        return [sys.executable, "-m", "paddleport", "serve", "--models", str(models), "--port", str(port)], environment
    python = str(PEERS / subject.name / "bin" / "python")
    service = SERVICES / f"serve_{subject.name}"
    environment.pop("PYTHONPATH")
    if subject.name == "mosec":
        return [python, str(service / "service.py"), "--port", str(port)], environment
    if subject.name in ("litserve", "ray"):
        environment["RAY_USAGE_STATS_ENABLED"] = "0"
        return [python, str(service / "service.py"), str(port)], environment
    if subject.name == "bentoml":
        environment["BENTOML_DO_NOT_TRACK"] = "1"
        bentoml = str(PEERS / "bentoml" / "bin" / "bentoml")
        return [bentoml, "serve", "--host", "127.0.0.1", "--port", str(port), f"{service}"], environment
    folder = Path(tempfile.mkdtemp(prefix="mlserver-"))
    shutil.copy(service / "service.py", folder)
    (folder / "settings.json").write_text(
        json.dumps({"http_port": port, "grpc_port": free_port(), "metrics_port": free_port(), "parallel_workers": 0,
                    "debug": False, "host": "127.0.0.1"})
    )  # fmt: skip
    (folder / "model-settings.json").write_text(json.dumps({"name": "policy", "implementation": "service.Policy"}))
    environment["PYTHONPATH"] = str(folder)
    return [str(PEERS / "mlserver" / "bin" / "mlserver"), "start", str(folder)], environment


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def measure(subject: Subject, models: Path, policy: str, seconds: float) -> None:
    """Start the server, ask it at every number of connections, and end it."""
    port = free_port()
    command, environment = command_of(subject, models, policy, port)
    body, headers = body_of(subject.kind, SHAPES[policy])
    began = time.monotonic()
    process = subprocess.Popen(
        ["taskset", "-c", CORE, *command], env=environment, cwd=tempfile.gettempdir(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        process_group=0,  # not a session: the kernel shares a core between sessions, and wrk's would take half of it
    )  # fmt: skip
    try:
        _first_answer(port, subject.path, body, headers, began + 150)  # Ray starts a cluster
        subject.start.append(time.monotonic() - began)
        for connections in CONNECTIONS:
            figures = _wrk(process.pid, port, subject.path, body, headers, connections, seconds)
            subject.figures.setdefault(connections, []).append(figures)
        half = subject.figures[8][-1]["rate"] / 2
        for name, rate in {"half": half, **{str(rate): float(rate) for rate in FIXED_RATES}}.items():
            if rate > subject.figures[8][-1]["rate"] * 0.9:
                continue  # more than it can do: its queue would only grow
            figures = {"asked": rate, **_open_loop(port, subject.path, body, headers, rate, seconds)}
            subject.open_figures.setdefault(name, []).append(figures)
        subject.memory.append(sum(one.memory_full_info().pss for one in _family(process.pid)) / 2**20)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _open_loop(
    port: int, path: str, body: bytes, headers: dict[str, str], rate: float, seconds: float
) -> dict[str, float]:
    head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    head += [f"{key}: {value}" for key, value in headers.items()]
    request = "\r\n".join([*head, "", ""]).encode() + body
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):  # a machine of one core
        os.sched_setaffinity(0, {int(CLIENT_CORE)})
    try:
        return open_loop(port, request, rate, seconds)
    finally:
        os.sched_setaffinity(0, before)


def _first_answer(port: int, path: str, body: bytes, headers: dict[str, str], end: float) -> None:
    with urllib3.HTTPConnectionPool("127.0.0.1", port, retries=False, timeout=5.0) as pool:
        while True:
            try:
                answer = pool.request("POST", path, body=body, headers=headers)
                if answer.status == 200:
                    return
            except urllib3.exceptions.HTTPError:
                answer = None
            if time.monotonic() > end:
                raise RuntimeError(f"no answer: {answer.data if answer else 'none'!r}")
            time.sleep(0.02)


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def _cpu_seconds(pid: int) -> float:
    return sum(one.cpu_times().user + one.cpu_times().system for one in _family(pid))


def _wrk(
    pid: int, port: int, path: str, body: bytes, headers: dict[str, str], connections: int, seconds: float
) -> dict[str, float]:
    text = "".join(f"\\{byte:03d}" for byte in body)
    lines = [f'wrk.headers["{key}"] = "{value}"' for key, value in headers.items()]
    done = """
    done = function(summary, latency, requests)
      io.write(string.format("RESULT %d %d %f %f %f %f\\n", summary.requests, summary.errors.status +
        summary.errors.connect + summary.errors.read + summary.errors.timeout, summary.duration / 1e6,
        latency:percentile(50) / 1000, latency:percentile(99) / 1000, latency:percentile(99.9) / 1000))
    end
    """
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(f'wrk.method = "POST"\nwrk.body = "{text}"\n' + "\n".join(lines) + done)
        script.flush()
        command = ["taskset", "-c", CORE, "wrk", "-t1", f"-c{connections}", f"-s{script.name}"]
        url = f"http://127.0.0.1:{port}{path}"
        subprocess.run([*command, "-d1", url], capture_output=True, check=True)
        before = _cpu_seconds(pid)
        said = subprocess.run([*command, f"-d{seconds:g}", url], capture_output=True, text=True, check=True).stdout
        spent = _cpu_seconds(pid) - before
    found = re.search(r"RESULT (\S+) (\S+) (\S+) (\S+) (\S+) (\S+)", said)
    assert found, said
    count, errors, duration, p50, p99, p999 = map(float, found.groups())
    if not count:  # nothing at all came back in time
        return {"rate": 0.0, **dict.fromkeys(("p50", "p99", "p999", "cpu"), float("nan")), "failed": errors}
    return {
        "rate": count / duration,
        "p50": p50,
        "p99": p99,
        "p999": p999,
        "cpu": spent / count * 1e6,
        "failed": errors,
    }


def table(policy: str, found: list[Subject]) -> list[str]:
    """Medians over the rounds, and each rate over mosec's and MLServer's."""
    lines = [
        f"### {policy}",
        "",
        "| server | connections | requests/s | p50 ms | p99 ms | p99.9 ms | CPU µs | memory MB | start s | failed |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one in found:
        for connections, rounds in one.figures.items():
            value = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
            lines.append(
                f"| {one.label} | {connections} | {value['rate']:,.0f} | {value['p50']:.2f} | {value['p99']:.2f} | "
                f"{value['p999']:.2f} | {value['cpu']:.0f} | {statistics.median(one.memory):.0f} | "
                f"{statistics.median(one.start):.1f} | {value['failed']:.0f} |"
            )
    return [*lines, "", *open_table(found), *_ratios(found), ""]


def open_table(found: list[Subject]) -> list[str]:
    """Latency at rates that do not wait for the answers: half of the server's own capacity, and fixed ones."""
    lines = ["| server | open loop, requests/s | p50 ms | p99 ms | p99.9 ms | failed |", "|---|--:|--:|--:|--:|--:|"]
    for one in found:
        for name, rounds in one.open_figures.items():
            value = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
            rate = f"{value['asked']:,.0f}" + (" (half of its capacity)" if name == "half" else "")
            lines.append(
                f"| {one.label} | {rate} | {value['p50']:.2f} | {value['p99']:.2f} | {value['p999']:.2f} | "
                f"{max(each['failed'] for each in rounds):.0f} |"
            )
    return [*lines, ""]


def _ratios(found: list[Subject]) -> list[str]:
    """Our act route over each peer's, and our v2 infer over that of a peer that speaks it."""
    said = []
    for peer in found:
        for own in found:
            if peer.name == "paddleport" or own.name != "paddleport" or own.kind == "infer, binary":
                continue
            if peer.kind == "infer" and own.kind != "infer":
                continue
            said += [_ratio(own, peer, connections) for connections in CONNECTIONS]
    return said


def _ratio(own: Subject, peer: Subject, connections: int) -> str:
    pairs = list(zip(own.figures[connections], peer.figures[connections], strict=True))
    rates = [mine["rate"] / theirs["rate"] for mine, theirs in pairs if theirs["rate"]]
    costs = [theirs["cpu"] / mine["cpu"] for mine, theirs in pairs if theirs["rate"]]
    if not rates:
        return f"- {own.label} over {peer.label} at {connections} connections: it answered nothing in time"
    return (
        f"- {own.label} over {peer.label} at {connections} connections: "
        f"**{statistics.median(rates):.2f}×** the requests/s ({min(rates):.2f} to {max(rates):.2f} in {len(rates)} "
        f"rounds), {statistics.median(costs):.2f}× less processor time"
    )


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--policies", nargs="*", default=list(SHAPES))
    chosen = parser.parse_args()
    lines = [
        "# Serving, beside others",
        "",
        f"`make bench-serve`, {time.strftime('%Y-%m-%d')}, {platform.processor() or platform.machine()}, "
        f"load average at the start {os.getloadavg()[0]:.1f}. Server and wrk share one core; {chosen.rounds} rounds of "
        f"{chosen.seconds:g} s, alternating; medians.",
        "",
    ]
    with tempfile.TemporaryDirectory(prefix="bench-serve-") as folder:
        models = Path(folder)
        publish_mlp(models, "4-64-64-2", 4, 64, 2, discrete=True)
        publish_mlp(models, "17-256-256-6", 17, 256, 6, discrete=False)
        publish_nature(models, "NatureCNN")
        for policy in chosen.policies:
            found = subjects(policy, chosen.only)
            for _ in range(chosen.rounds):
                for one in found:
                    measure(one, models, policy, chosen.seconds)
            lines += table(policy, found)
            print("\n".join(lines[-30:]), flush=True)
    lines += ["### Where our own time goes", "", *asyncio.run(serve_stages.measured())]
    lines += ["", f"Load average at the end: {os.getloadavg()[0]:.1f}."]
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
