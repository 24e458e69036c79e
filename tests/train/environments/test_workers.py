import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

import environments  # noqa: F401 - registers the environments
from paddleport.errors import TrainingError, UsageError
from train.environments import make_vector


def test_a_fault_in_a_worker_is_one_message(capfd):
    envs = make_vector("environments:Breaks-step-v0", 2, "async")
    processes = envs.unwrapped.processes
    envs.reset(seed=0)
    with pytest.raises(TrainingError, match=r"\(number [01]\) failed in step: got RuntimeError: no sensor here"):
        envs.step(np.array([0, 0]))
    envs.close()
    assert not any(process.is_alive() for process in processes)
    assert capfd.readouterr() == ("", "")


def test_a_worker_that_dies_is_one_message(capfd):
    envs = make_vector("environments:Dies-v0", 2, "async")
    envs.reset(seed=0)
    with pytest.raises(TrainingError, match="worker process of the environment 'environments:Dies-v0' ended in step"):
        for _ in range(3):
            envs.step(np.array([0, 0]))
    envs.close()
    assert capfd.readouterr() == ("", "")


def test_an_environment_that_only_workers_cannot_make_is_one_message(capfd):
    # Registered here without `module:`, so that the workers do not know it.
    with pytest.raises(UsageError, match=r"Cannot make this environment: .*'Terminates-v0'"):
        make_vector("Terminates-v0", 2, "async")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("killed", [False, True])
def test_a_training_that_is_stopped_leaves_no_process_behind(tmp_path, killed):
    options = (
        "--vector",
        "async",
        "--num-envs",
        "2",
        "--batch-size",
        "64",
        "--total-steps",
        "1000000",
        "--checkpoint-every",
        "1000000",
    )
    training = subprocess.Popen(
        [sys.executable, "-m", "paddleport", "train", *options, "--run-dir", tmp_path / "run", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, as a terminal gives it
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    _until(lambda: training.poll() is not None or (metrics.exists() and metrics.stat().st_size))
    children = psutil.Process(training.pid).children(recursive=True)
    assert len(children) >= 2
    if killed:
        training.kill()
    else:
        for number in (signal.SIGINT, signal.SIGTERM):  # to all of them, as a terminal and a service manager do
            os.killpg(training.pid, number)
    out, err = training.communicate(timeout=60)
    assert "Traceback" not in err
    assert training.returncode == (-signal.SIGKILL if killed else 0)
    if not killed:
        assert json.loads(out)["finished"] is False
    _until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))


def _until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)
