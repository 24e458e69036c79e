from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddleport.spaces import Discrete
from train.distributions import Categorical
from train.losses import a2c_loss, dqn_loss, huber, ppo_loss


def terms(weight, value_coef=0.5, entropy_coef=0.01):
    """Three rows whose new probability of action 0 is 0.5, 0.5 and 0.8."""
    logits = np.log(np.array([[0.5, 0.5], [0.5, 0.5], [0.8, 0.2]], dtype=np.float32))
    batch = {
        "action": np.array([0, 0, 0]),
        "log_prob": np.log(np.array([0.25, 0.5, 0.8], dtype=np.float32)),
        "advantage": np.array([1.0, -2.0, 3.0], dtype=np.float32),
        "value_target": np.array([1.0, 0.0, 2.0], dtype=np.float32),
        "weight": np.array(weight, dtype=np.float32),
        "clip_range": np.array([0.2], dtype=np.float32),
    }
    outputs = {"logits": paddle.to_tensor(logits), "value": paddle.to_tensor(np.zeros((3, 1), np.float32))}
    tensors = {name: paddle.to_tensor(value) for name, value in batch.items()}
    result = ppo_loss(outputs, tensors, Categorical(Discrete(2)), value_coef, entropy_coef)
    return {name: float(value) for name, value in result.items()}


def test_the_surrogate_is_clipped_as_computed_by_hand():
    # Ratios 2, 1, 1: the first is clipped to 1.2.
    result = terms([1, 1, 1])
    assert result["policy_loss"] == pytest.approx(-(1.2 * 1 - 2 + 3) / 3, abs=1e-6)
    assert result["clip_fraction"] == pytest.approx(1 / 3, abs=1e-6)
    assert result["approx_kl"] == pytest.approx((2 - 1 - np.log(2)) / 3, abs=1e-6)


def test_the_value_term_is_the_mean_squared_error():
    assert terms([1, 1, 1])["value_loss"] == pytest.approx((1 + 0 + 4) / 3, abs=1e-6)


def test_the_total_weighs_its_parts():
    result = terms([1, 1, 1], value_coef=0.7, entropy_coef=0.3)
    entropy = (2 * np.log(2) - (0.8 * np.log(0.8) + 0.2 * np.log(0.2))) / 3
    assert result["entropy"] == pytest.approx(entropy, abs=1e-6)
    expected = result["policy_loss"] + 0.7 * result["value_loss"] - 0.3 * entropy
    assert result["loss"] == pytest.approx(expected, abs=1e-6)


def test_rows_of_weight_zero_count_for_nothing():
    result = terms([0, 1, 0])
    assert result["policy_loss"] == pytest.approx(2, abs=1e-6)
    assert result["value_loss"] == pytest.approx(0, abs=1e-6)
    assert result["entropy"] == pytest.approx(np.log(2), abs=1e-6)


def test_the_policy_gradient_is_as_computed_by_hand():
    logits = np.log(np.array([[0.5, 0.5], [0.8, 0.2]], dtype=np.float32))
    batch = {
        "action": np.array([0, 1]),
        "advantage": np.array([2.0, -1.0], dtype=np.float32),
        "value_target": np.array([1.0, 3.0], dtype=np.float32),
        "weight": np.ones(2, dtype=np.float32),
    }
    outputs = {"logits": paddle.to_tensor(logits), "value": paddle.to_tensor(np.ones((2, 1), np.float32))}
    tensors = {name: paddle.to_tensor(value) for name, value in batch.items()}
    result = a2c_loss(outputs, tensors, Categorical(Discrete(2)), 0.25, 0.1)
    policy = -(2 * np.log(0.5) - np.log(0.2)) / 2
    entropy = (np.log(2) - (0.8 * np.log(0.8) + 0.2 * np.log(0.2))) / 2
    assert float(result["policy_loss"]) == pytest.approx(policy, abs=1e-6)
    assert float(result["value_loss"]) == pytest.approx(2.0, abs=1e-6)
    assert float(result["loss"]) == pytest.approx(policy + 0.25 * 2 - 0.1 * entropy, abs=1e-6)


def test_huber_is_half_the_square_inside_one_and_linear_beyond():
    errors = paddle.to_tensor(np.array([-3.0, -1.0, 0.5, 0.0, 2.0], np.float32))
    assert huber(errors).numpy() == pytest.approx([2.5, 0.5, 0.125, 0.0, 1.5])


class Table:
    """A network whose Q-values are those of a table; the observation is a row of it."""

    def __init__(self, rows):
        self.rows = paddle.to_tensor(np.array(rows, np.float32))

    def heads(self, features):
        return {"q_values": paddle.gather(self.rows, features["vector"].astype("int64").squeeze(-1))}


@pytest.mark.parametrize(
    ("double", "next_value"),
    [(False, 9.0), (True, 4.0)],  # the target's own best, and the target's value of the online network's best
)
def test_q_targets_are_as_computed_by_hand(double, next_value):
    network = SimpleNamespace(online=Table([[1.0, 2.0], [7.0, 3.0]]), target=Table([[0.0, 0.0], [4.0, 9.0]]))
    batch = {
        "obs.vector": np.array([[0.0], [0.0]], np.float32),
        "next_obs.vector": np.array([[1.0], [1.0]], np.float32),
        "action": np.array([1, 0]),
        "returns": np.array([0.5, 0.25], np.float32),
        "discounts": np.array([0.9, 0.0], np.float32),  # the second episode terminated
        "weight": np.array([1.0, 0.5], np.float32),
    }
    result = dqn_loss(network, {name: paddle.to_tensor(value) for name, value in batch.items()}, double=double)
    errors = np.array([2.0 - (0.5 + 0.9 * next_value), 1.0 - 0.25])
    assert result["td_errors"].numpy() == pytest.approx(errors, rel=1e-6)
    expected = np.mean([abs(errors[0]) - 0.5, 0.5 * 0.5 * errors[1] ** 2])
    assert float(result["loss"]) == pytest.approx(expected, rel=1e-6)
