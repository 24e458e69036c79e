"""Stopping, and what stands in its way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BODY = b'{"observation": [0, 0, 1, 0]}'
HEAD = b"POST /v1/policies/cartpole/act HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY)


def half_sent(server):
    connection = server.connect()
    connection.sendall(HEAD + BODY[:10])
    time.sleep(0.1)  # until the server reads it
    return connection


def wait_for_death(pids: list[int], seconds: float = 15.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(alive(pid) for pid in pids):
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_finishes_what_is_in_flight_and_exits_0(start_server, models, number):
    server = start_server(models)
    workers = server.workers()
    with half_sent(server) as connection:
        server.process.send_signal(number)
        time.sleep(0.5)
        connection.sendall(BODY[10:])
        answer = connection.recv(4000)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"action":1' in answer
    assert server.process.wait(timeout=15) == 0
    assert wait_for_death(workers)
    assert len(server.lines) == 1, server.lines


START = """
import sys, serve.command
run = serve.command.run
serve.command.run = lambda chosen: (print("run", file=sys.stderr, flush=True), run(chosen))[1]
from paddleport.cli import main
raise SystemExit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", [0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
def test_signal_during_the_start_exits_0(models, tmp_path, number, moment):
    command = [sys.executable, "-c", START, "serve", "--models", str(models), "--port", "0", "--workers", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "run\n"
        time.sleep(moment)
        process.send_signal(number)
        time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
        assert "Traceback" not in process.stderr.read()


def test_signal_to_the_whole_group_exits_0_at_once(models, tmp_path):
    """As Ctrl-C in a terminal and a stopped container do: parent and worker are both told."""
    process = subprocess.Popen(
        [sys.executable, "-m", "paddleport", "serve", "--models", str(models), "--port", "0", "--workers", "2"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert "serving" in process.stderr.readline()
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(timeout=20) == 0
    assert time.monotonic() - began < 4.5, "a worker had to be killed"
    assert process.stderr.read() == ""


def test_half_sent_bodies_hold_up_neither_others_nor_the_stop(start_server, models):
    server = start_server(models)
    waiting = [half_sent(server) for _ in range(40)]
    began = time.monotonic()
    assert server.act("cartpole", {"observation": [0, 0, 1, 0]})[0] == 200
    assert server.request("GET", "/v2/health/live")[0] == 200
    assert time.monotonic() - began < 2.0
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 10.0
    for connection in waiting:
        connection.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_of_a_killed_parent_go_too(start_server, models):
    server = start_server(models, "--workers", "2")
    workers = server.workers()
    assert len(workers) == 2
    server.process.kill()
    assert wait_for_death(workers)
