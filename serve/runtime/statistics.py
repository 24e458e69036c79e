"""What a worker counts, in a form that can be sent, added up over workers, and shown.

A request is noted by appending to a list; it is counted when a few hundred have come together, or somebody looks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, TypeVar

import msgspec
import numpy as np

from paddleport.spaces import Array
from serve.runtime.drift import Drift, DriftCounts
from serve.runtime.policy import ServedPolicy

SECONDS = (
    2.5e-5,
    5e-5,
    1e-4,
    2.5e-4,
    5e-4,
    1e-3,
    2.5e-3,
    5e-3,
    1e-2,
    2.5e-2,
    5e-2,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
STAGES = ("parse", "queue", "infer", "encode")

_TOGETHER = 512
Done = tuple[ServedPolicy, str, tuple[float, float, float, float, float], int, int]

S = TypeVar("S", bound=msgspec.Struct)


class Histogram(msgspec.Struct):
    """How many values fell below each edge and above the one before; the last count is of those above all."""

    counts: list[int]
    sum: float = 0.0

    def add(self, values: Array, edges: tuple[float, ...]) -> None:
        """Count values."""
        found = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1).tolist()
        self.counts = [before + more for before, more in zip(self.counts, found, strict=True)]
        self.sum += float(values.sum())


def _seconds() -> Histogram:
    return Histogram([0] * (len(SECONDS) + 1))


def _batches() -> Histogram:
    return Histogram([0] * (len(BATCHES) + 1))


class PolicyCounts(msgspec.Struct):
    """One version of one policy."""

    requests: dict[str, int] = {}
    """By protocol and status, such as `act 200`."""
    parse: Histogram = msgspec.field(default_factory=_seconds)
    queue: Histogram = msgspec.field(default_factory=_seconds)
    infer: Histogram = msgspec.field(default_factory=_seconds)
    encode: Histogram = msgspec.field(default_factory=_seconds)
    batch: Histogram = msgspec.field(default_factory=_batches)
    runs: int = 0
    """Executions of the graph; fewer than requests where batches were made."""
    breaches: dict[str, int] = {}
    """What the guard stopped, by what was wrong."""
    shadow: dict[str, int] = {}
    """Observations whose action was compared with another version's: `equal`, `different`, and `dropped` uncompared."""
    drift: DriftCounts = msgspec.field(default_factory=DriftCounts)
    last: float = 0.0
    """When it acted last, in seconds since 1970."""


class Counts(msgspec.Struct):
    """One worker, or all of them."""

    policies: dict[str, PolicyCounts] = {}
    """By name/version."""
    other: dict[str, int] = {}
    """Requests that reached no policy, by protocol and status."""
    now: dict[str, int] = {}
    """What there is at this moment: `in_flight`, `queued`, `connections`."""
    started: float = 0.0


class Statistics:
    """Counts of one worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[ServedPolicy, PolicyCounts] = {}
        self._gone: dict[str, PolicyCounts] = {}
        self._drifts: dict[ServedPolicy, Drift] = {}
        self._other: dict[str, int] = {}
        self._waiting: deque[Done] = deque()
        self._started = time.time()
        self.now: dict[str, int] = {}

    def done(
        self,
        policy: ServedPolicy,
        protocol: str,
        times: tuple[float, float, float, float, float],
        batch: int,
        runs: int,
    ) -> None:
        """A request was answered.

        Args:
            policy: what acted.
            protocol: `act` or `infer`.
            times: when it began, was parsed, was run, had its results, and was encoded.
            batch: its observations.
            runs: 1, or 0 where another request of its batch counts the run.
        """
        self._waiting.append((policy, protocol, times, batch, runs))
        if len(self._waiting) >= _TOGETHER:
            self._take_in()

    def _take_in(self) -> None:
        """Count what waits: a few hundred requests at once cost a tenth of what they cost one by one."""
        with self._lock:
            waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
            grouped: dict[tuple[ServedPolicy, str], list[Done]] = {}
            for done in waiting:
                grouped.setdefault(done[:2], []).append(done)
            for (policy, protocol), group in grouped.items():
                counts = self._counts.get(policy) or self._new(policy)
                key = protocol + " 200"
                counts.requests[key] = counts.requests.get(key, 0) + len(group)
                moments = np.array([done[2] for done in group])
                for stage, seconds in zip(STAGES, np.diff(moments, axis=1).T, strict=True):
                    getattr(counts, stage).add(seconds, SECONDS)
                counts.batch.add(np.array([done[3] for done in group]), BATCHES)
                counts.runs += sum(done[4] for done in group)
                counts.last = time.time()

    def failed(self, policy: ServedPolicy | None, protocol: str, status: int) -> None:
        """A request was answered with an error."""
        key = f"{protocol} {status}"
        with self._lock:
            kept = self._other if policy is None else (self._counts.get(policy) or self._new(policy)).requests
            kept[key] = kept.get(key, 0) + 1

    def breached(self, policy: ServedPolicy, what: str) -> None:
        """The guard stopped an action."""
        with self._lock:
            counts = self._counts.get(policy) or self._new(policy)
            counts.breaches[what] = counts.breaches.get(what, 0) + 1

    def compared(self, policy: ServedPolicy, outcome: str, observations: int) -> None:
        """A shadow's answers were compared, or dropped."""
        with self._lock:
            counts = self._counts.get(policy) or self._new(policy)
            counts.shadow[outcome] = counts.shadow.get(outcome, 0) + observations

    def drift(self, policy: ServedPolicy) -> Drift:
        """Where live observations and actions of a policy are gathered."""
        drift = self._drifts.get(policy)
        if drift is None:
            with self._lock:
                drift = self._drifts.setdefault(policy, Drift(policy.manifest, policy.reference))
        return drift

    def snapshot(self) -> Counts:
        """Everything counted so far."""
        self._take_in()
        with self._lock:
            policies = {key: _copy(counts) for key, counts in self._gone.items()}
            for policy, counts in self._counts.items():
                drift = self._drifts.get(policy)
                if drift:
                    counts.drift = drift.counts()
                key = _key(policy)
                policies[key] = merged(policies[key], counts) if key in policies else _copy(counts)
            return Counts(policies, dict(self._other), dict(self.now), self._started)

    def forget(self, still_open: list[ServedPolicy]) -> None:
        """Keep only the sums of policies that were closed."""
        self._take_in()
        with self._lock:
            for policy in self._counts.keys() - set(still_open):
                counts = self._counts.pop(policy)
                drift = self._drifts.pop(policy, None)
                if drift:
                    counts.drift = drift.counts()
                key = _key(policy)
                self._gone[key] = merged(self._gone[key], counts) if key in self._gone else counts

    def _new(self, policy: ServedPolicy) -> PolicyCounts:
        return self._counts.setdefault(policy, PolicyCounts())


def _key(policy: ServedPolicy) -> str:
    return f"{policy.manifest.name}/{policy.manifest.version}"


def _copy(counts: PolicyCounts) -> PolicyCounts:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(counts), type=PolicyCounts)


def merged(one: S, other: S) -> S:
    """The sum of two counts; where the field says `least`, `most` or a time, the smaller or larger of the two."""
    values = {name: _merged(name, getattr(one, name), getattr(other, name)) for name in one.__struct_fields__}
    return type(one)(**values)


def _merged(name: str, one: Any, other: Any) -> Any:  # noqa: ANN401 - numbers, lists, dicts and structs
    if isinstance(one, msgspec.Struct):
        return merged(one, other)
    if isinstance(one, dict):
        return {key: _merged(name, one[key], other[key]) if key in one and key in other else (one | other)[key]
                for key in one.keys() | other.keys()}  # fmt: skip
    if isinstance(one, list):
        if not one or not other:
            return one or other
        return [_merged(name, a, b) for a, b in zip(one, other, strict=True)]
    if name in ("last", "most"):
        return max(one, other)
    if name == "started":
        return min(one, other) if one and other else one or other
    if isinstance(one, str):
        return one
    return one + other
