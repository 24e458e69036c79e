from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bundles
import paddleport
from paddleport.errors import ArtifactError, ObservationError, UsageError
from paddleport.policy import Policy

LEFT, RIGHT = [0.0, 0.0, -1.0, 0.0], [0.0, 0.0, 1.0, 0.0]


@pytest.fixture(scope="module")
def cartpole(published):
    return Policy.load(published)


@pytest.fixture(scope="module")
def reacher(published_box):
    return Policy.load(published_box)


def test_the_package_offers_the_policy():
    assert paddleport.Policy is Policy


def test_a_discrete_action_is_a_plain_int(cartpole):
    for obs, action in ((LEFT, 0), (RIGHT, 1), (np.array(RIGHT), 1), (tuple(RIGHT), 1)):
        assert type(cartpole.act(obs)) is int
        assert cartpole.act(obs) == action


def test_a_batch_of_discrete_actions_is_an_array(cartpole):
    actions = cartpole.act_batch([LEFT, RIGHT, RIGHT])
    assert actions.dtype == np.int64
    assert actions.tolist() == [0, 1, 1]


def test_a_box_action_is_an_array_in_the_bounds(reacher):
    obs = [0.5, -2.0, 3.0, 4.0]
    action = reacher.act(obs)
    assert action.dtype == np.float32
    assert action.shape == (2,)
    np.testing.assert_allclose(action, bundles.box_action(obs), rtol=1e-6)
    np.testing.assert_array_equal(reacher.act_batch([obs, obs]), [action, action])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4), min_size=1, max_size=8))
def test_a_batch_acts_as_its_rows_do(cartpole, reacher, batch):
    assert cartpole.act_batch(batch).tolist() == [cartpole.act(obs) for obs in batch]
    np.testing.assert_allclose(reacher.act_batch(batch), [reacher.act(obs) for obs in batch], rtol=1e-6)


def test_outputs_has_every_output_of_the_graph_by_name(cartpole):
    outputs = cartpole.outputs([LEFT, RIGHT])
    assert list(outputs) == ["action", "logits", "value"]
    assert outputs["action"].tolist() == [0, 1]
    assert outputs["logits"].tolist() == [[1, -1], [-1, 1]]
    assert outputs["value"].tolist() == [bundles.value(LEFT), bundles.value(RIGHT)]


@pytest.mark.parametrize("obs", [[1, 2, 3], [1, 2, 3, None], [1, 2, 3, np.nan], "left", [LEFT]])
def test_what_is_no_observation_is_refused(cartpole, obs):
    with pytest.raises(ObservationError, match="does not fit the policy: expected"):
        cartpole.act(obs)


@pytest.mark.parametrize("ask", ["act_batch", "outputs"])
@pytest.mark.parametrize("obs", [[], LEFT, [[1, 2, 3]], [LEFT, RIGHT[:3]], [[*LEFT[:3], np.inf]]])
def test_what_is_no_batch_is_refused(cartpole, ask, obs):
    with pytest.raises(ObservationError, match="does not fit the policy: expected"):
        getattr(cartpole, ask)(obs)


def test_each_precision_says_what_runs(published):
    for precision in ("float32", "int8"):
        policy = Policy.load(published, precision=precision)
        assert (policy.precision, policy.provider) == (precision, "CPUExecutionProvider")
        assert policy.act(RIGHT) == 1


@pytest.mark.parametrize("precision", ["fp16", "", "FLOAT32"])
def test_an_unknown_precision_is_refused(published, precision):
    with pytest.raises(UsageError, match=rf"no {precision} policy: expected one of float32, int8, got {precision}"):
        Policy.load(published, precision=precision)


@pytest.mark.parametrize("providers", [("CUDAExecutionProvider",), ("CUDAExecutionProvider", "CPUExecutionProvider")])
@pytest.mark.filterwarnings("ignore")
def test_a_provider_that_is_not_in_use_is_refused(published, providers):
    message = "expected CUDAExecutionProvider, got CPUExecutionProvider. This machine has .*CPUExecutionProvider"
    with pytest.raises(UsageError, match=message):
        Policy.load(published, providers=providers)


@pytest.mark.parametrize("providers", [[], (), "CPUExecutionProvider"])
def test_providers_that_are_no_list_of_names_are_refused(published, providers):
    with pytest.raises(UsageError, match=r"providers are not a list of names.*CPUExecutionProvider"):
        Policy.load(published, providers=providers)


@pytest.mark.parametrize("threads", [-1, 1.5, "2", 2**40])
def test_an_odd_number_of_threads_is_refused(published, threads):
    with pytest.raises(UsageError, match="Threads within an operator: expected a whole number up to 1024"):
        Policy.load(published, threads=threads)


@pytest.mark.parametrize("rng", [5, np.random, np.random.RandomState(0)])
def test_what_is_no_generator_draws_no_action(cartpole, rng):
    with pytest.raises(UsageError, match=r"expected np.random.default_rng\(seed\)"):
        cartpole.act(np.zeros(4, np.float32), deterministic=False, rng=rng)


def test_the_newest_version_is_loaded(bundle):
    bundles.publish_discrete(bundle.parent.parent, flip=True)
    assert Policy.load(bundle.parent).act(RIGHT) == 0
    assert Policy.load(str(bundle)).act(RIGHT) == 1


def test_a_policy_goes_on_when_its_bundle_is_deleted_or_damaged(bundle):
    policy = Policy.load(bundle)
    for path in bundle.iterdir():
        path.write_bytes(b"damaged")
    assert policy.act(RIGHT) == 1
    with pytest.raises(ArtifactError):
        Policy.load(bundle)


def test_threads_share_a_policy(cartpole):
    batch = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(cartpole.act, batch)) == cartpole.act_batch(batch).tolist()


def test_what_an_environments_reset_returned_is_an_observation(bundle):
    policy = Policy.load(bundle)
    obs = [0.1, 0.2, 0.3, 0.4]
    assert policy.act((obs, {"some": "info"})) == policy.act(obs)


def test_actions_are_drawn_from_the_distribution(tmp_path):
    policy = Policy.load(bundles.publish_discrete(tmp_path))
    obs = [0.0, 0.0, 0.5, 0.0]  # logits of -0.5 and 0.5: the right one with probability sigmoid(1)
    drawn = policy.act_batch([obs] * 20_000, deterministic=False, rng=np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(1 / (1 + np.exp(-1)), abs=0.01)
    assert type(policy.act(obs, deterministic=False)) is int


def test_the_same_generator_draws_the_same_actions(cartpole, tmp_path):
    gaussian = Policy.load(bundles.publish_gaussian(tmp_path))
    for policy in (cartpole, gaussian):
        obs = np.full((8, *policy.manifest.observation_space.shape), 0.1, np.float32)
        first, second = (
            policy.act_batch(obs, deterministic=False, rng=np.random.default_rng(3)).tolist() for _ in range(2)
        )
        assert first == second
        assert first != policy.act_batch(obs, deterministic=False, rng=np.random.default_rng(4)).tolist()


def test_a_drawn_box_action_lies_in_the_bounds(tmp_path):
    policy = Policy.load(bundles.publish_gaussian(tmp_path, log_std=3.0))
    obs = np.zeros((500, *policy.manifest.observation_space.shape), np.float32)
    drawn = policy.act_batch(obs, deterministic=False, rng=np.random.default_rng(0))
    low, high = policy.manifest.action_space.bounds()
    assert (low <= drawn).all()
    assert (drawn <= high).all()
    assert len(np.unique(drawn)) > 1


def test_q_values_and_values_are_given_for_one_observation(cartpole, tmp_path):
    dqn = Policy.load(bundles.publish_values(tmp_path))
    obs = np.zeros(dqn.manifest.observation_space.shape, np.float32)
    assert dqn.q_values(obs).shape == (dqn.manifest.action_space.n,)
    assert dqn.q_values(obs).argmax() + dqn.manifest.action_space.start == dqn.act(obs)
    assert cartpole.value(LEFT) == bundles.value(LEFT)
    assert type(cartpole.value((LEFT, {}))) is float


def test_what_a_policy_does_not_have_is_refused(cartpole, tmp_path):
    dqn = Policy.load(bundles.publish_values(tmp_path))
    with pytest.raises(UsageError, match="no distribution to draw from"):
        dqn.act(np.zeros(dqn.manifest.observation_space.shape, np.float32), deterministic=False)
    with pytest.raises(UsageError, match="no output 'q_values': expected one of action, logits, value"):
        cartpole.q_values(LEFT)
