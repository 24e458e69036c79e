import numpy as np
import paddle
import pytest
from scipy import stats

from paddleport.errors import UsageError
from paddleport.spaces import Box, Discrete
from train.distributions import Categorical, DiagonalGaussian

LOGITS = np.array([[0.0, 1.0, -2.0], [5.0, 5.0, 5.0]], dtype=np.float32)
BOX = Box(shape=(2,), dtype="float32", low=(-1.0, 0.5), high=(3.0, 2.5))


def test_categorical_log_probability_and_entropy_equal_scipy():
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    actions = np.array([2, 0])
    log_prob, entropy = Categorical(Discrete(3)).log_prob_and_entropy(
        {"logits": paddle.to_tensor(LOGITS)}, paddle.to_tensor(actions)
    )
    assert log_prob.numpy() == pytest.approx(np.log(probabilities[[0, 1], actions]), abs=1e-6)
    assert entropy.numpy() == pytest.approx(stats.entropy(probabilities, axis=1), abs=1e-6)


def test_gaussian_log_probability_and_entropy_equal_scipy():
    mean = np.array([[0.3, -0.7]], dtype=np.float32)
    log_std = np.array([[-0.5, 0.4]], dtype=np.float32)
    action = np.array([[0.1, 1.2]], dtype=np.float32)
    log_prob, entropy = DiagonalGaussian(BOX).log_prob_and_entropy(
        {"mean": paddle.to_tensor(mean), "log_std": paddle.to_tensor(log_std)}, paddle.to_tensor(action)
    )
    normal = stats.norm(mean, np.exp(log_std))
    assert log_prob.numpy() == pytest.approx(normal.logpdf(action).sum(axis=1), abs=1e-6)
    assert entropy.numpy() == pytest.approx(normal.entropy().sum(axis=1), abs=1e-6)


def test_categorical_samples_follow_the_probabilities():
    logits = np.repeat(LOGITS[:1], 60_000, axis=0)
    actions, _ = Categorical(Discrete(3)).sample({"logits": logits}, np.random.default_rng(0))
    expected = np.exp(LOGITS[0]) / np.exp(LOGITS[0]).sum()
    assert np.bincount(actions, minlength=3) / len(actions) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize("space", [Discrete(3), BOX])
def test_sampling_reports_the_log_probability_that_learning_computes(space):
    rng = np.random.default_rng(1)
    if isinstance(space, Discrete):
        distribution, heads = Categorical(space), {"logits": rng.normal(size=(32, 3)).astype(np.float32)}
    else:
        distribution = DiagonalGaussian(space)
        heads = {name: rng.normal(size=(32, 2)).astype(np.float32) for name in ("mean", "log_std")}
    actions, log_probs = distribution.sample(heads, rng)
    tensors = {name: paddle.to_tensor(value) for name, value in heads.items()}
    learnt, _ = distribution.log_prob_and_entropy(tensors, paddle.to_tensor(actions))
    assert log_probs == pytest.approx(learnt.numpy(), abs=1e-5)


def test_gaussian_actions_reach_the_environment_inside_its_bounds():
    actions = np.array([[-1, -1], [1, 1], [0, 0], [-9, 9]], dtype=np.float32)
    expected = [[-1, 0.5], [3, 2.5], [1, 1.5], [-1, 2.5]]
    assert DiagonalGaussian(BOX).to_environment(actions) == pytest.approx(np.array(expected))


def test_discrete_actions_start_where_the_space_starts():
    assert Categorical(Discrete(3, start=-1)).to_environment(np.array([0, 2])).tolist() == [-1, 1]


def test_a_dimension_without_two_bounds_passes_through_and_keeps_the_bound_it_has():
    space = Box(shape=(3,), dtype="float64", low=(None, 0.0, None), high=(None, None, 1.0))
    actions = DiagonalGaussian(space).to_environment(np.array([[7.0, -3.0, 9.0], [-7.0, 5.0, -9.0]]))
    assert actions.tolist() == [[7.0, 0.0, 1.0], [-7.0, 5.0, -9.0]]
    assert actions.dtype == np.float64


@pytest.mark.parametrize("bounds", [(-0.3, 0.1), (-0.1, 0.1), (0.7, 0.9), (1e-9, 1e-8)])
def test_float64_bounds_that_float32_cannot_say_are_never_left(bounds):
    space = Box(shape=(1,), dtype="float64", low=bounds[0], high=bounds[1])
    actions = DiagonalGaussian(space).to_environment(np.array([[-5.0], [5.0], [0.0]], dtype=np.float32))
    assert (actions >= bounds[0]).all()
    assert (actions <= bounds[1]).all()
    assert actions[:2, 0] == pytest.approx(bounds, rel=1e-6)


def test_bounds_further_apart_than_float32_reaches_are_refused():
    with pytest.raises(UsageError, match="wider than float32"):
        DiagonalGaussian(Box(shape=(1,), dtype="float64", low=-1e300, high=1e300))
