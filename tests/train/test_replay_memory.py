import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAME = 84 * 84
GROWTH = """
import sys
sys.path.insert(0, "benchmarks")
from replay_memory import fill, resident_bytes
empty = resident_bytes()
from train.replay import Replay
memory = Replay(1_000_000, 1, {"obs": ((4, 84, 84), "uint8")}, 1, 0.99, stacks={"obs": 4})
made = resident_bytes()
fill(2_000)  # so that what the generator of stacks and the allocator take is not counted below
first = resident_bytes()
kept, _ = fill(20_000)
print(made - empty, resident_bytes() - first)
"""


@pytest.fixture(scope="module")
def measured():
    """Bytes that a replay of 1e6 transitions takes before any is there, and that 20,000 of them take."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", GROWTH], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return [int(word) for word in ran.stdout.split()]


def test_memory_is_taken_as_it_fills(measured):
    assert measured[0] < 50 * 2**20


def test_a_million_image_transitions_stay_under_8_gib(measured):
    a_row = measured[1] / 20_000
    assert FRAME * 0.9 < a_row < FRAME * 1.1  # frames are really there, and each but once
    assert a_row * 1_000_000 < 8 * 2**30
