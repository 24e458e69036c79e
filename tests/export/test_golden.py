"""Golden vectors: another CPU's rounding passes, a wrong kernel does not."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export import golden, qdq
from export.parity import run_onnx
from export.publish import npz_bytes
from paddleport.bundle import row_error
from paddleport.session import Session


def int8_tolerance(example, rows: dict) -> float:
    return golden.int8_tolerance(
        lambda layers: qdq.quantized(example.model, layers, example.weights), example.layers, rows, example.names
    )


@pytest.fixture
def rows(example):
    return golden.golden_observations(example.kind.observation_space, example.sets.visited)


def worst(example, session: Session, rows: dict) -> float:
    expected, got = (run_onnx(s, rows, example.names) for s in (example.session("int8"), session))
    return max(row_error(got[name], expected[name]) for name in example.names if got[name].dtype.kind == "f")


def test_observations_are_few_and_start_with_zeros(example, rows):
    assert len(rows["obs"]) == 64
    assert not rows["obs"][0].any()
    assert rows["obs"].dtype == example.sets.visited["obs"].dtype
    assert np.array_equal(rows["obs"][-1], example.sets.visited["obs"][-1])


def test_tolerance_covers_other_rounding_and_no_more(example, rows):
    tolerance = int8_tolerance(example, rows)
    assert golden.FLOAT32_TOLERANCE < tolerance < 0.15
    moved = Session(example.int8.SerializeToString())
    last_place = {"obs": (rows["obs"].astype(np.float64) * (1 + 1e-7)).astype(rows["obs"].dtype)}
    expected, got = run_onnx(moved, rows, example.names), run_onnx(moved, last_place, example.names)
    errors = [row_error(got[name], expected[name]) for name in example.names if got[name].dtype.kind == "f"]
    assert max(errors) <= tolerance


def test_a_wrong_zero_point_is_outside_the_tolerance(example, rows):
    wrong = onnx.ModelProto()
    wrong.CopyFrom(example.int8)
    head = next(node for node in wrong.graph.node if node.name == "policy_head")
    dequantize = next(node for node in wrong.graph.node if node.output[0] == head.input[0])
    for node in wrong.graph.node:
        if node.output[0] == dequantize.output[0]:
            node.input[2] = "other"
    wrong.graph.initializer.append(numpy_helper.from_array(np.asarray(77, np.uint8), "other"))
    tolerance = int8_tolerance(example, rows)
    assert worst(example, Session(wrong.SerializeToString()), rows) > tolerance


def test_the_file_is_the_same_each_time(example, rows):
    arrays = golden.golden_arrays(rows, {"float32": example.session(), "int8": example.session("int8")}, example.names)
    assert set(arrays) == {"obs"} | {f"{p}.{name}" for p in ("float32", "int8") for name in example.names}
    assert npz_bytes(arrays) == npz_bytes(arrays)
