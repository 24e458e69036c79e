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
