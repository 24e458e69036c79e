"""The float16 file: layers in half precision, raw observations and the action's arithmetic in float32."""

import numpy as np
import pytest

from export.canonical import constants_of
from export.half import half
from export.parity import run_onnx
from paddleport.bundle import row_error
from paddleport.session import Session
from paddleport.spaces import joined
from policies import IMAGE_KINDS, make_example
from quantize.gate import action_agreement


def infos(values):
    return [(value.name, value.type.tensor_type.elem_type) for value in values]


def test_inputs_and_outputs_keep_their_types_and_weights_are_half(example):
    model = half(example.model)
    assert infos(model.graph.input) == infos(example.model.graph.input)
    assert infos(model.graph.output) == infos(example.model.graph.output)
    kinds = {name: array.dtype for name, array in constants_of(model).items() if array.ndim == 2}
    assert kinds
    assert set(kinds.values()) == {np.dtype(np.float16)}


def test_it_stays_near_float32(example):
    visited = example.sets.visited
    got = run_onnx(Session(half(example.model).SerializeToString()), visited, example.names)
    expected = run_onnx(example.session(), visited, example.names)
    assert action_agreement(example.kind.action_space, expected["action"], got["action"]) > 0.99
    assert max(row_error(got[name], expected[name]) for name in example.names if got[name].dtype.kind == "f") < 0.02


def test_a_normaliser_sees_observations_that_float16_cannot_hold(examples):
    example = examples["far-away"]  # it normalises: outputs are finite however far out an observation is
    everything = joined([example.sets.visited, example.sets.extreme])
    got = run_onnx(Session(half(example.model).SerializeToString()), everything, example.names)
    assert all(np.isfinite(values).all() for values in got.values())


@pytest.mark.parametrize("name", IMAGE_KINDS)
def test_pictures_take_half_the_bytes(tmp_path, name):
    example = make_example(IMAGE_KINDS[name], tmp_path / "model")
    model = half(example.model)
    assert len(model.SerializeToString()) < 0.52 * len(example.model.SerializeToString())
    got = run_onnx(Session(model.SerializeToString()), example.sets.visited, ("action",))["action"]
    expected = run_onnx(example.session(), example.sets.visited, ("action",))["action"]
    assert action_agreement(example.kind.action_space, expected, got) > 0.98
