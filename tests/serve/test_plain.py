"""The short way through an infer request takes nothing that the long way would not, and gives the same."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bundles
from paddleport.bundle import Bundle
from paddleport.errors import PaddleportError
from serve.protocol import infer

NUMBERS = st.one_of(
    st.floats(width=32),
    st.integers(-5, 5),
    st.sampled_from([1e39, -1e39, 3.4028235e38, 3.40282357e38, True, None, "1"]),
)
NAMES = st.sampled_from(["action", "logits", "value", "nothing"])


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return Bundle.open(bundles.publish_discrete(tmp_path_factory.mktemp("plain"))).manifest


@st.composite
def requests(draw):
    """A body and its header: mostly well formed."""
    rows = draw(st.sampled_from([0, 1, 1, 2, 3, 64, 65]))
    numbers = draw(st.lists(NUMBERS, min_size=4, max_size=4)) * rows
    shape = draw(st.sampled_from([[rows, 4], [rows, 4], [rows, 4], [4 * rows], [rows, 2, 2], [rows, -4], [4]]))
    tensor = {"name": draw(st.sampled_from(["obs", "obs", "obs", "x"])), "shape": shape, "datatype": "FP32"}
    if draw(st.booleans()):
        tensor["datatype"] = draw(st.sampled_from(["FP32", "FP64"]))
    raw = b""
    if draw(st.booleans()) and all(type(number) in (float, int) and abs(number) < 3.5e38 for number in numbers):
        with np.errstate(over="ignore"):
            raw = np.array(numbers, "<f4").tobytes()
        raw = raw[: draw(st.sampled_from([None, None, None, -1]))]
        tensor["parameters"] = {"binary_data_size": len(raw) + draw(st.sampled_from([0, 0, 0, 1, -1]))}
    if not raw or draw(st.integers(0, 9)) == 0:
        tensor["data"] = numbers
    content = {"inputs": [tensor] * draw(st.sampled_from([1, 1, 1, 0, 2]))}
    if draw(st.booleans()):
        content["id"] = draw(st.text(max_size=3))
    asked = draw(st.lists(NAMES, max_size=3))
    if draw(st.booleans()):
        content["outputs"] = [
            {"name": name, **({"parameters": {"binary_data": draw(st.booleans())}} if draw(st.booleans()) else {})}
            for name in asked
        ]
    text = json.dumps(content).encode()
    return text + raw, str(len(text)) if raw or draw(st.booleans()) else None


def outcome(body, length, manifest):
    try:
        request = infer.decode(body, length, manifest)
    except PaddleportError as error:
        return type(error), str(error)
    feeds = {name: (array.dtype, array.shape, array.tobytes()) for name, array in request.feeds.items()}
    return request.id, feeds, request.outputs


@settings(max_examples=250, deadline=None)
@given(request=requests())
def test_both_ways_give_the_same(manifest, request):
    quick = outcome(*request, manifest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(infer, "_plain", lambda *_: None)
        assert outcome(*request, manifest) == quick


@pytest.mark.parametrize("binary", [False, True])
def test_what_tritonclient_sends_goes_the_short_way(manifest, binary):
    tensor = {"name": "obs", "shape": [1, 4], "datatype": "FP32"}
    raw = np.float32([1, 2, 3, 4]).tobytes() if binary else b""
    tensor |= {"parameters": {"binary_data_size": 16}} if binary else {"data": [1, 2, 3, 4]}
    content = {"inputs": [tensor], "outputs": [{"name": "action", "parameters": {"binary_data": binary}}]}
    plain = infer._plain(json.dumps(content).encode(), raw, manifest)
    assert plain is not None
    np.testing.assert_array_equal(plain.feeds["obs"], np.float32([[1, 2, 3, 4]]))
    assert plain.outputs == [infer.Output("action", binary)]
