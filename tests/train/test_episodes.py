import numpy as np
import pytest

import environments  # noqa: F401 - registers the environments
from train.episodes import play


def lean(obs):
    """A CartPole policy of one line that falls sooner or later: push towards the side the pole leans to."""
    return (obs["obs"][:, 2] > 0).astype(np.int64)


def still(obs):
    return [0] * len(obs["obs"])


def test_episodes_are_the_same_however_many_are_played_side_by_side():
    alone, together = (play(lean, "CartPole-v1", 12, seed=3, parallel=width) for width in (1, 5))
    assert alone.returns.tolist() == together.returns.tolist()
    assert len(set(alone.returns.tolist())) > 1


def test_episode_k_is_seeded_with_seed_plus_k():
    assert play(lean, "CartPole-v1", 6, seed=3).returns[2] == play(lean, "CartPole-v1", 1, seed=5).returns[0]


def test_every_episode_counts_once():
    ended = []
    played = play(still, "Terminates-v0", 7, seed=0, parallel=3, on_episode=lambda: ended.append(1))
    assert played.returns.tolist() == [3.0] * 7
    assert played.lengths.tolist() == [3] * 7
    assert len(ended) == 7


def test_statistics_describe_the_returns():
    statistics = play(lean, "CartPole-v1", 5, seed=0).statistics
    returns = play(lean, "CartPole-v1", 5, seed=0).returns
    assert statistics.mean == pytest.approx(returns.mean())
    assert statistics.std == pytest.approx(returns.std())
    assert (statistics.min, statistics.max, statistics.episodes) == (returns.min(), returns.max(), 5)


def test_visited_observations_are_thinned_evenly():
    played = play(still, "Forever-v0", 1, seed=0, keep=30)
    assert played.observations["obs"][:, 0].tolist() == list(range(0, 100, 4))
