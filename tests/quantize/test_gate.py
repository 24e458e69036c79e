"""What the gate lets pass, from numbers known by hand."""

import numpy as np
import pytest
from scipy import stats

from paddleport.errors import GateError
from paddleport.manifest import ReturnStatistics
from paddleport.spaces import Box, Discrete
from quantize import gate
from train.episodes import Episodes


def played(returns) -> Episodes:
    returns = np.asarray(returns, dtype=np.float64)
    return Episodes(returns, np.ones(len(returns), np.int64), np.zeros(0), seed=7)


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 9, 19, 99, 1000])
def test_student_quantile(freedom):
    assert gate.student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=6e-3)


def test_half_width_of_a_mean():
    values = np.array([1.0, 2.0, 4.0, 9.0])
    interval = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values))
    assert gate.half_width(values.std(), 4) == pytest.approx(interval[1] - values.mean(), rel=6e-3)
    assert gate.half_width(0.0, 1) is None


def test_agreement_of_discrete_actions_is_the_share_of_equal_ones():
    assert gate.action_agreement(Discrete(n=3), np.array([0, 1, 2, 0]), np.array([0, 1, 2, 2])) == 0.75


def test_agreement_of_box_actions_is_measured_by_the_range():
    space = Box(shape=(2,), dtype="float32", low=(-2.0, None), high=(2.0, None))
    expected = np.array([[0.0, 10.0], [1.0, 30.0]])
    got = expected + np.array([[0.4, 2.0], [0.0, 0.0]])
    assert gate.action_agreement(space, expected, got) == pytest.approx(1 - (0.4 / 4 + 2 / 20) / 4)
    assert gate.action_agreement(space, expected, expected) == 1


def test_returns_are_compared_episode_by_episode():
    compared = gate.compare_returns(played([10, 20, 30]), played([9, 19, 29]))
    assert (compared.drop, compared.interval) == (1.0, 0.0)
    assert compared.relative_drop == pytest.approx(0.05)


def comparison(drop: float, interval: float | None, mean: float = 100.0) -> gate.ReturnComparison:
    reference = ReturnStatistics(mean=mean, std=1, min=0, max=200, episodes=20, seed=7)
    candidate = ReturnStatistics(mean=mean - drop, std=1, min=0, max=200, episodes=20, seed=7)
    return gate.ReturnComparison(reference=reference, candidate=candidate, drop=drop, interval=interval)


@pytest.mark.parametrize(
    ("agreement", "drop", "interval", "mean"),
    [(0.98, 0, 0, 100), (1, 2, 0, 100), (1, 40, 41, 100), (1, 40, None, 100), (1, -50, 0, 100), (1, 2, 0, -100)],
)
def test_it_lets_pass(agreement, drop, interval, mean):
    gate.check("It", agreement, comparison(drop, interval, mean), gate.Tolerance(), "Try again")


@pytest.mark.parametrize(
    ("agreement", "drop", "interval", "mean", "said"),
    [
        (0.9799, 0, 0, 100, "agreement of at least 0.98, got 0.9799"),
        (float("nan"), 0, 0, 100, "agreement"),
        (1, 3, 2.5, 100, "97.0 over 20 episodes (3.0% less)"),
        (1, 6, 5, -100, "-106.0 over 20 episodes"),
        (1, 1, 0.5, 0, "-1.0"),
    ],
)
def test_it_refuses_and_says_which_figure_failed(agreement, drop, interval, mean, said):
    with pytest.raises(GateError) as caught:
        gate.check("It", agreement, comparison(drop, interval, mean), gate.Tolerance(), "Try again")
    assert said in str(caught.value)
    assert str(caught.value).endswith("Try again.")
