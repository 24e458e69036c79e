"""Proof that an ONNX file is the policy that was trained: the same outputs, on observations of every kind."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import paddle

from export.observations import ObservationSets
from paddleport.bundle import decided, row_error
from paddleport.errors import GateError
from paddleport.manifest import Parity
from paddleport.session import Session
from paddleport.spaces import (
    OBSERVATION,
    Array,
    Box,
    Leaves,
    Space,
    batch_size,
    integer_range,
    leaf_spaces,
    rows_of,
)
from train.encoding import VECTOR
from train.network import PolicyNetwork, run_network

TOLERANCE = 1e-5
"""Largest |trainer - ONNX| over max(1, largest magnitude in the row), on visited observations."""
EXTREME_FACTOR = 4.0
"""At extremes ONNX may be this many times as far from a float64 evaluation as the trainer's own float32 is."""
EXTREME_FLOOR = 1e-6
"""What the trainer's distance from float64 is taken to be at least: about eight units in float32's last place."""
BATCHES = (1, 2, 7, 64)

Outputs = dict[str, Array]


def run_onnx(session: Session, obs: Leaves, names: Sequence[str], batch: int = BATCHES[-1]) -> Outputs:
    """Evaluate an ONNX policy on observations [n, …], `batch` rows at a time."""
    starts = range(0, batch_size(obs), batch)
    parts = [session.run(rows_of(obs, slice(start, start + batch)), names) for start in starts]
    return {name: np.concatenate(columns) for name, columns in zip(names, zip(*parts, strict=True), strict=True)}


def prove_float32(network: PolicyNetwork, session: Session, sets: ObservationSets) -> Parity:
    """Compare the trainer with the float32 file, in every batch size.

    Raises:
        GateError: an output differs by more than the tolerance; the message says which, and by how much.
    """
    trainer = {"visited": run_network(network, sets.visited), "rest": run_network(network, sets.rest)}
    exact = evaluate_float64(network, sets.rest)
    worst_visited = worst_extreme = 0.0
    for batch in BATCHES:
        visited = run_onnx(session, sets.visited, network.output_names, batch)
        rest = run_onnx(session, sets.rest, network.output_names, batch)
        worst_visited = max(worst_visited, _check_visited(trainer["visited"], visited, batch))
        worst_extreme = max(worst_extreme, _check_rest(trainer["rest"], rest, exact, batch))
        for expected, got in ((trainer["visited"], visited), (trainer["rest"], rest)):
            _check_choice(network.action_space, expected, got, batch)
            check_actions(network.action_space, got, "float32")
    check_repeatable(session, sets.everything, network.output_names, "float32")
    return Parity(
        observations=batch_size(sets.everything),
        worst_visited=worst_visited,
        worst_extreme=worst_extreme,
        tolerance=TOLERANCE,
    )


def evaluate_float64(network: PolicyNetwork, obs: Leaves) -> Outputs:
    """Evaluate the trainer's network with weights and arithmetic in float64.

    An observation is read as float32 first, as the network reads it.
    """
    double = copy.deepcopy(network)
    double.to(dtype="float64")
    with paddle.no_grad():
        features = double.features({name: paddle.to_tensor(array) for name, array in obs.items()})
        if VECTOR in features:
            features[VECTOR] = features[VECTOR].astype("float64")
        outputs = double.heads(features)
        outputs["action"] = double.action(outputs)
        if "value" in outputs:
            outputs["value"] = outputs["value"].squeeze(-1)
    return {name: np.asarray(tensor.numpy()) for name, tensor in outputs.items()}


def check_actions(space: Space, outputs: Outputs, precision: str) -> None:
    """Every output is finite, and every action is one of the action space.

    Raises:
        GateError: one is not.
    """
    for name, values in outputs.items():
        if not np.isfinite(values).all():
            raise GateError(f"The {precision} policy's {name!r} is not finite on some observations")
    action = outputs["action"]
    low, high = _action_bounds(space)
    if (action < low).any() or (action > high).any():
        raise GateError(
            f"The {precision} policy acts outside its action space",
            expected=f"{low.tolist()} to {high.tolist()}",
            got=f"{action.min(axis=0).tolist()} to {action.max(axis=0).tolist()}",
        )


def _action_bounds(space: Space) -> tuple[Array, Array]:
    if isinstance(space, Box):
        low, high = space.bounds()
        return low.astype(space.dtype), high.astype(space.dtype)
    lowest, highest = integer_range(leaf_spaces(space)[OBSERVATION])
    return np.asarray(lowest), np.asarray(highest)


def check_repeatable(session: Session, obs: Leaves, names: Sequence[str], precision: str) -> None:
    """The same observations twice give the same bytes.

    Raises:
        GateError: they do not.
    """
    first, second = (run_onnx(session, obs, names) for _ in range(2))
    if any(first[name].tobytes() != second[name].tobytes() for name in names):
        raise GateError(f"The {precision} policy gives other outputs when it is asked twice")


def _check_visited(expected: Outputs, got: Outputs, batch: int) -> float:
    errors = _errors(expected, got)
    name = max(errors, key=lambda key: errors[key])
    if not errors[name] <= TOLERANCE:
        raise _not_equal(name, f"visited observations, batches of {batch}", TOLERANCE, errors[name])
    return errors[name]


def _check_rest(trainer: Outputs, got: Outputs, exact: Outputs, batch: int) -> float:
    """Nearness to float64 is the measure: far out, float32 itself is the larger part of any difference."""
    reference, errors = _errors(exact, trainer), _errors(exact, got)
    for name, error in errors.items():
        allowed = EXTREME_FACTOR * max(reference[name], EXTREME_FLOOR)
        if not error <= allowed:
            raise _not_equal(name, f"samples and extremes, batches of {batch}", allowed, error)
    return max(_errors(trainer, got).values())


def _check_choice(space: Space, expected: Outputs, got: Outputs, batch: int) -> None:
    """Where the best choice leads by more than the tolerance lets it move, it has to be the same."""
    values = expected.get("logits", expected.get("q_values"))
    if values is None:
        return
    clear = decided(space, values, TOLERANCE, len(values))
    different = expected["action"] != got["action"]
    turned = int((different.any(axis=tuple(range(1, different.ndim))) & clear).sum())
    if turned:
        raise GateError(
            "The float32 file chooses other actions than the trainer where the choice is clear",
            expected=f"the same on all {int(clear.sum())} observations, in batches of {batch}",
            got=f"others on {turned}",
        )


def _errors(expected: Outputs, got: Outputs) -> dict[str, float]:
    """Largest error of each real-valued output."""
    return {name: row_error(got[name], expected[name]) for name in got if expected[name].dtype.kind == "f"}


def _not_equal(name: str, where: str, allowed: float, error: float) -> GateError:
    return GateError(
        f"The float32 file is not the policy that was trained: its {name!r} differs on {where}",
        expected=f"at most {allowed:.3g} of the row's largest magnitude",
        got=f"{error:.3g}",
        todo="Nothing was published. Please report this with the run's config.yaml",
    )
