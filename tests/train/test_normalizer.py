import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.normalizer import RunningNormalizer


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
