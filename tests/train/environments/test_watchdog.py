import subprocess
import sys
import time

import numpy as np
import pytest

import environments  # noqa: F401 - registers the environments
from paddleport.errors import TrainingError
from train.environments import make_environment, make_vector
from train.environments.watchdog import watchdog


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(watchdog, "limit", 0.4)


def test_an_environment_that_hangs_is_named(impatient):
    envs = make_vector("Hangs-v0", 2)
    envs.reset(seed=0)
    with pytest.raises(TrainingError, match=r"'Hangs-v0' \(number 0\) did not return from step within 0.4 seconds"):
        for _ in range(3):
            envs.step(np.array([0, 0]))


def test_a_reset_that_hangs_is_named(impatient):
    with pytest.raises(TrainingError, match="did not return from reset"):
        make_environment("Hangs-reset-v0").reset()


def test_a_worker_that_hangs_is_named_and_ended(impatient):
    envs = make_vector("environments:Hangs-v0", 2, "async")
    processes = envs.unwrapped.processes
    envs.reset(seed=0)
    with pytest.raises(TrainingError, match=r"\(number 0\) did not return from step"):
        for _ in range(3):
            envs.step(np.array([0, 0]))
    envs.close()
    assert not any(process.is_alive() for process in processes)


def test_slow_steps_that_return_in_time_are_left_alone(impatient):
    env = make_environment("Terminates-v0")
    for _ in range(6):
        env.reset()
        time.sleep(0.15)  # between calls, nothing is watched
    watchdog.begin("slow")
    time.sleep(0.2)
    watchdog.end()
    time.sleep(0.5)


@pytest.mark.parametrize("env_id", ["Hangs-stubborn-v0", "Locked-v0"])
def test_what_cannot_be_interrupted_ends_the_process(env_id):
    code = f"""
from train.environments import make_environment
from train.environments.watchdog import watchdog
watchdog.limit, watchdog.grace = 0.4, 0.4
env = make_environment("environments:{env_id}")
env.reset()
while True:
    env.step(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=_child())
    assert done.returncode == 1
    assert f"'environments:{env_id}' did not return within 0.4 seconds and cannot be interrupted" in done.stderr


def _child():
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
