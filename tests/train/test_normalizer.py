import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.normalizer import RewardNormalizer, RunningNormalizer


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.floats(-1e4, 1e4), st.floats(1e-2, 1e3))
def test_moments_do_not_depend_on_how_the_stream_is_cut(sizes, shift, scale):
    rows = np.random.default_rng(0).normal(shift, scale, size=(sum(sizes), 3))
    normalizer = RunningNormalizer(3)
    for batch in np.split(rows, np.cumsum(sizes)[:-1]):
        normalizer.update(batch)
    assert normalizer.mean == pytest.approx(rows.mean(axis=0), rel=1e-9)
    assert normalizer.variance == pytest.approx(rows.var(axis=0), rel=1e-6, abs=1e-9 * scale**2)


def test_normalised_observations_have_mean_zero_and_deviation_one():
    rows = np.random.default_rng(0).normal(100, 50, size=(500, 2)).astype(np.float32)
    normalizer = RunningNormalizer(2)
    normalizer.update(rows)
    features = normalizer.normalize(rows)
    assert features.dtype == np.float32
    assert features.mean(axis=0) == pytest.approx([0, 0], abs=1e-5)
    assert features.std(axis=0) == pytest.approx([1, 1], abs=1e-5)


def test_far_observations_are_clipped():
    normalizer = RunningNormalizer(1)
    normalizer.update(np.array([[0.0], [2.0]]))
    assert normalizer.normalize(np.array([[1e9], [-1e9]])).tolist() == [[10.0], [-10.0]]


def test_rewards_are_divided_by_the_deviation_of_discounted_returns_computed_by_hand():
    # γ = 0.5, two environments. Row 1 ends an episode in the first, row 2 is there no transition.
    rewards = np.array([[1.0, 2.0], [3.0, 0.0], [0.0, 4.0]], np.float32)
    done = np.array([[False, False], [True, False], [False, False]])
    valid = np.array([[True, True], [True, True], [False, True]])
    returns = [1.0, 2.0, 0.5 * 1 + 3, 0.5 * 2, 0.5 * 1 + 4]
    normalizer = RewardNormalizer(2, 0.5)
    scaled = normalizer.normalize(rewards, done, valid)
    assert scaled == pytest.approx(rewards / np.std(returns), rel=1e-6)
    assert normalizer.moments.count == 5
    following = normalizer.normalize(np.array([[2.0, 6.0]], np.float32), done[:1], valid[:1])
    returns += [2.0, 0.5 * 4.5 + 6]  # the first episode began anew, the second goes on
    assert following == pytest.approx(np.array([[2.0, 6.0]]) / np.std(returns), rel=1e-6)


def test_a_reset_forgets_episodes_and_keeps_moments():
    normalizer = RewardNormalizer(1, 0.9)
    flags = np.array([[False]]), np.array([[True]])
    normalizer.normalize(np.array([[5.0]], np.float32), *flags)
    normalizer.reset()
    normalizer.normalize(np.array([[1.0]], np.float32), *flags)
    assert normalizer.moments.mean == pytest.approx([(5 + 1) / 2])


def test_scaled_rewards_keep_their_sign_and_their_limit():
    normalizer = RewardNormalizer(1, 0.0)
    rewards = np.array([[-1.0]] * 999 + [[1000.0]], np.float32)
    scaled = normalizer.normalize(rewards, np.zeros_like(rewards, bool), np.ones_like(rewards, bool))
    assert (scaled[:-1] < 0).all()
    assert scaled[-1] == 10.0
    assert scaled.dtype == np.float32
