"""How long a policy takes on this machine's CPU, one form beside the other."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from paddleport.session import Session
from paddleport.spaces import Leaves, batch_size, rows_of

BATCHES = (1, 64)
_ROUNDS = 15
_ROUND_S = 0.02
_MOST = 200


def latencies(sessions: Mapping[str, Session], obs: Leaves, rounds: int = _ROUNDS) -> dict[str, dict[str, float]]:
    """Microseconds of a call on one thread, for each session and batch size.

    The sessions take turns in short rounds, so that what else the machine does meets all of them alike; the figure is
    the median of all calls.

    Args:
        sessions: by precision.
        obs: observations [n, …], repeated where a batch is larger.
        rounds: how many turns each has.

    Returns:
        By precision and batch size, as text: `{"float32": {"1": 26.0, "64": 41.0}}`.
    """
    found: dict[str, dict[str, float]] = {name: {} for name in sessions}
    for batch in BATCHES:
        rows = rows_of(obs, np.arange(batch) % batch_size(obs))
        counts = {name: _calls_in_a_round(session, rows) for name, session in sessions.items()}
        times: dict[str, list[float]] = {name: [] for name in sessions}
        for _ in range(rounds):
            for name, session in sessions.items():
                times[name] += _calls(session, rows, counts[name])
        for name, values in times.items():
            found[name][str(batch)] = round(float(np.median(values)) * 1e6, 2)
    return found


def _calls_in_a_round(session: Session, rows: Leaves) -> int:
    typical = float(np.median(_calls(session, rows, 8)))  # the first calls set things up
    return int(np.clip(_ROUND_S / max(typical, 1e-9), 1, _MOST))


def _calls(session: Session, rows: Leaves, count: int) -> list[float]:
    """Seconds that each of some calls took."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        session.run(rows, None)
        times.append(time.perf_counter() - began)
    return times
