"""Settings hold whatever was imported before them."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import numpy, threadpoolctl
from train.runtime import load_paddle
load_paddle(threads={threads})
print({{pool["num_threads"] for pool in threadpoolctl.threadpool_info() if "numpy" in pool["filepath"]}})
"""


def pools(threads, **environment):
    """How many threads NumPy's library takes in a process that imported it first."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    rest = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", PROGRAM.format(threads=threads)]
    return subprocess.run(command, env=rest | environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has one thread in any case")
def test_numpy_takes_as_many_threads_as_asked_though_it_was_imported_before():
    assert pools(1) == "{1}"
    assert pools(2) == "{2}"


def test_what_the_users_environment_says_is_kept():
    assert pools(2, OPENBLAS_NUM_THREADS="1") == "{1}"
    assert pools(1, OPENBLAS_NUM_THREADS="many") != "set()"  # nothing to go by, and no reason to fail


STOPPED = """
import os, signal, threading, time
from train.runtime import load_paddle

def stop(number, frame):
    raise KeyboardInterrupt(number)

signal.signal(signal.SIGTERM, stop)
try:
    {before}
    load_paddle()
    {after}
    time.sleep(60)
except KeyboardInterrupt:
    print("stopped")
"""
KILL = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.parametrize(
    "when",
    [
        {"before": f"threading.Timer(0.3, lambda: {KILL}).start()", "after": "pass"},  # while Paddle is being imported
        {"before": "pass", "after": KILL},
    ],
)
def test_sigterm_ends_a_program_that_has_paddle_as_any_other(when):
    done = subprocess.run(
        [sys.executable, "-c", STOPPED.format(**when)], capture_output=True, text=True, check=False, timeout=50
    )
    assert (done.returncode, done.stdout.strip()) == (0, "stopped"), done.stderr
