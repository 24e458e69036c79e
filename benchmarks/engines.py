"""One PPO update in the compiled engine against the eager one: the same loss, weights and batch, alternating.

    .venv/bin/python benchmarks/engines.py

Prints microseconds of CPU time an update (median of the rounds) and the ratio with its spread.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table

from train.runtime import load_paddle

load_paddle()

from paddleport.checkpoint import NetworkInfo  # noqa: E402 - Paddle reads its settings when it is first imported
from paddleport.spaces import Array, Box, Discrete  # noqa: E402
from train.distributions import distribution_for  # noqa: E402
from train.engines.base import Engine, Optimizer, Problem  # noqa: E402
from train.engines.compiled import CompiledEngine  # noqa: E402
from train.engines.eager import EagerEngine  # noqa: E402
from train.initialization import initial_weights  # noqa: E402
from train.losses import PPO_TERMS, features_in, ppo_loss  # noqa: E402
from train.network import ActorCritic  # noqa: E402

ROUNDS, UPDATES = 7, 60
SIZES = ((4, 64, 64), (4, 64, 256), (17, 256, 64), (17, 256, 256))
"""Observation size, width of both hidden layers, batch size."""


def problem(inputs: int, width: int, rows: int) -> Problem:
    """PPO on a Discrete(4) action space."""
    obs, actions = Box(shape=(inputs,), dtype="float32", low=None, high=None), Discrete(4)
    info = NetworkInfo(hidden_sizes=(width, width), activation="tanh", normalize_obs=True)
    per_row = ("log_prob", "advantage", "value_target", "weight")
    distribution = distribution_for(actions)
    return Problem(
        make_network=partial(ActorCritic, obs, actions, info),
        loss=lambda network, batch: ppo_loss(network.heads(features_in(batch, "obs")), batch, distribution, 0.5, 0.0),
        terms=PPO_TERMS,
        batch_shapes={
            "obs.vector": ((rows, inputs), "float32"),
            "action": ((rows,), "int64"),
            "clip_range": ((1,), "float32"),
            **dict.fromkeys(per_row, ((rows,), "float32")),
        },
        max_grad_norm=0.5,
        optimizer=Optimizer("adam", 1e-5),
    )


def example(posed: Problem) -> dict[str, Array]:
    """A random batch."""
    rng = np.random.default_rng(0)
    batch = {name: rng.normal(size=shape).astype(kind) for name, (shape, kind) in posed.batch_shapes.items()}
    rows = len(batch["weight"])
    return batch | {
        "action": rng.integers(4, size=rows),
        "weight": np.ones(rows, np.float32),
        "clip_range": np.full(1, 0.2, np.float32),
    }


def microseconds(engine: Engine, batch: dict[str, Array]) -> float:
    """CPU time of one update."""
    started = time.process_time()
    for _ in range(UPDATES):
        engine.update(batch, 3e-4)
    return (time.process_time() - started) / UPDATES * 1e6


def main(rounds: int = ROUNDS) -> None:
    """Measure every size and print the table."""
    table = Table("obs → width, batch", "compiled µs", "eager µs", "eager / compiled (min … max)")
    for inputs, width, rows in SIZES:
        posed = problem(inputs, width, rows)
        batch = example(posed)
        engines: list[Engine] = [CompiledEngine(posed), EagerEngine(posed)]
        for engine in engines:
            engine.load_weights(initial_weights(posed.make_network(), np.random.default_rng(0)))
            microseconds(engine, batch)
        measured = np.array([[microseconds(engine, batch) for engine in engines] for _ in range(rounds)])
        compiled, eager = np.median(measured, axis=0)
        ratios = measured[:, 1] / measured[:, 0]
        spread = f"{np.median(ratios):.1f} ({ratios.min():.1f} … {ratios.max():.1f})"
        table.add_row(f"{inputs} → {width}, {rows}", f"{compiled:.0f}", f"{eager:.0f}", spread)
    Console().print(table)


if __name__ == "__main__":
    main()
