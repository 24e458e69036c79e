import numpy as np
import pytest

from train.gae import generalized_advantages


def column(*values):
    return np.array(values, dtype=np.float32)[:, None]


def test_a_rollout_without_an_end_matches_the_sum_by_hand():
    # δ = 1 + 0.5·V' - V: 1 + 1 - 1, 1 + 1.5 - 2, 1 + 2 - 3
    advantages = generalized_advantages(
        column(1, 1, 1), column(1, 2, 3), column(2, 3, 4), column(0, 0, 0), column(0, 0, 0), 0.5, 0.5
    )
    last = 0.0
    middle = 0.5 + 0.25 * last
    first = 1.0 + 0.25 * middle
    assert advantages[:, 0] == pytest.approx([first, middle, last])


def test_termination_takes_no_value_after_the_end():
    advantages = generalized_advantages(column(5), column(2), column(100), column(1), column(1), 0.9, 0.9)
    assert advantages[0, 0] == pytest.approx(5 - 2)


def test_truncation_bootstraps_from_the_last_observation():
    advantages = generalized_advantages(column(5), column(2), column(100), column(0), column(1), 0.9, 0.9)
    assert advantages[0, 0] == pytest.approx(5 + 0.9 * 100 - 2)


def test_nothing_passes_over_an_end_and_its_reset_row():
    # Row 1 ends an episode, row 2 is the ignored step, row 3 belongs to the next episode.
    def advantages(reward_of_next_episode):
        return generalized_advantages(
            column(1, 2, 77, reward_of_next_episode),
            column(1, 1, 55, 1),
            column(1, 10, 66, 1),
            column(0, 0, 0, 0),
            column(0, 1, 0, 0),
            0.9,
            0.8,
        )[:2, 0]

    truncated = 2 + 0.9 * 10 - 1
    assert advantages(3) == pytest.approx([1 + 0.9 - 1 + 0.72 * truncated, truncated])
    assert advantages(3) == pytest.approx(advantages(1000))


def test_lambda_one_is_the_discounted_return_minus_the_value():
    rewards, values = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    following = np.concatenate([values[1:], np.full((1, 3), 0.5, np.float32)])
    zeros = np.zeros((6, 3), dtype=bool)
    advantages = generalized_advantages(rewards, values, following, zeros, zeros, 0.9, 1.0)
    discounts = 0.9 ** np.arange(6)
    expected = (discounts[:, None] * rewards).sum(axis=0) + 0.9**6 * 0.5 - values[0]
    assert advantages[0] == pytest.approx(expected, abs=1e-5)
