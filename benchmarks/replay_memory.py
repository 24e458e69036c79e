"""What the replay memory of image transitions costs: filled with stacks of four 84×84 frames, as Atari gives them.

    .venv/bin/python benchmarks/replay_memory.py [--transitions 1000000]

Prints the memory it takes, appends a second and samples a second (batch 32). Stacks are made as a frame stack makes
them, whole and new at every step, with episodes of 800 steps that begin with their first frame repeated, under
next-step autoreset. A million takes about 7 GiB.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from paddleport.spaces import Array
from train.replay import Replay

FRAMES, SIDE, EPISODE = 4, 84, 800
SAMPLES, BATCH = 2000, 32


def stacks(steps: int) -> Iterator[tuple[Array, Array]]:
    """`steps` stacks, uint8 [1, 4, 84, 84], and whether the row is autoreset's and no transition, bool [1]."""
    rng = np.random.default_rng(0)
    pool = rng.integers(256, size=(997, SIDE, SIDE), dtype=np.uint8)  # a prime, so that no episode repeats another
    frames = np.zeros((FRAMES, SIDE, SIDE), dtype=np.uint8)
    for step in range(steps):
        place = step % (EPISODE + 1)  # the last row of an episode shows its last observation
        newest = pool[step % len(pool)]
        frames = np.stack([newest] * FRAMES) if place == 0 else np.concatenate([frames[1:], newest[None]])
        yield frames[None], np.array([place == EPISODE])


def resident_bytes() -> int:
    """Memory that this process has taken, from Linux's /proc."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def fill(transitions: int) -> tuple[Replay, float]:
    """A replay of `transitions` and the seconds that its appends took, the making of the stacks left out."""
    memory = Replay(
        transitions, 1, {"obs": ((FRAMES, SIDE, SIDE), "uint8")}, n_steps=1, gamma=0.99, stacks={"obs": FRAMES}
    )
    nothing, spent = np.zeros(1, dtype=np.float32), 0.0
    ended = np.zeros(1, dtype=bool)
    for stack, resetting in stacks(transitions):
        done = np.array([memory.count % (EPISODE + 1) == EPISODE - 1])
        started = time.perf_counter()
        memory.append({"obs": stack}, nothing, nothing, ended, done, ~resetting)
        spent += time.perf_counter() - started
    return memory, spent


def main() -> None:
    """Fill, sample, and print the table."""
    parser = argparse.ArgumentParser(description="Memory and speed of an image replay.")
    parser.add_argument("--transitions", type=int, default=1_000_000)
    transitions = parser.parse_args().transitions
    before = resident_bytes()
    memory, filling = fill(transitions)
    taken = resident_bytes() - before
    rng = np.random.default_rng(0)
    started = time.perf_counter()
    for _ in range(SAMPLES):
        memory.sample(BATCH, rng)
    sampling = time.perf_counter() - started
    table = Table("rows", "transitions", "RSS of it", "bytes a row", "appends/s", f"samples/s of {BATCH}")
    size = f"{taken / 2**30:.2f} GiB"
    speeds = f"{transitions / filling:,.0f}", f"{SAMPLES / sampling:,.0f}"
    table.add_row(f"{transitions:,}", f"{len(memory):,}", size, f"{taken / transitions:,.0f}", *speeds)
    Console().print(table)


if __name__ == "__main__":
    main()
