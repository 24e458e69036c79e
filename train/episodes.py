"""Whole episodes played by any policy: the trainer's, an ONNX file's, or one behind HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from paddleport.manifest import ReturnStatistics
from paddleport.spaces import Array, Leaves, Space, leaves_of
from train.environments import describe_space, make_environment
from train.environments.guarded import Guarded
from train.stepping import check_finite

MAX_EPISODE_STEPS = 100_000
"""An episode that is still going on then is cut: some environments never end one."""

BatchPolicy: TypeAlias = Callable[[Leaves], Any]
"""Observations [batch, …] by the names of the graph's inputs → the environment's actions, one a row."""


class Stopped(Exception):  # noqa: N818 - no error
    """Playing was stopped before all episodes had ended."""


@dataclass(frozen=True)
class Episodes:
    """What came of playing."""

    returns: Array
    """Undiscounted return of each episode, float64 [episodes]."""
    lengths: Array
    """Steps of each episode, int64 [episodes]."""
    observations: Leaves
    """Visited observations, evenly thinned, each array [at most `keep`, …]."""
    seed: int

    @property
    def statistics(self) -> ReturnStatistics:
        """Mean, standard deviation (population), smallest and largest return."""
        returns = self.returns
        return ReturnStatistics(
            mean=float(returns.mean()),
            std=float(returns.std()),
            min=float(returns.min()),
            max=float(returns.max()),
            episodes=len(returns),
            seed=self.seed,
        )


def play(
    policy: BatchPolicy,
    env_id: str,
    episodes: int,
    seed: int,
    *,
    keep: int = 0,
    parallel: int = 16,
    on_episode: Callable[[], None] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Guarded], None] | None = None,
) -> Episodes:
    """Play whole episodes; episode k starts from `reset(seed=seed + k)`.

    Every episode counts, whatever its length, and `parallel` changes nothing but the time it takes: two policies
    that are played with the same seed meet the same episodes.

    Args:
        policy: the policy.
        env_id: a Gymnasium id.
        episodes: how many.
        seed: of the first one.
        keep: how many visited observations to keep at most.
        parallel: how many are played side by side, for the sake of batched inference.
        on_episode: called at each episode's end, for a progress bar.
        stop: asked at each step.
        watch: called with the first episode's environment, which is made to be drawn as "rgb_array", at the episode's
            start and after each of its steps.

    Raises:
        Stopped: `stop` said so.
        TrainingError: an environment failed, or gave a number that is not finite.
    """
    seats = [_seat(env_id, watch if number == 0 else None) for number in range(min(parallel, episodes))]
    visited = _Thinned(keep)
    returns, lengths = np.zeros(episodes), np.zeros(episodes, dtype=np.int64)
    waiting = iter(range(episodes))
    try:
        playing = [seat for seat in seats if seat.start(next(waiting, None), seed)]
        while playing:
            if stop():
                raise Stopped
            observations = _stacked([seat.obs for seat in playing])
            visited.extend([seat.obs for seat in playing])
            for seat, action in zip(playing, policy(observations), strict=True):
                if seat.step(action):
                    returns[seat.episode], lengths[seat.episode] = seat.total, seat.length
                    on_episode()
                    seat.start(next(waiting, None), seed)
            playing = [seat for seat in playing if not seat.empty]
    finally:
        for seat in seats:
            seat.env.close()
    return Episodes(returns, lengths, visited.arrays(), seed)


@dataclass
class _Seat:
    """One environment and the episode that it plays."""

    env: Guarded
    space: Space
    watch: Callable[[Guarded], None] | None = None
    obs: Leaves = field(default_factory=dict)
    episode: int = 0
    total: float = 0.0
    length: int = 0
    empty: bool = True

    def start(self, episode: int | None, seed: int) -> bool:
        """Begin an episode; None leaves the seat empty. Returns whether one is played now."""
        self.empty = episode is None
        if episode is not None:
            self.episode, self.total, self.length = episode, 0.0, 0
            obs, _ = self.env.reset(seed=seed + episode)
            self.obs = leaves_of(self.space, obs)
            self._show()
        return not self.empty

    def step(self, action: Any) -> bool:  # noqa: ANN401 - the environment's own action
        """Act once; returns whether the episode is over."""
        plain = int(action) if np.ndim(action) == 0 else action
        obs, reward, terminated, truncated, _ = self.env.step(plain)
        self.obs = leaves_of(self.space, obs)
        for name, array in self.obs.items():
            check_finite(f"an observation ({name})", array[np.newaxis], self.length)
        check_finite("a reward", np.array([reward]), self.length)
        self.total += float(reward)
        self.length += 1
        self._show()
        return bool(terminated or truncated or self.length >= MAX_EPISODE_STEPS)

    def _show(self) -> None:
        if self.watch and self.episode == 0:
            self.watch(self.env)


@dataclass
class _Thinned:
    """Every `stride`-th row of a stream, the stride doubling whenever there are too many."""

    limit: int
    stride: int = 1
    seen: int = 0
    rows: list[Leaves] = field(default_factory=list)

    def extend(self, batch: Sequence[Leaves]) -> None:
        """Offer observations, in order."""
        if not self.limit:
            return
        for row in batch:
            if self.seen % self.stride == 0:
                self.rows.append({name: array.copy() for name, array in row.items()})
            self.seen += 1
        while len(self.rows) > self.limit:
            self.rows, self.stride = self.rows[::2], self.stride * 2

    def arrays(self) -> Leaves:
        """The observations kept, each array [n, …]."""
        return _stacked(self.rows) if self.rows else {}


def _seat(env_id: str, watch: Callable[[Guarded], None] | None) -> _Seat:
    env = make_environment(env_id, render_mode="rgb_array" if watch else None)
    return _Seat(env, describe_space(env.observation_space), watch)


def _stacked(rows: Sequence[Leaves]) -> Leaves:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
