"""How far live observations lie from those of the training, and what the policy answers to them.

Each feature's distance is |x - mean| / std, in the training's own standard deviations. The features of an image or
another large part are watched as one, by their mean.
"""

from __future__ import annotations

import threading
from collections import deque

import msgspec
import numpy as np

from paddleport.features import MOST_NUMBERS, features, statistics_of
from paddleport.manifest import Manifest
from paddleport.spaces import Array, Box, Discrete, Leaves, MultiBinary, MultiDiscrete, batch_size, joined, rows_of

FAR = 4.0
"""Standard deviations from which an observation counts as far."""
EDGES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 50.0)
_MOST_ROWS = 64  # of one batch that are looked at
_TOGETHER = 256  # observations: looking at them costs the same for one as for all of these
_BINS = 10
_MOST_ACTIONS = 64
_SMALLEST_STD = 1e-3  # of a feature that hardly moved in the training, relative to its size


class DriftCounts(msgspec.Struct):
    """Sums over observations; everything can be added up."""

    observations: int = 0
    far: int = 0
    """Observations with a feature beyond `FAR`."""
    distance: list[int] = []
    """Observations by their largest distance, below each of `EDGES` and above the one before."""
    distance_sum: float = 0.0
    features: list[str] = []
    score_sum: list[float] = []
    """Σ (x - mean) / std of each feature."""
    score_squares: list[float] = []
    most: list[float] = []
    """The largest distance of each feature."""
    actions: list[list[int]] = []
    """For each action: how often each choice was made, or how often it fell into each tenth of the bounds."""


class Reference(msgspec.Struct, frozen=True):
    """What the observations of the training were like: one mean and one standard deviation a feature."""

    names: tuple[str, ...]
    mean: Array
    std: Array


def reference_of(manifest: Manifest, golden: Leaves) -> Reference | None:
    """The training's statistics as the bundle has them, else of its golden observations; None without features."""
    recorded = manifest.observation_statistics or statistics_of(manifest.observation_space, golden)
    if recorded is None:
        return None
    mean, std = np.array(recorded.mean), np.array(recorded.std)
    return Reference(recorded.names, mean, np.maximum(std, _SMALLEST_STD * np.maximum(1.0, np.abs(mean))))


def distances(reference: Reference, rows: Array) -> Array:
    """Each feature's distance from the training, signed, [batch, features]."""
    scores: Array = (rows - reference.mean) / reference.std
    return scores


class Drift:
    """Gathers what one worker sees of one policy.

    Args:
        manifest: of the policy.
        reference: the training's statistics, or None where nothing is watched.
    """

    def __init__(self, manifest: Manifest, reference: Reference | None) -> None:
        self._manifest = manifest
        self._reference = reference
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Leaves, Array | None]] = deque()
        self._rows = 0
        self._counts = DriftCounts(
            distance=[0] * (len(EDGES) + 1),
            features=list(reference.names) if reference else [],
            score_sum=[0.0] * (len(reference.names) if reference else 0),
            score_squares=[0.0] * (len(reference.names) if reference else 0),
            most=[0.0] * (len(reference.names) if reference else 0),
        )

    def add(self, obs: Leaves, actions: Array | None) -> None:
        """Take note of observations [batch, …] and the actions they got, or None where they were refused.

        Of a large batch some rows, evenly spread, stand for all.
        """
        rows = batch_size(obs)
        if rows > _MOST_ROWS:
            some = slice(None, None, -(-rows // _MOST_ROWS))
            obs, actions = rows_of(obs, some), None if actions is None else actions[some]
            rows = batch_size(obs)
        self._waiting.append((obs, actions))
        self._rows += rows
        if self._rows >= _TOGETHER:
            self._take_in()

    def counts(self) -> DriftCounts:
        """The sums so far."""
        self._take_in()
        return self._counts

    def _take_in(self) -> None:
        with self._lock:
            waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
            self._rows = 0
            if not waiting:
                return
            counts = self._counts
            counts.observations += sum(batch_size(obs) for obs, _ in waiting)
            if acted := [actions for _, actions in waiting if actions is not None]:
                _add_actions(counts, self._manifest, np.concatenate(acted))
            if self._reference:
                rows = features(self._manifest.observation_space, joined([obs for obs, _ in waiting]))
                _add_distances(counts, distances(self._reference, rows))


def _add_distances(counts: DriftCounts, scores: Array) -> None:
    away = np.abs(scores)
    largest = away.max(axis=1)
    counts.far += int((largest > FAR).sum())
    found = np.bincount(np.searchsorted(EDGES, largest), minlength=len(EDGES) + 1)
    counts.distance = [before + int(more) for before, more in zip(counts.distance, found, strict=True)]
    counts.distance_sum += float(largest.sum())
    counts.score_sum = [a + float(b) for a, b in zip(counts.score_sum, scores.sum(axis=0), strict=True)]
    counts.score_squares = [a + float(b) for a, b in zip(counts.score_squares, (scores**2).sum(axis=0), strict=True)]
    counts.most = [max(a, float(b)) for a, b in zip(counts.most, away.max(axis=0), strict=True)]


def _add_actions(counts: DriftCounts, manifest: Manifest, actions: Array) -> None:
    found = action_histogram(manifest, actions)
    if not counts.actions:
        counts.actions = found
    else:
        counts.actions = [
            [a + b for a, b in zip(*pair, strict=True)] for pair in zip(counts.actions, found, strict=True)
        ]


def action_histogram(manifest: Manifest, actions: Array) -> list[list[int]]:
    """How often each choice was made; of a Box, how often each tenth between its bounds was hit."""
    space = manifest.action_space
    if isinstance(space, Discrete):
        return [np.bincount(np.clip(actions - space.start, 0, _MOST_ACTIONS - 1),
                            minlength=min(space.n, _MOST_ACTIONS)).tolist()]  # fmt: skip
    columns = actions.reshape(len(actions), -1)[:, :MOST_NUMBERS]
    if isinstance(space, MultiDiscrete):
        return [
            np.bincount(columns[:, i] - start, minlength=n).tolist()
            for i, (start, n) in enumerate(zip(space.starts, space.nvec, strict=True))
        ]
    if isinstance(space, MultiBinary):
        return [np.bincount(columns[:, i], minlength=2).tolist() for i in range(columns.shape[1])]
    if isinstance(space, Box):
        low, high = (np.clip(bound.reshape(-1)[:MOST_NUMBERS], -10.0, 10.0) for bound in space.bounds())
        where = (columns - low) / np.maximum(high - low, _SMALLEST_STD) * _BINS
        bins = np.clip(where.astype(int), 0, _BINS - 1)
        return [np.bincount(bins[:, i], minlength=_BINS).tolist() for i in range(bins.shape[1])]
    return []
