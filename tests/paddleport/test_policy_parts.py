"""Policies that see a Dict, or act with several choices: acting, and what their golden vectors decide."""

import io

import numpy as np
import pytest

import bundles
from export.publish import npz_bytes
from paddleport.bundle import Bundle, decided
from paddleport.errors import ArtifactError, ObservationError
from paddleport.policy import Policy
from paddleport.spaces import Box, Discrete, MultiBinary, MultiDiscrete

ONE, OTHER = {"cue": 3, "speed": [0.5, -2.0]}, {"cue": 4, "speed": [-0.5, 0.25]}


@pytest.fixture
def mixed(tmp_path):
    return bundles.publish_parts(tmp_path / "models")


@pytest.fixture
def switches(tmp_path):
    return bundles.publish_binary(tmp_path / "models")


def test_a_policy_acts_on_a_dict_in_every_form(mixed):
    policy = Policy.load(mixed)
    expected = [bundles.parts_action(**ONE), bundles.parts_action(**OTHER)]
    assert expected == [[1, 6], [0, 7]]
    assert policy.act(ONE).tolist() == expected[0]
    assert policy.act({"speed": np.array(OTHER["speed"], np.float32), "cue": np.int64(4)}).tolist() == expected[1]
    assert policy.act_batch([ONE, OTHER]).tolist() == expected
    together = {"cue": np.array([3, 4]), "speed": np.array([ONE["speed"], OTHER["speed"]])}
    assert policy.act_batch(together).tolist() == expected
    assert policy.outputs([ONE])["logits"].tolist() == [bundles.parts_logits(**ONE)]


def test_what_an_environments_reset_returned_is_an_observation(mixed):
    assert Policy.load(mixed).act((OTHER, {"some": "info"})).tolist() == [0, 7]


def test_a_wrong_part_is_named(mixed):
    with pytest.raises(ObservationError, match=r"Part 'obs.cue'"):
        Policy.load(mixed).act({**ONE, "cue": 5})
    with pytest.raises(ObservationError, match="exactly cue, speed"):
        Policy.load(mixed).act({"cue": 3})
    with pytest.raises(ObservationError, match="not equally many"):
        Policy.load(mixed).act_batch({"cue": [3], "speed": [[0, 0], [0, 0]]})


def test_a_policy_with_switches_gives_zeros_and_ones(switches):
    action = Policy.load(switches).act([0.5, 0, 0, 0])
    assert (action.tolist(), action.dtype) == ([1, 0], np.int8)


@pytest.mark.parametrize(
    ("space", "values", "expected"),
    [
        (Discrete(3), [[0.0, 1.0, 0.5], [1.0, 1.0, 0.0], [1.0, 1.001, 0.0]], [True, False, False]),
        (Discrete(1), [[0.3]], [True]),
        # Two and three logits: one choice that is not clear makes the row undecided.
        (
            MultiDiscrete(nvec=(2, 3)),
            [[0, 1, 0, 0, 1], [0, 0, 0, 0, 1], [0, 1, 1, 0, 1], [1, 0, 9, 0, 1]],
            [True, False, False, True],
        ),
        (MultiDiscrete(nvec=(1, 2)), [[5, 0, 1], [5, 1, 1]], [True, False]),
        (MultiBinary(shape=(2,)), [[1, -1], [1, 0.001], [-0.001, 1]], [True, False, False]),
    ],
)
def test_a_row_is_decided_where_every_choice_leads_clearly(space, values, expected):
    assert decided(space, np.array(values, np.float32), 0.01, len(values)).tolist() == expected


def test_the_margin_grows_with_the_largest_magnitude_of_the_row():
    rows = np.array([[0.1, 0, 1.0, 0, 0], [0.1, 0, 100.0, 0, 0]], np.float32)
    assert decided(MultiDiscrete(nvec=(2, 3)), rows, 0.01, 2).tolist() == [True, False]


def test_without_values_every_row_is_decided():
    assert decided(Box(shape=(1,), dtype="float32", low=0.0, high=1.0), None, 0.1, 3).tolist() == [True] * 3


def with_golden(bundle, put_file, change):
    with np.load(io.BytesIO((bundle / "golden.npz").read_bytes())) as arrays:
        golden = {name: arrays[name].copy() for name in arrays.files}
    change(golden)
    put_file(bundle, "golden.npz", npz_bytes(golden))
    return Bundle.open(bundle)


@pytest.mark.parametrize("kind", ["mixed", "switches"])
def test_another_clear_choice_in_the_golden_vectors_is_found(kind, request, put_file):
    bundle = request.getfixturevalue(kind)

    def change(golden):
        logits = golden["float32.logits"]
        clear = decided(Bundle.open(bundle).manifest.action_space, logits, 1e-5, len(logits))
        row = int(np.flatnonzero(clear)[3])
        golden["float32.action"][row, 0] ^= 1

    with pytest.raises(ArtifactError, match="'action' differs from the golden vectors by another action"):
        with_golden(bundle, put_file, change)


def test_a_choice_that_a_rounding_could_turn_is_let_pass(switches, put_file):
    def change(golden):
        golden["obs"][0] = 0.0  # both logits are 0: neither switch is clear
        golden["float32.logits"][0] = 0.0
        golden["float32.value"][0] = 1.0
        golden["float32.action"][0] = [1, 0]

    assert with_golden(switches, put_file, change).manifest.name == "switches"
