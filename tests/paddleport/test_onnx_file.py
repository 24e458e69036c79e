"""External data is found wherever ONNX can have a tensor; the onnx package writes the files that are looked into."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from paddleport.onnx_file import keeps_data_elsewhere


def tensor(external: bool) -> onnx.TensorProto:
    made = numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")
    if external:
        made.ClearField("raw_data")
        made.data_location = TensorProto.EXTERNAL
        made.external_data.add(key="location", value="/etc/passwd")
    return made


def graph(nodes=(), initializers=(), sparse=()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "g", [], [], list(initializers), sparse_initializer=list(sparse))


def sparse(external: bool) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(tensor(external), numpy_helper.from_array(np.arange(9), "i"), [9])


PLACES = {
    "an initializer": lambda ext: graph(initializers=[tensor(ext)]),
    "a constant": lambda ext: graph([helper.make_node("Constant", [], ["c"], value=tensor(ext))]),
    "a sparse initializer": lambda ext: graph(sparse=[sparse(ext)]),
    "a sparse constant": lambda ext: graph([helper.make_node("Constant", [], ["c"], sparse_value=sparse(ext))]),
    "a branch": lambda ext: graph(
        [helper.make_node("If", ["x"], ["y"], then_branch=graph(initializers=[tensor(ext)]), else_branch=graph())]
    ),
    "a loop in a branch": lambda ext: graph(
        [helper.make_node("If", ["x"], ["y"], then_branch=graph(
            [helper.make_node("Loop", ["m", "c"], [], body=graph(initializers=[tensor(ext)]))]), else_branch=graph())]
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("external", [True, False])
def test_weights_elsewhere_are_found(place, external):
    model = helper.make_model(PLACES[place](external))
    assert keeps_data_elsewhere(model.SerializeToString()) is external


def test_weights_elsewhere_are_found_in_a_function():
    model = helper.make_model(graph())
    node = helper.make_node("Constant", [], ["c"], value=tensor(external=True))
    model.functions.append(helper.make_function("d", "f", [], ["c"], [node], [helper.make_opsetid("", 13)]))
    assert keeps_data_elsewhere(model.SerializeToString())


def test_the_location_alone_is_enough():
    made = tensor(external=False)
    made.data_location = TensorProto.EXTERNAL
    assert keeps_data_elsewhere(helper.make_model(graph(initializers=[made])).SerializeToString())


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_file_is_looked_into_or_refused(data):
    whole = helper.make_model(PLACES["a loop in a branch"](False)).SerializeToString()
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 5))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert keeps_data_elsewhere(bytes(damaged)) in (True, False)
    except ValueError as error:
        assert str(error)


def test_endless_nesting_is_refused():
    inner = b""
    for _ in range(100):  # a graph in an attribute in a node in a graph …
        for number in (6, 5, 1):
            inner = bytes([number << 3 | 2]) + _length(inner) + inner
    with pytest.raises(ValueError, match="nested too deeply"):
        keeps_data_elsewhere(bytes([7 << 3 | 2]) + _length(inner) + inner)


def _length(data: bytes) -> bytes:
    size, out = len(data), bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size])
