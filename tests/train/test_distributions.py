import numpy as np
import paddle
import pytest
from scipy import integrate, special, stats

from paddleport.errors import UsageError
from paddleport.spaces import Box, Discrete, MultiBinary, MultiDiscrete, integer_range
from train.distributions import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    SquashedGaussian,
    distribution_for,
)

LOGITS = np.array([[0.0, 1.0, -2.0], [5.0, 5.0, 5.0]], dtype=np.float32)
BOX = Box(shape=(2,), dtype="float32", low=(-1.0, 0.5), high=(3.0, 2.5))
HALF_OPEN = Box(shape=(3,), dtype="float32", low=(-1.0, 0.0, None), high=(3.0, None, None))
SPACES = {
    "discrete": Discrete(3, start=2),
    "multi-discrete": MultiDiscrete(nvec=(3, 2), start=(1, -4)),
    "multi-binary": MultiBinary(shape=(2, 2)),
    "box": BOX,
    "half-open": HALF_OPEN,
    "grid": Box(shape=(2, 2), dtype="float64", low=(-0.1, 0.7, -3.0, 5.0), high=(0.1, 0.9, -2.0, 50.0)),
}


def learnt(distribution, heads, actions):
    """Log-probabilities and entropies as learning computes them."""
    tensors = {name: paddle.to_tensor(np.asarray(value, np.float32)) for name, value in heads.items()}
    return [each.numpy() for each in distribution.log_prob_and_entropy(tensors, paddle.to_tensor(actions))]


def heads_for(space, rows, rng, scale=1.0):
    if isinstance(space, Box):
        return {name: (scale * rng.normal(size=(rows, space.size))).astype(np.float32) for name in ("mean", "log_std")}
    size = {Discrete: lambda: space.n, MultiDiscrete: lambda: sum(space.nvec), MultiBinary: lambda: space.size}
    return {"logits": (scale * rng.normal(size=(rows, size[type(space)]()))).astype(np.float32)}


def each_space(test):
    cases = [(name, False) for name in SPACES] + [(name, True) for name in ("box", "half-open", "grid")]
    ids = [f"{name}, squashed" if squash else name for name, squash in cases]
    return pytest.mark.parametrize(("space", "squash"), [(SPACES[name], squash) for name, squash in cases], ids=ids)(
        test
    )


def test_categorical_log_probability_and_entropy_equal_scipy():
    probabilities = special.softmax(LOGITS, axis=1)
    actions = np.array([2, 0])
    log_prob, entropy = learnt(Categorical(Discrete(3)), {"logits": LOGITS}, actions)
    assert log_prob == pytest.approx(np.log(probabilities[[0, 1], actions]), abs=1e-6)
    assert entropy == pytest.approx(stats.entropy(probabilities, axis=1), abs=1e-6)


def test_multi_categorical_log_probability_and_entropy_are_the_sums_over_its_parts():
    logits = np.array([[0.0, 1.0, -2.0, 0.5, -0.5], [3.0, 0.0, 0.0, -1.0, 2.0]], np.float32)
    actions = np.array([[2, 0], [0, 1]])
    parts = [stats.rv_discrete(values=(range(3), special.softmax(row[:3]))) for row in logits]
    others = [stats.rv_discrete(values=(range(2), special.softmax(row[3:]))) for row in logits]
    log_prob, entropy = learnt(MultiCategorical(MultiDiscrete(nvec=(3, 2))), {"logits": logits}, actions)
    expected = [a.logpmf(x) + b.logpmf(y) for a, b, (x, y) in zip(parts, others, actions, strict=True)]
    assert log_prob == pytest.approx(expected, abs=1e-6)
    assert entropy == pytest.approx([a.entropy() + b.entropy() for a, b in zip(parts, others, strict=True)], abs=1e-6)


def test_bernoulli_log_probability_and_entropy_equal_scipy():
    logits = np.array([[0.0, 2.0, -3.0], [1.0, -0.5, 8.0]], np.float32)
    actions = np.array([[1, 0, 0], [0, 1, 1]], np.float32)
    coins = stats.bernoulli(special.expit(logits.astype(np.float64)))
    log_prob, entropy = learnt(Bernoulli(MultiBinary(shape=(3,))), {"logits": logits}, actions)
    assert log_prob == pytest.approx(coins.logpmf(actions).sum(axis=1), abs=1e-5)
    assert entropy == pytest.approx(coins.entropy().sum(axis=1), abs=1e-5)


def test_gaussian_log_probability_and_entropy_equal_scipy():
    mean = np.array([[0.3, -0.7]], dtype=np.float32)
    log_std = np.array([[-0.5, 0.4]], dtype=np.float32)
    action = np.array([[0.1, 1.2]], dtype=np.float32)
    log_prob, entropy = learnt(DiagonalGaussian(BOX), {"mean": mean, "log_std": log_std}, action)
    normal = stats.norm(mean, np.exp(log_std))
    assert log_prob == pytest.approx(normal.logpdf(action).sum(axis=1), abs=1e-6)
    assert entropy == pytest.approx(normal.entropy().sum(axis=1), abs=1e-6)


def squashed_density(mean, std):
    """p(a) of a = tanh(u), u ~ N(mean, std), by the change of variables u = artanh(a)."""
    return lambda a: stats.norm.pdf(np.arctanh(a), mean, std) / (1 - a**2)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.5), (0.7, 1.0), (-1.5, 0.3), (0.2, 1.6), (2.0, 1.0)])
def test_squashed_log_probability_is_the_density_of_the_tanh(mean, std):
    space = Box(shape=(1,), dtype="float32", low=-1.0, high=1.0)
    density = squashed_density(mean, std)
    assert integrate.quad(density, -1, 1, limit=500)[0] == pytest.approx(1, abs=1e-4)
    drawn = np.linspace(-2.5, 2.5, 11, dtype=np.float32)[:, None]
    heads = {"mean": np.full((11, 1), mean), "log_std": np.full((11, 1), np.log(std))}
    log_prob, _ = learnt(SquashedGaussian(space), heads, drawn)
    assert log_prob == pytest.approx(np.log(density(np.tanh(drawn[:, 0].astype(np.float64)))), abs=2e-4)


# The quadrature's error grows with the deviation, since log(1 - tanh²) bends at zero like -2|u|.
@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.1), (0.0, 0.5), (0.7, 1.0), (-1.5, 0.3), (0.2, 1.6), (4.0, 1.0)])
def test_squashed_entropy_is_that_of_numerical_integration(mean, std):
    def surprise(u):  # -log p(tanh(u)), weighed by the normal
        correction = 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))
        return -(stats.norm.logpdf(u, mean, std) - correction) * stats.norm.pdf(u, mean, std)

    expected = integrate.quad(surprise, mean - 12 * std, mean + 12 * std, limit=500)[0]
    space = Box(shape=(1,), dtype="float32", low=-1.0, high=1.0)
    heads = {"mean": np.array([[mean]]), "log_std": np.log([[std]])}
    _, entropy = learnt(SquashedGaussian(space), heads, np.zeros((1, 1), np.float32))
    assert entropy == pytest.approx([expected], abs=2e-3)


def test_dimensions_without_two_bounds_are_not_squashed():
    mean, log_std = np.array([[0.3, -0.7, 5.0]], np.float32), np.array([[-0.5, 0.4, 1.0]], np.float32)
    drawn = np.array([[0.4, -3.0, 9.0]], np.float32)
    squashed = SquashedGaussian(HALF_OPEN)
    log_prob, entropy = learnt(squashed, {"mean": mean, "log_std": log_std}, drawn)
    normal = stats.norm(mean[0], np.exp(log_std[0]))
    bounded = np.log(squashed_density(0.3, np.exp(-0.5))(np.tanh(0.4)))
    assert log_prob == pytest.approx([bounded + normal.logpdf(drawn[0])[1:].sum()], abs=1e-5)
    alone, one = learnt(
        SquashedGaussian(Box(shape=(1,), dtype="float32", low=-1.0, high=3.0)),
        {"mean": mean[:, :1], "log_std": log_std[:, :1]},
        drawn[:, :1],
    )
    assert alone == pytest.approx([bounded], abs=1e-5)
    assert entropy == pytest.approx(one + normal.entropy()[1:].sum(), abs=1e-5)
    actions = squashed.to_environment(drawn)
    assert actions[0] == pytest.approx([1 + 2 * np.tanh(0.4), 0.0, 9.0])


@each_space
def test_sampling_reports_the_log_probability_that_learning_computes(space, squash):
    rng = np.random.default_rng(1)
    distribution, heads = distribution_for(space, squash=squash), heads_for(space, 64, rng)
    actions, log_probs = distribution.sample(heads, rng)
    assert actions.shape == (64, *distribution.action_shape)
    assert actions.dtype in (np.dtype(distribution.action_dtype), np.float32)
    assert log_probs.dtype == np.float32
    assert log_probs == pytest.approx(learnt(distribution, heads, actions)[0], abs=2e-5)


@each_space
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_every_action_that_is_sampled_or_chosen_belongs_to_the_space(space, squash, scale):
    rng = np.random.default_rng(2)
    distribution, heads = distribution_for(space, squash=squash), heads_for(space, 500, rng, scale)
    if "log_std" in heads:
        heads["log_std"] = np.clip(heads["log_std"], -5, 5)
    for stored in (distribution.sample(heads, rng)[0], distribution.mode(heads)):
        actions = distribution.to_environment(stored)
        assert actions.shape == (500, *space.shape)
        assert actions.dtype == space.dtype
        if isinstance(space, Box):
            low, high = space.bounds()
        else:
            low, high = integer_range(space)
        assert (actions >= low).all()
        assert (actions <= high).all()
        assert np.isfinite(actions).all()


@each_space
@pytest.mark.parametrize("scale", [30.0, 1e4])
def test_extreme_heads_give_finite_log_probabilities_entropies_and_gradients(space, squash, scale):
    rng = np.random.default_rng(3)
    distribution, heads = distribution_for(space, squash=squash), heads_for(space, 64, rng, scale)
    if "log_std" in heads:
        heads["log_std"] = np.clip(heads["log_std"], -9, 9)
    actions, log_probs = distribution.sample(heads, rng)
    tensors = {name: paddle.to_tensor(value, stop_gradient=False) for name, value in heads.items()}
    log_prob, entropy = distribution.log_prob_and_entropy(tensors, paddle.to_tensor(actions))
    (log_prob + entropy).sum().backward()
    for array in (log_probs, log_prob.numpy(), entropy.numpy(), *(tensor.grad.numpy() for tensor in tensors.values())):
        assert np.isfinite(array).all()


def test_categorical_samples_follow_the_probabilities():
    logits = np.repeat(LOGITS[:1], 60_000, axis=0)
    actions, _ = Categorical(Discrete(3)).sample({"logits": logits}, np.random.default_rng(0))
    assert np.bincount(actions, minlength=3) / len(actions) == pytest.approx(special.softmax(LOGITS[0]), abs=0.006)


def test_multi_categorical_samples_follow_the_probabilities_independently():
    row = np.array([0.0, 1.0, -1.0, 0.5, -0.5], np.float32)
    space = MultiDiscrete(nvec=(3, 2))
    actions, _ = MultiCategorical(space).sample({"logits": np.tile(row, (60_000, 1))}, np.random.default_rng(0))
    counts = np.bincount(actions[:, 0] * 2 + actions[:, 1], minlength=6).reshape(3, 2) / len(actions)
    assert counts == pytest.approx(np.outer(special.softmax(row[:3]), special.softmax(row[3:])), abs=0.006)


def test_bernoulli_samples_follow_the_probabilities_independently():
    row = np.array([0.5, -1.0], np.float32)
    actions, _ = Bernoulli(MultiBinary(shape=(2,))).sample(
        {"logits": np.tile(row, (60_000, 1))}, np.random.default_rng(0)
    )
    assert actions.mean(axis=0) == pytest.approx(special.expit(row), abs=0.006)
    assert (actions[:, 0] * actions[:, 1]).mean() == pytest.approx(special.expit(row).prod(), abs=0.006)


@pytest.mark.parametrize("squash", [False, True])
def test_gaussian_samples_follow_the_density(squash):
    heads = {"mean": np.tile(np.float32([0.3, -0.2]), (20_000, 1)), "log_std": np.full((20_000, 2), -0.4, np.float32)}
    stored, _ = distribution_for(BOX, squash=squash).sample(heads, np.random.default_rng(0))
    for column, mean in zip(stored.T, (0.3, -0.2), strict=True):
        assert stats.kstest(column, stats.norm(mean, np.exp(-0.4)).cdf).pvalue > 1e-3
    if squash:
        actions = distribution_for(BOX, squash=True).to_environment(stored)
        assert actions == pytest.approx(np.array([1.0, 1.5]) + np.tanh(stored) * [2.0, 1.0], abs=1e-5)


def test_gaussian_actions_reach_the_environment_inside_its_bounds():
    actions = np.array([[-1, -1], [1, 1], [0, 0], [-9, 9]], dtype=np.float32)
    expected = [[-1, 0.5], [3, 2.5], [1, 1.5], [-1, 2.5]]
    assert DiagonalGaussian(BOX).to_environment(actions) == pytest.approx(np.array(expected))


def test_choices_start_where_their_space_starts():
    assert Categorical(Discrete(3, start=-1)).to_environment(np.array([0, 2])).tolist() == [-1, 1]
    space = MultiDiscrete(nvec=(3, 2), start=(1, -4))
    assert MultiCategorical(space).to_environment(np.array([[0, 1], [2, 0]])).tolist() == [[1, -3], [3, -4]]


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
