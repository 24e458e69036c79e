import numpy as np
import pytest

from paddleport.checkpoint import NetworkInfo
from paddleport.errors import ArtifactError, UsageError
from paddleport.spaces import Box, DictSpace, Discrete
from train.acting import NumpyActor
from train.distributions import distribution_for
from train.initialization import initial_weights
from train.network import PolicyNetwork, QPolicyNetwork, load_arrays, run_network, state_arrays
from train.normalizer import RunningNormalizer

OBS = Box(shape=(3,), dtype="float32", low=None, high=None)
ACTIONS = {
    "discrete": Discrete(4, start=2),
    "box": Box(shape=(2,), dtype="float32", low=(-1.0, 0.5), high=(3.0, 2.5)),
}


def network(action_space, activation="tanh"):
    info = NetworkInfo(hidden_sizes=(16, 8), activation=activation, normalize_obs=True)
    made = PolicyNetwork(OBS, action_space, info)
    weights = {**state_arrays(made), **initial_weights(made, np.random.default_rng(3))}
    weights["policy_head.weight"] = weights["policy_head.weight"] * 100
    load_arrays(made, weights)
    return made


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("kind", ACTIONS)
def test_acting_in_numpy_equals_the_network(kind, activation):
    space = ACTIONS[kind]
    made = network(space, activation)
    rng = np.random.default_rng(0)
    obs = rng.normal(5, 3, size=(64, 3)).astype(np.float32)
    normalizer = RunningNormalizer(3)
    normalizer.update(obs)
    load_arrays(made, {**state_arrays(made), "obs_mean": normalizer.mean32, "obs_std": normalizer.std32})
    actor, distribution = NumpyActor(space, made.info), distribution_for(space)
    actor.load(state_arrays(made))
    heads = actor.heads({"vector": normalizer.normalize(obs)})
    outputs = run_network(made, {"obs": obs})
    for name in made.distribution_outputs:
        assert heads[name] == pytest.approx(outputs[name], abs=1e-5)
    assert actor.value({"vector": normalizer.normalize(obs)}) == pytest.approx(outputs["value"], abs=1e-5)
    actions = distribution.to_environment(distribution.mode(heads))
    assert actions == pytest.approx(outputs["action"], abs=1e-5)


def test_weights_are_orthogonal_with_the_published_gains():
    weights = initial_weights(network(ACTIONS["discrete"]), np.random.default_rng(0))
    for name, gain in (("policy_trunk.layers.1.weight", 2**0.5), ("policy_head.weight", 0.01)):
        matrix = weights[name]
        assert matrix.T @ matrix == pytest.approx(gain**2 * np.eye(matrix.shape[1]), abs=1e-5)
    assert all((weights[name] == 0).all() for name in weights if name.endswith("bias"))


def test_actions_stay_inside_asymmetric_bounds_at_extreme_observations():
    outputs = run_network(network(ACTIONS["box"]), {"obs": np.array([[1e6, -1e6, 1e6], [0, 0, 0]], dtype=np.float32)})
    low, high = ACTIONS["box"].bounds()
    assert (outputs["action"] >= low).all()
    assert (outputs["action"] <= high).all()


def test_discrete_actions_start_where_the_space_starts():
    obs = np.random.default_rng(0).normal(size=(99, 3)).astype(np.float32)
    outputs = run_network(network(ACTIONS["discrete"]), {"obs": obs})
    assert (outputs["action"] == outputs["logits"].argmax(axis=1) + 2).all()


def test_weights_of_another_network_are_refused_by_name():
    made = network(ACTIONS["discrete"])
    arrays = state_arrays(made)
    arrays["policy_head.bias"] = np.zeros(5, np.float32)
    with pytest.raises(ArtifactError, match=r"policy_head\.bias"):
        load_arrays(made, arrays)


@pytest.mark.parametrize(
    ("obs", "action"),
    [
        (Box(shape=(0,), dtype="float32", low=0.0, high=255.0), ACTIONS["discrete"]),
        (OBS, Box(shape=(2,), dtype="int32", low=-1.0, high=1.0)),
        (OBS, DictSpace(spaces={"grip": Discrete(2)})),
    ],
)
def test_a_space_without_a_network_is_refused(obs, action):
    with pytest.raises(UsageError, match="expected"):
        PolicyNetwork(obs, action, NetworkInfo(hidden_sizes=(4,), activation="tanh", normalize_obs=False))


@pytest.mark.parametrize("dueling", [False, True])
def test_q_values_in_numpy_equal_the_network_and_the_best_one_acts(dueling):
    info = NetworkInfo(hidden_sizes=(16, 8), activation="relu", normalize_obs=False, kind="q_values", dueling=dueling)
    made = QPolicyNetwork(OBS, Discrete(4, start=2), info)
    load_arrays(made, initial_weights(made, np.random.default_rng(3)))
    obs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    actor = NumpyActor(Discrete(4, start=2), info)
    actor.load(state_arrays(made))
    outputs = run_network(made, {"obs": obs})
    assert actor.heads({"vector": obs})["q_values"] == pytest.approx(outputs["q_values"], abs=1e-5)
    assert (outputs["action"] == outputs["q_values"].argmax(axis=1) + 2).all()


def test_dueling_q_values_average_to_the_state_value():
    info = NetworkInfo(hidden_sizes=(8,), activation="relu", normalize_obs=False, kind="q_values", dueling=True)
    made = QPolicyNetwork(OBS, Discrete(4), info)
    weights = initial_weights(made, np.random.default_rng(3)) | {"state_head.bias": np.array([5.0], np.float32)}
    weights["state_head.weight"] = np.zeros_like(weights["state_head.weight"])
    load_arrays(made, weights)
    obs = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    q_values = run_network(made, {"obs": obs})["q_values"]
    assert q_values.mean(axis=1) == pytest.approx(np.full(9, 5.0), abs=1e-5)


def test_q_values_of_a_box_action_space_are_refused():
    info = NetworkInfo(hidden_sizes=(8,), activation="relu", normalize_obs=False, kind="q_values")
    with pytest.raises(UsageError, match="Discrete"):
        QPolicyNetwork(OBS, ACTIONS["box"], info)
