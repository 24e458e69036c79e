"""From a run's checkpoint to its scales: play, observe, train where asked for, compare, publish."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from paddleport.checkpoint import Checkpoint
from paddleport.errors import ArtifactError, GateError
from paddleport.files import sha256_bytes
from paddleport.progress import stage
from paddleport.spaces import Array, Leaves, batch_size
from quantize import calibration, gate, ptq, qat_state, scales
from quantize.comparison import Reference, answers, layer_errors, output_error, play_stage
from quantize.fake import fake_quantized
from quantize.layers import check_layers, left_float
from quantize.scales import LayerScales, Quantization, Report, Training
from quantize.sensitivity import keep_fewest
from train.checkpointing import now, versions
from train.network import PolicyNetwork, network_of

CALIBRATION_SEEDS = 1_000_000
"""Calibration episodes are seeded this far from those that the gate plays: scales are not judged by what made them."""
AUTO = "auto"
_WHAT = "The fake-quantized policy"
_ROWS_A_ROUND = 8192
_BATCH, _IMAGE_BATCH = 256, 64
_UPDATES, _IMAGE_UPDATES = 400, 60
_VALUE_ERROR = 0.25


@dataclass(frozen=True)
class QatOptions:
    """How a student is trained, where one is."""

    rounds: int = 8
    updates: int = 0
    """In each round; 0 for `_UPDATES`, or for `_IMAGE_UPDATES` where the policy sees images."""
    learning_rate: float = 3e-4
    resume: bool = False


@dataclass(frozen=True)
class Request:
    """What to quantize, and how."""

    run: Path
    checkpoint: Checkpoint
    method: str
    """`ptq`, `qat`, or `auto`: qat where the gate refuses ptq."""
    observer: str
    """A key of `ptq.OBSERVERS`, or `auto`: the one with the best agreement."""
    calibration_episodes: int
    episodes: int
    seed: int
    trust_code: bool = False
    calibration_file: Path | None = None
    """Observations for the observer, instead of played ones."""
    keep_float: tuple[str, ...] = ()
    """Structural paths of layers to leave in float, or `auto` alone."""
    qat: QatOptions = field(default_factory=QatOptions)
    tolerance: gate.Tolerance = field(default_factory=gate.Tolerance)


@dataclass(frozen=True)
class _Candidate:
    """A quantized policy before its gate."""

    method: str
    observer: str
    network: PolicyNetwork
    """Its float weights."""
    weights: dict[str, Array]
    layers: dict[str, LayerScales]
    tried: dict[str, float]
    training: Training | None = None

    def twin(self) -> PolicyNetwork:
        """The policy on its grids."""
        return fake_quantized(self.network, self.layers)


def quantize_run(request: Request) -> tuple[Path, Quantization]:
    """Decide scales for a run's policy and publish them in `RUN/quantized/<method>/`.

    Args:
        request: what to do.

    Returns:
        The folder, and the document in it (its `files` left empty).

    Raises:
        GateError: the fake-quantized policy is too far from the float one; earlier results stay as they were.
        ArtifactError: the checkpoint, or the file of observations, is damaged.
        UsageError: its environment cannot be made here, or a layer of it cannot be quantized.
    """
    checkpoint = request.checkpoint
    network = network_of(checkpoint, trust_code=request.trust_code)
    _check_weights(checkpoint)
    check_layers(network, _named(request))
    if request.qat.resume:
        qat_state.check_unfinished(request.run)
    observations = _observations(network, request)
    environment = checkpoint.state.environment.id
    reference = Reference.play(network, environment, request.episodes, request.seed)
    candidate, report = _accepted(request, reference, observations)
    _warn_of_value(candidate, reference)
    document = Quantization(
        method=candidate.method,
        observer=candidate.observer,
        checkpoint_sha256=checkpoint.sha256,
        step=checkpoint.state.step,
        seed=request.seed,
        calibration_episodes=0 if request.calibration_file else request.calibration_episodes,
        calibration_observations=batch_size(observations),
        calibration_file=request.calibration_file.name if request.calibration_file else "",
        kept_float=_kept_float(network, request, candidate),
        training=candidate.training,
        tolerance=request.tolerance,
        layers=candidate.layers,
        report=report,
        versions={**versions(), "paddleslim": importlib.metadata.version("paddleslim")},
        created=now(),
        files={},
    )
    path = scales.publish(request.run, document, candidate.weights)
    if candidate.method == "qat":
        qat_state.remove(request.run)
    return path, document


def _check_weights(checkpoint: Checkpoint) -> None:
    wrong = [name for name, array in checkpoint.policy_tensors().items() if not np.isfinite(array).all()]
    if wrong:
        raise ArtifactError(
            "The policy holds weights that are no finite numbers",
            expected="a policy whose training went well",
            got=", ".join(wrong[:3]),
            todo="Take an earlier checkpoint: --checkpoint step-N",
        )


def _warn_of_value(candidate: _Candidate, reference: Reference) -> None:
    """The gate judges how the policy acts; the value it gives beside is nothing that it acts by."""
    if "value" not in reference.outputs:
        return
    moved = answers(candidate.twin(), reference.observations)
    error = output_error(reference.outputs, moved, ("value",))
    if error > _VALUE_ERROR:
        _say(
            f"The policy acts as before, but its value is off by {error:.2g} of its own deviation. Who reads it takes "
            "it from float32, another --observer, or keeps the value's layers in float: --keep-float value_head"
        )


def unfinished(run: Path) -> Path:
    """Where an interrupted training of a student is kept."""
    return qat_state.folder_of(run)


def _accepted(request: Request, reference: Reference, observations: Leaves) -> tuple[_Candidate, Report]:
    """The first candidate that passes the gate, with what was measured of it."""
    first = _ptq(request, reference, observations)
    makers: dict[str, Callable[[], _Candidate]] = {
        "ptq": lambda: first,
        "qat": lambda: _qat(request, reference, observations, first),
    }
    *earlier, last = tuple(makers) if request.method == AUTO else (request.method,)
    for method in earlier:
        try:
            return _gated(request, reference, makers[method](), keep_fewest_float=False)
        except GateError as error:
            _say(f"{error.what}: got {error.got}. Trying {last}.")
    return _gated(request, reference, makers[last](), keep_fewest_float=request.keep_float == (AUTO,))


def _gated(
    request: Request, reference: Reference, candidate: _Candidate, *, keep_fewest_float: bool
) -> tuple[_Candidate, Report]:
    """A candidate that passes the gate, as it is or with some layers left in float, and what was measured of it."""
    errors = layer_errors(candidate.network, candidate.layers, reference.observations)
    tried = candidate.tried
    try:
        report = _passed(candidate, reference, request.tolerance, _advice(request, candidate.method, errors))
    except GateError as error:
        if not keep_fewest_float:
            raise
        _say(f"{error.what}: got {error.got}. Looking for layers to keep in float.")
        candidate, report = _with_fewest_kept(candidate, reference, request.tolerance)
    return candidate, msgspec.structs.replace(report, layer_errors=errors, tried=tried)


def _passed(candidate: _Candidate, reference: Reference, tolerance: gate.Tolerance, todo: str) -> Report:
    twin = candidate.twin()
    gate.check_agreement(_WHAT, reference.agreement(twin), tolerance, todo)
    report = reference.report(twin)
    gate.check(_WHAT, report.agreement, report.returns, tolerance, todo)
    return report


def _with_fewest_kept(
    candidate: _Candidate, reference: Reference, tolerance: gate.Tolerance
) -> tuple[_Candidate, Report]:
    def passes(layers: dict[str, LayerScales]) -> None:
        _passed(replace(candidate, layers=layers), reference, tolerance, "")

    kept = keep_fewest(candidate.network, candidate.layers, reference.observations, passes)
    layers = {path: scales for path, scales in candidate.layers.items() if path not in kept}
    chosen = replace(candidate, layers=layers)
    return chosen, reference.report(chosen.twin())


def _ptq(request: Request, reference: Reference, observations: Leaves) -> _Candidate:
    network = reference.network
    tried: dict[str, float] = {}
    errors: dict[str, float] = {}
    names = tuple(ptq.OBSERVERS) if request.observer == AUTO else (request.observer,)
    found: dict[str, dict[str, LayerScales]] = {}
    with stage(f"Deciding scales ({', '.join(names)})", len(names)) as advance:
        for name in names:
            found[name] = ptq.calibrate(network, observations, name, _named(request))
            moved = answers(fake_quantized(network, found[name]), reference.observations)
            tried[name] = reference.agreement_of(moved)
            errors[name] = output_error(reference.outputs, moved)
            advance()
    # Where actions agree alike, what else the policy says decides: its value, and how sure it is.
    best = max(names, key=lambda name: (tried[name], -errors[name]))
    weights = request.checkpoint.policy_tensors()
    return _Candidate("ptq", best, network, weights, found[best], tried if len(names) > 1 else {})


def _qat(request: Request, reference: Reference, observations: Leaves, start: _Candidate) -> _Candidate:
    from quantize import qat  # PTQ alone needs none of it

    settings = qat_settings(request, reference, observations, start.observer)
    learnt = qat.train(request.run, reference, start.layers, observations, settings, resume=request.qat.resume)
    network = network_of(request.checkpoint, learnt.weights, trust_code=request.trust_code)
    return _Candidate("qat", start.observer, network, learnt.weights, learnt.layers, start.tried, learnt.training)


def qat_settings(request: Request, reference: Reference, observations: Leaves, observer: str) -> qat_state.Settings:
    """How a student is trained: what the request says, and what follows from the policy's observations."""
    space, options = request.checkpoint.state.observation_space, request.qat
    images = bool(reference.network.encoding.images)
    return qat_state.Settings(
        checkpoint_sha256=request.checkpoint.sha256,
        seed=request.seed,
        observer=observer,
        calibration_sha256=sha256_bytes(b"".join(array.tobytes() for array in observations.values())),
        keep_float=_named(request),
        rounds=options.rounds,
        episodes=request.calibration_episodes,
        rows_a_round=max(1, min(_ROWS_A_ROUND, calibration.most_rows(space) // options.rounds)),
        updates=options.updates or (_IMAGE_UPDATES if images else _UPDATES),
        batch_size=_IMAGE_BATCH if images else _BATCH,
        learning_rate=options.learning_rate,
    )


def _observations(network: PolicyNetwork, request: Request) -> Leaves:
    state = request.checkpoint.state
    if request.calibration_file:
        return calibration.read_observations(request.calibration_file, state.observation_space)
    episodes, seed = request.calibration_episodes, request.seed + CALIBRATION_SEEDS
    keep = calibration.most_rows(state.observation_space)
    return play_stage("Calibrating", network, state.environment.id, episodes, seed, keep=keep).observations


def _named(request: Request) -> tuple[str, ...]:
    """The layers that were named to stay in float."""
    return () if request.keep_float == (AUTO,) else request.keep_float


def _kept_float(network: PolicyNetwork, request: Request, candidate: _Candidate) -> tuple[str, ...]:
    found = ptq.chosen(network, _named(request)).keys() - candidate.layers.keys()
    return left_float(network, (*_named(request), *found))


def _advice(request: Request, method: str, errors: dict[str, scales.LayerError]) -> str:
    worst = min(errors, key=lambda path: (errors[path].agreement, -errors[path].error))
    tries = [
        "--method qat" if method == "ptq" else "more --qat-rounds",
        "--observer auto" if request.observer != AUTO else "more --calibration-episodes",
        f"--keep-float {worst} (the layer that costs most), or --keep-float auto",
    ]
    return f"Try {', '.join(tries)}; nothing was changed"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
