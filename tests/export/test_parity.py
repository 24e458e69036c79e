"""Parity: what is proven equal before publishing, and that what is not equal is found."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export import parity
from export.observations import EXTREME, SMALLEST_SET, observation_sets
from paddleport.bundle import row_error
from paddleport.errors import GateError
from paddleport.session import Session
from paddleport.spaces import Box, Discrete
from train.network import run_network


def tampered(model: onnx.ModelProto, name: str, change) -> Session:
    """A session on the model with one constant changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.name == name:
            array = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(change(array), array.dtype), name))
    return Session(copy.SerializeToString())


def test_float32_is_the_trainer(example):
    proof = parity.prove_float32(example.network, example.session(), example.sets)
    assert proof.observations >= SMALLEST_SET
    assert proof.worst_visited <= 1e-5
    assert proof.tolerance == 1e-5


def test_observations_cover_every_kind(example):
    sets, space = example.sets, example.kind.observation_space
    everything = sets.everything["obs"]
    assert len(everything) >= SMALLEST_SET
    assert everything.dtype == space.dtype
    assert (sets.extreme["obs"] == 0).all(axis=1).any()
    assert (sets.extreme["obs"] == EXTREME).all(axis=1).any()
    assert (sets.extreme["obs"] == -EXTREME).all(axis=1).any()
    low, high = space.bounds()
    if np.isfinite(low).all():
        assert any((sets.extreme["obs"] == bound.astype(space.dtype)).all(axis=1).any() for bound in (low, high))
        assert (sets.sampled["obs"] < low).any()
        assert (sets.sampled["obs"] > high).any()


def test_extremes_stay_inside_the_bounds_in_both_precisions(example):
    for precision in ("float32", "int8"):
        got = parity.run_onnx(example.session(precision), example.sets.everything, example.names)
        parity.check_actions(example.kind.action_space, got, precision)
        parity.check_repeatable(example.session(precision), example.sets.everything, example.names, precision)


def test_asymmetric_bounds_are_reached_and_unbounded_dimensions_pass_through(examples):
    example = examples["box-asymmetric"]
    got = parity.run_onnx(example.session(), example.sets.everything, ("action", "mean"))
    action, mean = got["action"], got["mean"]
    assert action[:, 0].min() == -1 and action[:, 0].max() == 1
    assert action[:, 1].min() == -3 and action[:, 1].max() == 5
    assert action[:, 2].min() == 0 and action[:, 2].max() == 10
    assert np.allclose(action[:, 3], np.minimum(mean[:, 3], 2.0))


def test_float64_is_nearer_to_the_truth_than_the_trainer_is(example):
    exact = parity.evaluate_float64(example.network, example.sets.visited)
    trainer = run_network(example.network, example.sets.visited)
    assert set(exact) == set(trainer)
    assert all(row_error(trainer[name], exact[name]) < 1e-5 for name in trainer)
    assert exact["value"].dtype == np.float64


@pytest.mark.parametrize(
    ("name", "output"), [("value_head.bias", "value"), ("policy_head.weight", "mean"), ("obs_mean", "mean")]
)
def test_a_changed_constant_is_found(examples, name, output):
    example = examples["box-asymmetric"]
    session = tampered(example.model, name, lambda array: array + 1e-3)
    with pytest.raises(GateError, match=rf"'({output}|value|action)' differs on visited"):
        parity.prove_float32(example.network, session, example.sets)


def test_a_difference_only_at_extremes_is_found(examples):
    example = examples["far-away"]
    limits = [t.name for t in example.model.graph.initializer if numpy_helper.to_array(t).shape == ()]
    session = tampered(example.model, limits[1], lambda array: array * 2)  # the normaliser's upper clip
    with pytest.raises(GateError, match="extremes"):
        parity.prove_float32(example.network, session, example.sets)


def test_an_action_outside_the_bounds_is_found(examples):
    example = examples["box-asymmetric"]
    session = tampered(example.model, "action_offset", lambda array: array + 50)
    got = parity.run_onnx(session, example.sets.visited, example.names)
    parity.check_actions(example.kind.action_space, got, "float32")  # clipped all the same
    outside = {**got, "action": got["action"] + 20}
    with pytest.raises(GateError, match="outside its action space"):
        parity.check_actions(example.kind.action_space, outside, "float32")


def test_an_action_that_is_no_number_of_the_space_is_found():
    with pytest.raises(GateError, match="outside"):
        parity.check_actions(Discrete(n=2, start=3), {"action": np.array([5])}, "int8")
    with pytest.raises(GateError, match="not finite"):
        parity.check_actions(Discrete(n=2), {"action": np.array([0]), "logits": np.array([[np.nan, 0]])}, "int8")


def test_another_choice_is_found_where_the_choice_is_clear(examples):
    example = examples["discrete"]
    expected = run_network(example.network, example.sets.visited)
    turned = {**expected, "action": 1 - expected["action"]}
    with pytest.raises(GateError, match="other actions"):
        parity._check_choice(example.kind.action_space, expected, turned, 64)
    near = {"logits": np.array([[1.0, 1.0 + 1e-6]]), "action": np.array([1])}
    parity._check_choice(example.kind.action_space, near, {**near, "action": np.array([0])}, 1)


def test_samples_follow_what_was_visited_where_there_is_no_bound():
    space = Box(shape=(2,), dtype="float32", low=(None, -1.0), high=(None, 1.0))
    visited = np.stack([np.random.default_rng(0).normal(1000, 10, 500), np.zeros(500)], axis=1).astype(np.float32)
    sampled = observation_sets(space, {"obs": visited}, 0).sampled["obs"]
    assert abs(sampled[:, 0].mean() - 1000) < 10
    assert 15 < sampled[:, 0].std() < 45
    assert np.abs(sampled[:, 1]).max() <= 1.2
