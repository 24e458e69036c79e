"""Observations → features: the trainer's arithmetic in NumPy is the graph's in Paddle, whatever the space is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleport.checkpoint import NetworkInfo
from paddleport.errors import UsageError
from paddleport.spaces import Box, DictSpace, Discrete, MultiBinary, MultiDiscrete, TupleSpace
from spaces_drawn import drawn
from train.acting import make_actor
from train.distributions import distribution_for
from train.encoding import VECTOR, Encoder, ImageLayout, encoding_of, image_layout
from train.initialization import initial_weights
from train.network import ActorCritic, PolicyNetwork, QNetwork, load_arrays, policy_network, run_network, state_arrays

VECTOR3 = Box(shape=(3,), dtype="float64", low=None, high=None)
CHW = Box(shape=(2, 36, 36), dtype="uint8", low=0.0, high=255.0)
HWC = Box(shape=(36, 40, 3), dtype="uint8", low=0.0, high=255.0)
GREY = Box(shape=(38, 36), dtype="uint8", low=0.0, high=255.0)
NESTED = DictSpace(
    spaces={
        "speed": VECTOR3,
        "mode": Discrete(3, start=-1),
        "rest": TupleSpace(spaces=(MultiDiscrete(nvec=(2, 3), start=(0, 5)), MultiBinary(shape=(2, 2)))),
    }
)
WITH_PICTURE = DictSpace(spaces={"camera": CHW, "mode": Discrete(3), "speed": VECTOR3})

_SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
_LEAVES = st.one_of(
    st.builds(Box, _SHAPES, st.sampled_from(["float32", "float64", "float16"]), st.none(), st.none()),
    st.builds(Box, _SHAPES, st.sampled_from(["uint8", "int32", "int64"]), st.just(0.0), st.just(9.0)),
    st.sampled_from([CHW, HWC, GREY]),
    st.builds(Discrete, st.integers(1, 5), st.integers(-9, 9)),
    st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), min_size=1, max_size=3).map(
        lambda pairs: MultiDiscrete(nvec=tuple(n for n, _ in pairs), start=tuple(start for _, start in pairs))
    ),
    st.builds(MultiBinary, st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple)),
)
_SPACES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(lambda each: DictSpace(spaces=each)),
        st.lists(inner, min_size=1, max_size=3).map(lambda each: TupleSpace(spaces=tuple(each))),
    ),
    max_leaves=4,
)


def info_for(**options):
    return NetworkInfo(**{"hidden_sizes": (4,), "activation": "tanh", "normalize_obs": True} | options)


class OnlyEncoder(PolicyNetwork):
    """The part of a policy that stands before its trunks: making a whole one for each example takes too long."""

    def __init__(self, space, info):
        super(ActorCritic, self).__init__()
        self.info = info
        self._add_encoder(space)


@settings(deadline=None, max_examples=60)
@given(_SPACES, st.booleans(), st.integers(0, 1000))
def test_features_in_numpy_are_the_networks_for_every_space(space, normalize, seed):
    import paddle

    rng = np.random.default_rng(seed)
    encoder, network = Encoder(space, normalize=normalize), OnlyEncoder(space, info_for(normalize_obs=normalize))
    encoder.observe([drawn(space, 5, rng), drawn(space, 4, rng)])
    load_arrays(network, encoder.policy_tensors())
    obs = drawn(space, 3, rng)
    features = encoder.features(obs)
    expected = network.features({name: paddle.to_tensor(array) for name, array in obs.items()})
    assert features.keys() == expected.keys() == encoder.shapes.keys()
    for name, array in features.items():
        assert (array.shape, str(array.dtype)) == ((3, *encoder.shapes[name][0]), encoder.shapes[name][1])
        assert array.dtype == expected[name].numpy().dtype
        assert array == pytest.approx(expected[name].numpy(), abs=1e-5)


def test_a_nested_observation_is_encoded_as_written_by_hand():
    obs = {
        "obs.speed": np.array([[1.0, 2.0, 3.0]]),
        "obs.mode": np.array([1]),
        "obs.rest.0": np.array([[1, 6]]),
        "obs.rest.1": np.array([[[1, 0], [0, 1]]], np.int8),
    }
    vector = Encoder(NESTED, normalize=False).features(obs)[VECTOR]
    assert vector.tolist() == [[1, 2, 3, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1]]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((84, 84, 3), ImageLayout(84, 84, 3, "HWC")),
        ((4, 84, 84), ImageLayout(84, 84, 4, "CHW")),
        ((36, 48), ImageLayout(36, 48, 1, "HW")),
        ((36, 36, 36), ImageLayout(36, 36, 36, "HWC")),
        ((35, 84, 3), None),
        ((3, 84, 35), None),
        ((84,), None),
        ((2, 84, 84, 3), None),
    ],
)
def test_what_counts_as_an_image_and_how_it_lies(shape, expected):
    assert image_layout(Box(shape=shape, dtype="uint8", low=0.0, high=255.0)) == expected
    assert image_layout(Box(shape=shape, dtype="float32", low=0.0, high=1.0)) is None


def test_images_and_choices_are_never_normalised():
    encoder = Encoder(WITH_PICTURE, normalize=True)
    obs = drawn(WITH_PICTURE, 8, np.random.default_rng(0))
    encoder.observe([obs])
    features = encoder.features(obs)
    assert encoder.normalizer.mean.shape == (3,)
    assert (features["obs.camera"] == obs["obs.camera"]).all()
    assert features[VECTOR][:, 3:].sum(axis=1).tolist() == [1.0] * 8
    assert Encoder(CHW, normalize=True).normalizer is None


ACTIONS = {
    "discrete": Discrete(4, start=1),
    "multi-discrete": MultiDiscrete(nvec=(3, 2), start=(0, 5)),
    "multi-binary": MultiBinary(shape=(2, 3)),
    "box": Box(shape=(2, 2), dtype="float32", low=(-1.0, 0.5, None, 0.0), high=(3.0, 2.5, None, None)),
}
CASES = [
    *((VECTOR3, action, {}) for action in ACTIONS),
    (VECTOR3, "box", {"squash": True}),
    (VECTOR3, "discrete", {"shared_trunk": True}),
    (VECTOR3, "discrete", {"hidden_sizes": ()}),
    (NESTED, "box", {"shared_trunk": True, "activation": "relu"}),
    (CHW, "discrete", {"shared_trunk": True}),
    (HWC, "multi-binary", {"hidden_sizes": ()}),
    (GREY, "box", {}),
    (WITH_PICTURE, "multi-discrete", {}),
    (NESTED, "discrete", {"kind": "q_values", "dueling": True}),
    (WITH_PICTURE, "discrete", {"kind": "q_values"}),
]


@pytest.mark.parametrize(("space", "action", "options"), CASES)
def test_acting_is_the_policy_network(space, action, options):
    action_space, rng, info = ACTIONS[action], np.random.default_rng(0), info_for(**options)
    encoder = Encoder(space, normalize=True)
    encoder.observe([drawn(space, 30, rng)])
    network = policy_network(space, action_space, info)
    weights = initial_weights(network, rng)
    for name in weights:
        weights[name] = weights[name] * 100 if name == "policy_head.weight" else weights[name]
        weights[name] = weights[name] - 0.3 if name == "log_std" else weights[name]
    load_arrays(network, {**state_arrays(network), **weights, **encoder.policy_tensors()})
    kind = QNetwork if info.kind == "q_values" else ActorCritic
    actor = make_actor(space, action_space, info, lambda: kind(space, action_space, info))
    actor.load(weights)
    obs = drawn(space, 16, rng)
    heads, outputs = actor.heads(encoder.features(obs)), run_network(network, obs)
    assert set(outputs) - {"action", "value"} <= set(heads) <= set(outputs) - {"action"}
    for name, array in heads.items():
        assert array.shape == outputs[name].shape
        assert array == pytest.approx(outputs[name], abs=2e-5)
    if info.kind == "q_values":
        assert (outputs["action"] == heads["q_values"].argmax(axis=1) + 1).all()
        return
    assert actor.value(encoder.features(obs)) == pytest.approx(outputs["value"], abs=2e-5)
    distribution = distribution_for(action_space, squash=info.squash)
    actions = distribution.to_environment(distribution.mode(heads))
    assert (actions.dtype, actions.shape) == (outputs["action"].dtype, outputs["action"].shape)
    assert actions == pytest.approx(outputs["action"], abs=1e-4)


@pytest.mark.parametrize("space", [Box(shape=(0,), dtype="float32", low=None, high=None), Box((2, 0), "uint8", 0, 255)])
def test_a_space_without_anything_in_it_is_refused(space):
    assert encoding_of(space).vector_size == 0
    with pytest.raises(UsageError, match="nothing in this observation space"):
        PolicyNetwork(space, Discrete(2), info_for())
