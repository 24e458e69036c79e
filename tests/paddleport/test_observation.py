import warnings

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from paddleport import observation
from paddleport.errors import ObservationError
from paddleport.spaces import Box, Discrete

VECTOR = Box((4,), "float32", None, None)
GRID = Box((2, 3), "float32", None, None)
SCALAR = Box((), "float32", None, None)
IMAGE = Box((2, 2), "uint8", 0, 255)
CHOICE = Discrete(n=3, start=5)
LARGEST = float(np.finfo(np.float32).max)


def _refused(space, value, match, function=observation.one):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ObservationError, match=match) as raised:
            function(space, value)["obs"]
    message = str(raised.value)
    assert "expected" in message
    assert "got" in message
    assert "\n" not in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ([1, 2, 3], r"expected shape \[4\] \(Box of shape \[4\] and type float32\), got shape \[3\]"),
        ([1, 2, 3, 4, 5], r"got shape \[5\]"),
        ([[1, 2, 3, 4]], r"got shape \[1, 4\]"),
        ([], r"got shape \[0\]"),
        (3.0, r"got shape \[\]"),
        (np.zeros((4, 1)), r"got shape \[4, 1\]"),
        ([[1, 2], [3]], "rows of different lengths"),
        ([1, [2], 3, 4], "rows of different lengths"),
        ([[[1], 2], [3, 4]], "rows of different lengths"),
    ],
)
def test_a_wrong_shape_is_refused(value, match):
    _refused(VECTOR, value, match)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("1 2 3 4", "text"),
        (b"\0\0\0\0", "bytes"),
        (["1", "2", "3", "4"], "text"),
        ([1, 2, 3, "4"], "text"),
        ([1, 2, 3, b"4"], "bytes"),
        (None, "null"),
        ([1, 2, 3, None], "null"),
        ([None] * 4, "null"),
        (True, "true/false"),
        ([True, False, True, False], "true/false"),
        ([1, 2, 3, True], "true/false"),
        ([1.0, 2.0, 3.0, np.True_], "true/false"),
        (np.ones(4, dtype=bool), "true/false"),
        ({}, "a nested object"),
        ({"position": 1.0}, "a nested object"),
        ([1, 2, 3, {}], "a nested object"),
        ([[1, 2], [3, {}]], "a nested object"),
        ((1, 2, 3, (None,)), "null"),
        ({1, 2, 3, 4}, "a nested object"),
        (object(), "a nested object"),
        ([1, 2, 3, object()], "a nested object"),
        ((number for number in range(4)), "a nested object"),
        (np.array([1, 2, 3, None], dtype=object), "null"),
        ([1, 2, 3, 4j], "complex128"),
        (np.zeros(4, "datetime64[s]"), "datetime64"),
        (np.zeros(4, [("x", "f4")]), "x"),
    ],
)
def test_what_is_no_number_is_refused(value, match):
    _refused(VECTOR, value, f"expected numbers of type float32.* got values of type .*{match}")


def test_text_is_refused_before_numpy_makes_room_for_it():
    _refused(VECTOR, [["x" * 100_000]] + [["y"]] * 100_000, "text")


@pytest.mark.parametrize("depth", [33, 500])
def test_deep_nesting_is_refused(depth):
    value = msgspec.json.decode(b"[" * depth + b"1" + b"]" * depth)
    _refused(VECTOR, value, "nested deeper than 32")


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (-float("inf"), "-inf"),
        (1e300, r"1e\+300"),
        (-1e39, r"-1e\+39"),
        (np.float64(1e300), r"1e\+300"),
        (np.longdouble("1e4000"), "inf"),
    ],
)
@pytest.mark.parametrize("width", [4, 400])
def test_a_number_that_is_not_finite_in_the_space_is_refused_where_it_stands(number, word, width):
    space = Box((width,), "float32", None, None)
    value = [0.0] * (width - 2) + [number, 0.0]
    where = rf"got {word} at index \[{width - 2}\] of observation"
    _refused(space, value, f"expected finite numbers.*{where} 0")
    _refused(space, [[0.0] * width, value], f"{where} 1", observation.many)


def test_the_largest_number_of_the_type_is_accepted_and_the_next_is_not():
    assert observation.one(SCALAR, LARGEST)["obs"][0] == LARGEST
    half_a_step = (LARGEST - float(np.nextafter(np.float32(LARGEST), np.float32(0)))) / 2
    assert observation.one(SCALAR, np.nextafter(LARGEST + half_a_step, 0.0))["obs"][0] == LARGEST
    _refused(SCALAR, LARGEST + half_a_step, "expected finite numbers")


@pytest.mark.parametrize("number", [2**64, -(2**64), 10**400, -(10**400)])
def test_an_integer_beyond_every_type_is_refused(number):
    for space, value in ((VECTOR, [number, 0, 0, 0]), (IMAGE, [[number, 0], [0, 0]]), (CHOICE, number)):
        _refused(space, value, "too large|out of range")


@pytest.mark.parametrize(("low", "high"), [(-1, 0), (0, 256), (0, 2**63 - 1), (-(2**63), 0)])
def test_a_pixel_out_of_range_is_refused(low, high):
    _refused(IMAGE, [[low, 0], [0, high]], f"expected integers 0 to 255.*got from {low} to {high}")


@pytest.mark.parametrize("value", [[[0.0, 1.0], [2.0, 3.0]], np.zeros((2, 2), np.float32), [[0, 1], [2, 3.5]]])
def test_a_fraction_where_an_integer_is_due_is_refused(value):
    _refused(IMAGE, value, "expected numbers of type uint8.*got values of type float")


def test_integers_that_no_type_holds_together_are_refused():
    _refused(IMAGE, [[-1, 0], [0, 2**63]], "expected numbers of type uint8")


@pytest.mark.parametrize("value", [4, 8, -(2**63), 2**63])
def test_a_choice_out_of_range_is_refused(value):
    _refused(CHOICE, value, rf"expected integers 5 to 7.*got from {value} to {value}")


@pytest.mark.parametrize("value", [5.0, "5", [5], True, None, np.float32(5)])
def test_what_is_no_single_integer_is_refused_as_a_choice(value):
    _refused(CHOICE, value, "Discrete, an integer from 5 to 7")


@pytest.mark.parametrize("value", [[], np.zeros((0, 4)), 1.0, [1, 2, 3, 4], [[1, 2, 3]], [[[1, 2, 3, 4]]], None])
def test_what_is_no_batch_is_refused(value):
    _refused(VECTOR, value, "does not fit the policy", observation.many)


def test_an_empty_batch_is_told_what_is_missing():
    _refused(VECTOR, [], r"shape \[batch, 4\] with at least one observation", observation.many)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3, 4],
        (1, 2, 3, 4),
        [1.0, 2, 3, 4],
        [np.float64(1), np.int8(2), 3, 4],
        np.array([1, 2, 3, 4], np.float64),
        np.array([1, 2, 3, 4], np.float16),
        np.array([1, 2, 3, 4], ">f4"),
        np.array([1, 2, 3, 4], np.int64),
        np.array([1, 2, 3, 4], np.uint8),
        np.array([4, 3, 2, 1], np.float32)[::-1],
        np.array([1, 0, 2, 0, 3, 0, 4], np.float32)[::2],
        np.asfortranarray(np.tile(np.arange(1, 5), (2, 1)))[0],
        np.array([1, 2, 3, 4], np.float32).reshape(4, 1)[:, 0],
        memoryview(np.array([1, 2, 3, 4], np.float32)),
        [np.array(1.0), np.array(2), 3, 4],
    ],
    ids=range(15),
)
def test_every_array_of_numbers_is_accepted(value):
    array = observation.one(VECTOR, value)["obs"]
    assert array.dtype == np.float32
    assert array.dtype.isnative
    assert array.flags.c_contiguous
    assert array.tolist() == [[1, 2, 3, 4]]


def test_a_read_only_array_is_accepted_and_never_written():
    value = np.arange(4, dtype=np.float32)
    value.setflags(write=False)
    assert observation.many(VECTOR, value[np.newaxis])["obs"].tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("value", [7, np.int8(7), np.uint64(7), np.array(7)])
def test_every_integer_is_accepted_as_a_choice(value):
    array = observation.one(CHOICE, value)["obs"]
    assert array.dtype == np.int64
    assert array.tolist() == [7]


def test_choices_make_a_batch():
    assert observation.many(CHOICE, [5, 6, 7])["obs"].tolist() == [5, 6, 7]


def test_a_scalar_box_takes_a_number():
    assert observation.one(SCALAR, 0.5)["obs"].tolist() == [0.5]
    assert observation.many(SCALAR, [0.5, 1])["obs"].tolist() == [0.5, 1]


def test_an_image_stays_bytes():
    array = observation.one(IMAGE, np.array([[0, 255], [7, 8]], np.int64).T)["obs"]
    assert array.dtype == np.uint8
    assert array.flags.c_contiguous
    assert array.tolist() == [[[0, 7], [255, 8]]]


@settings(deadline=None)
@given(npst.arrays(np.float32, (3, 2, 3), elements={"allow_nan": False, "allow_infinity": False}))
def test_finite_numbers_come_through_json_unchanged(batch):
    through_json = msgspec.json.decode(msgspec.json.encode(batch.tolist()))
    np.testing.assert_array_equal(observation.many(GRID, through_json)["obs"], batch)
    np.testing.assert_array_equal(observation.one(GRID, through_json[0])["obs"], batch[:1])


@settings(deadline=None)
@given(
    npst.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.uint64]),
        st.sampled_from([(4,), (400,)]),
        elements=None,
    )
)
def test_an_array_is_cast_as_numpy_casts_it_or_refused_where_it_is_not_finite(value):
    space = Box(value.shape, "float32", None, None)
    with np.errstate(over="ignore"):
        cast = value.astype(np.float32)
    if np.isfinite(cast).all():
        np.testing.assert_array_equal(observation.one(space, value)["obs"], cast[np.newaxis])
    else:
        _refused(space, value, "expected finite numbers")


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=10,
)


@settings(deadline=None, max_examples=150)
@given(_ANYTHING, st.sampled_from([VECTOR, GRID, SCALAR, IMAGE, CHOICE]), st.booleans())
def test_whatever_json_holds_is_an_observation_or_refused_in_words(value, space, single):
    try:
        array = (observation.one if single else observation.many)(space, value)["obs"]
    except ObservationError:
        return
    assert array.shape[1:] == space.shape
    assert array.dtype == space.dtype
    assert np.isfinite(array).all()


def _pixels(rows, columns, cells):
    return st.lists(st.lists(cells, min_size=columns, max_size=columns), min_size=rows, max_size=rows)


ODD_CELLS = st.one_of(
    st.integers(0, 255), st.integers(-2, 300), st.booleans(), st.floats(0, 3), st.just([1]), st.just([]), st.none()
)


@given(
    st.one_of(
        _pixels(2, 2, st.integers(0, 255)),
        st.lists(st.lists(ODD_CELLS, max_size=3), max_size=3),
        st.lists(ODD_CELLS, max_size=5),
        _pixels(1, 4, st.integers(0, 255)),
    )
)
def test_images_in_lists_are_read_the_short_way_as_the_long_one_reads_them(value):
    def read():
        try:
            return observation.one(IMAGE, value)["obs"].tolist()
        except ObservationError as error:
            return str(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observation, "_image", lambda value: None)
        expected = read()
    assert read() == expected
