import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from paddleport.errors import UsageError
from paddleport.spaces import Box, Discrete, Space, box, describe

_SHAPES = npst.array_shapes(min_dims=0, max_dims=3, max_side=4)


def _through_json(space: Space) -> Space:
    return msgspec.json.decode(msgspec.json.encode(space), type=Space)


@settings(deadline=None, max_examples=50)
@given(_SHAPES.flatmap(lambda shape: st.tuples(*[npst.arrays(np.float32, shape, elements={"allow_nan": False})] * 2)))
def test_bounds_survive_json(bounds):
    low, high = np.minimum(*bounds), np.maximum(*bounds)
    low, high = np.where(low == np.inf, -np.inf, low), np.where(high == -np.inf, np.inf, high)
    space = box(low, high, "float32")
    read = _through_json(space)
    assert read == space
    for ours, theirs in zip(read.bounds(), (low, high), strict=True):
        assert ours.dtype == np.float64
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("value", [-np.inf, 0.0, -1.5, np.finfo(np.float32).min])
def test_equal_bounds_are_written_once(value):
    written = msgspec.to_builtins(box(np.full((2, 3), value, np.float32), np.full((2, 3), np.inf), "float32"))
    assert written["low"] == (None if np.isinf(value) else value)
    assert written["high"] is None


def test_bounds_of_each_dimension_are_written_in_row_major_order():
    low = np.array([[0.0, -np.inf], [2.0, 3.0]])
    space = box(low, low + 1, "float64")
    assert space.low == (0.0, None, 2.0, 3.0)
    assert space.bounds()[0].tolist() == low.tolist()


def test_a_space_without_elements_has_bounds():
    low, high = _through_json(box(np.zeros((0, 3)), np.ones((0, 3)), "float32")).bounds()
    assert low.shape == high.shape == (0, 3)


@pytest.mark.parametrize(
    ("space", "size", "words"),
    [
        (Discrete(n=3, start=-1), None, "Discrete, an integer from -1 to 1"),
        (Box((84, 84, 4), "uint8", 0, 255), 84 * 84 * 4, "Box of shape [84, 84, 4] and type uint8"),
        (Box((), "float64", None, None), 1, "Box of shape [] and type float64"),
    ],
)
def test_a_space_describes_itself(space, size, words):
    assert describe(space) == words
    assert _through_json(space) == space
    assert size is None or space.size == size


def test_names_and_units_survive_json():
    space = Box((2,), "float32", -1.0, (1.0, None), names=("angle", "speed"), units=("rad", "rad/s"))
    assert _through_json(space) == space
    assert _through_json(Discrete(n=2, names=("left", "right"))) == Discrete(n=2, names=("left", "right"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Discrete(n=0), "n of 1 or more, got 0"),
        (lambda: Discrete(n=2, names=("left",)), "'names' of a space do not fit its elements: expected 2, got 1"),
        (lambda: Box((2,), "object", None, None), "expected float16, .*, got object"),
        (lambda: Box((2,), "bool", None, None), "got bool"),
        (lambda: Box((2, -1), "float32", None, None), r"negative shape: got \[2, -1\]"),
        (lambda: Box((2,), "float32", (0.0,), None), "'low' .* expected 2, got 1"),
        (lambda: Box((2,), "float32", None, (0.0, 1.0, 2.0)), "'high' .* expected 2, got 3"),
        (lambda: Box((2,), "float32", None, None, units=("m", "m", "m")), "'units' .* expected 2, got 3"),
    ],
)
def test_a_space_that_cannot_be_is_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()
