"""Dict and Tuple observations: every form a caller may give them in, and messages that name the part."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleport import observation
from paddleport.errors import ObservationError
from paddleport.spaces import Box, DictSpace, Discrete, MultiBinary, MultiDiscrete, TupleSpace

SPEED = Box(shape=(2,), dtype="float32", low=None, high=None)
SPACE = DictSpace(
    spaces={
        "speed": SPEED,
        "mode": Discrete(3, start=1),
        "rest": TupleSpace(spaces=(MultiDiscrete(nvec=(2, 3), start=(0, -1)), MultiBinary(shape=(2,)))),
    }
)
PAIR = TupleSpace(spaces=(SPEED, DictSpace(spaces={"mode": Discrete(3, start=1)})))
ONE = {"speed": [0.5, -1], "mode": 2, "rest": [[1, 0], [0, 1]]}
OTHER = {"speed": np.array([3.0, 4.0]), "mode": np.int64(3), "rest": (np.array([0, -1]), np.array([1, 1], np.int8))}
BATCH = {"speed": [[0.5, -1], [3, 4]], "mode": [2, 3], "rest": ([[1, 0], [0, -1]], np.array([[0, 1], [1, 1]]))}
LEAVES = {
    "obs.speed": [[0.5, -1], [3, 4]],
    "obs.mode": [2, 3],
    "obs.rest.0": [[1, 0], [0, -1]],
    "obs.rest.1": [[0, 1], [1, 1]],
}


def plain(leaves):
    return {name: array.tolist() for name, array in leaves.items()}


def test_one_observation_becomes_its_arrays():
    found = observation.one(SPACE, ONE)
    assert plain(found) == {name: rows[:1] for name, rows in LEAVES.items()}
    assert [array.dtype for array in found.values()] == [np.float32, np.int64, np.int64, np.int8]
    assert plain(observation.one(PAIR, ([0.5, -1], {"mode": 2}))) == {"obs.0": [[0.5, -1]], "obs.1.mode": [2]}


@pytest.mark.parametrize("value", [[ONE, OTHER], (ONE, OTHER), BATCH], ids=["list", "tuple", "arrays"])
def test_a_batch_is_a_list_of_observations_or_one_of_batches(value):
    assert plain(observation.many(SPACE, value)) == LEAVES


def test_a_batch_of_a_tuple_is_a_list_and_a_tuple_holds_batches():
    expected = {"obs.0": [[0.5, -1], [3, 4]], "obs.1.mode": [2, 3]}
    rows = [([0.5, -1], {"mode": 2}), [[3, 4], {"mode": 3}]]
    assert plain(observation.many(PAIR, rows)) == expected
    assert plain(observation.many(PAIR, ([[0.5, -1], [3, 4]], {"mode": [2, 3]}))) == expected


def refused(value, match, space=SPACE, read=observation.one):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ObservationError, match=match) as caught:
            read(space, value)
    message = str(caught.value)
    assert "expected" in message
    assert "got" in message
    assert "\n" not in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({"speed": [0, 0], "mode": 2}, "expected obs with exactly speed, mode, rest.*got obs with mode, speed"),
        ({**ONE, "extra": 1}, "got obs with extra, mode, rest, speed"),
        ({}, "got obs with nothing"),
        ([0.5, -1, 2], "expected an object with speed, mode, rest.*got obs of type list"),
        (3.0, "got obs of type float"),
        (None, "got obs of type NoneType"),
        ("speed", "got obs of type str"),
        (np.zeros(4), "got obs of type ndarray"),
        ({**ONE, "speed": [1, 2, 3]}, r"Part 'obs.speed' .*expected shape \[2\].*got shape \[3\]"),
        ({**ONE, "speed": {"x": 1}}, "Part 'obs.speed' .*got values of type .*a nested object"),
        ({**ONE, "speed": [1, float("nan")]}, "Part 'obs.speed' .*got nan at index"),
        ({**ONE, "mode": 0}, "Part 'obs.mode' .*integers 1 to 3.*got from 0 to 0"),
        ({**ONE, "mode": "left"}, "Part 'obs.mode' .*text"),
        ({**ONE, "rest": [[1, 0]]}, "expected obs.rest with exactly 0, 1.*got obs.rest with 0"),
        ({**ONE, "rest": {"0": [1, 0], "1": [0, 1]}}, "expected a list of 0, 1.*got obs.rest of type dict"),
        ({**ONE, "rest": [[2, 0], [0, 1]]}, r"Part 'obs.rest.0' .*integers \[0, -1\] to \[1, 1\].*from 0 to 2"),
        ({**ONE, "rest": [[0, -2], [0, 1]]}, "Part 'obs.rest.0' .*from -2 to 0"),
        ({**ONE, "rest": [[0.5, 0], [0, 1]]}, "Part 'obs.rest.0' .*numbers of type int64.*float64"),
        ({**ONE, "rest": [[1, 0], [0, 2]]}, "Part 'obs.rest.1' .*integers 0 to 1.*from 0 to 2"),
        ({**ONE, "rest": [[1, 0], [True, False]]}, "Part 'obs.rest.1' .*true/false"),
    ],
)
def test_what_is_no_such_observation_is_refused_by_the_name_of_its_part(value, match):
    refused(value, match)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ([], "at least one observation"),
        ([ONE, 3], "got obs of type int"),
        ([ONE, {"speed": [0, 0]}], "got obs with speed"),
        ([ONE, {**ONE, "rest": 3}], "got obs.rest of type int"),
        ([ONE, {**ONE, "rest": [[1, 0]]}], "got obs.rest with 0"),
        ([ONE, {**ONE, "speed": [1]}], "Part 'obs.speed' .*rows of different lengths"),
        ({**BATCH, "mode": [2]}, "not equally many.*2 of obs.speed, 1 of obs.mode, 2 of obs.rest.0"),
        ({**BATCH, "mode": []}, "Part 'obs.mode' .*at least one observation"),
        (ONE, r"Part 'obs.speed' .*\['?batch'?, 2\]"),
        (5, "got obs of type int"),
        ("both", "got obs of type str"),
    ],
)
def test_what_is_no_such_batch_is_refused_by_the_name_of_its_part(value, match):
    refused(value, match, read=observation.many)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 5) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["speed", "mode", "rest", "0"]), inner),
    max_leaves=12,
)


@settings(deadline=None, max_examples=150)
@given(_JSON, st.sampled_from([SPACE, PAIR]), st.sampled_from([observation.one, observation.many]))
def test_whatever_json_holds_is_an_observation_or_refused_in_words(value, space, read):
    try:
        found = read(space, value)
    except ObservationError as error:
        assert "\n" not in str(error)
    else:
        assert all(array.shape[0] >= 1 for array in found.values())
