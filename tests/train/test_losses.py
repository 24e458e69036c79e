import numpy as np
import paddle
import pytest

from paddleport.spaces import Discrete
from train.distributions import Categorical
from train.losses import ppo_loss


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
