"""From a checkpoint to a published bundle: convert, prove, quantize, prove again, play, publish."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import onnx

from export import golden, parity
from export.canonical import canonicalize, tensor_infos
from export.convert import Conversion
from export.kernels import float_layers
from export.model_card import model_card
from export.observations import ObservationSets, observation_sets
from export.publish import npz_bytes, publish
from export.qdq import quantized
from paddleport.checkpoint import Checkpoint, CheckpointState
from paddleport.errors import GateError
from paddleport.features import statistics_of
from paddleport.manifest import (
    GOLDEN,
    ActionTransform,
    Manifest,
    Parity,
    PrecisionInfo,
    Provenance,
    ReturnStatistics,
)
from paddleport.progress import stage
from paddleport.session import Session
from paddleport.spaces import Array, Box, Leaves, MultiBinary, MultiDiscrete, leaf_spaces, rows_of
from quantize import gate
from quantize.fake import fake_quantized
from quantize.scales import Quantized
from train.checkpointing import now
from train.episodes import BatchPolicy, Episodes, play
from train.network import PolicyNetwork, network_of, run_network

FLOAT32_FILE = "policy.onnx"
INT8_FILE = "policy.int8.onnx"
CARD = "README.md"
_VISITED = 1024
_WRITER_AGREEMENT = 0.99
_TOOLS = ("paddle2onnx", "onnx", "onnxruntime", "paddleslim")
_INT8_ADVICE = "Quantize with another --observer, or export without int8: --quantized none; nothing was published"
_REPORT_ADVICE = "Nothing was published. Please report this with the run's config.yaml"


@dataclass(frozen=True)
class Request:
    """What to export, and where to."""

    checkpoint: Checkpoint
    quantized: Quantized | None
    name: str
    models: Path
    episodes: int
    seed: int
    trust_code: bool = False


@dataclass(frozen=True)
class Outcome:
    """A published bundle."""

    path: Path
    manifest: Manifest
    trainer: ReturnStatistics


@dataclass(frozen=True)
class _Proven:
    """One precision's file, after its gate."""

    file: str
    data: bytes
    session: Session
    info: PrecisionInfo


def export_run(request: Request, conversion: Conversion) -> Outcome:
    """Publish a checkpoint's policy as the next version of `request.name`.

    Args:
        request: what to export.
        conversion: of the request's checkpoint, already under way.

    Raises:
        GateError: the policy cannot be converted, or an ONNX file is not equal enough; nothing is published.
        ArtifactError: scales do not belong to the checkpoint, or a file is damaged.
    """
    checkpoint = request.checkpoint
    network = network_of(checkpoint, trust_code=request.trust_code)
    trainer = _play("trainer", lambda obs: run_network(network, obs)["action"], request, keep=_VISITED)
    with stage("Converting with paddle2onnx", 1) as advance:
        converted = conversion.result()
        advance()
    space = checkpoint.state.observation_space
    model = canonicalize(converted, leaf_spaces(space), network.output_names)
    sets = observation_sets(space, trainer.observations, request.seed)
    session = Session(_bytes(model))
    proof = parity.prove_float32(network, session, sets)
    proven = {"float32": _float32(request, network, model, session, trainer)}
    report = None
    if request.quantized is not None:
        proven["int8"], report = _int8(request, request.quantized, network, model, sets, trainer)
    draft = _manifest(request, model, proven, proof, report)
    draft = msgspec.structs.replace(draft, observation_statistics=statistics_of(space, trainer.observations))
    return _publish(request, draft, proven, network, trainer)


def _float32(
    request: Request, network: PolicyNetwork, model: onnx.ModelProto, session: Session, trainer: Episodes
) -> _Proven:
    played = _play("float32", _acting(session), request)
    returns = gate.compare_returns(trainer, played)
    agreement = _agreement(network, session, trainer.observations)
    gate.check("The float32 file", agreement, returns, gate.Tolerance(), _REPORT_ADVICE)
    info = PrecisionInfo(
        file=FLOAT32_FILE,
        tolerance=golden.FLOAT32_TOLERANCE,
        measured_return=played.statistics,
        action_agreement=agreement,
    )
    return _Proven(FLOAT32_FILE, _bytes(model), session, info)


def _int8(
    request: Request,
    scales: Quantized,
    network: PolicyNetwork,
    model: onnx.ModelProto,
    sets: ObservationSets,
    trainer: Episodes,
) -> tuple[_Proven, dict[str, Any]]:
    """Write the int8 file and let it pass its gates; returns it with the report for the manifest."""
    weights, layers = scales.tensors(), scales.document.layers
    data = _bytes(quantized(model, layers, weights))
    session = Session(data)
    if left := float_layers(data):
        raise GateError("ONNX Runtime would not run these layers on integers", got=left, todo=_REPORT_ADVICE)
    names = network.output_names
    parity.check_actions(network.action_space, parity.run_onnx(session, sets.everything, names), "int8")
    parity.check_repeatable(session, sets.everything, names, "int8")
    twin = fake_quantized(network_of(request.checkpoint, weights, trust_code=request.trust_code), layers)
    written = _agreement(twin, session, sets.visited)
    if written < _WRITER_AGREEMENT:
        raise GateError(
            "The int8 file does not act as the policy fake-quantized in Paddle",
            expected=f"an agreement of at least {_WRITER_AGREEMENT}",
            got=f"{written:.4f}",
            todo=_REPORT_ADVICE,
        )
    played = _play("int8", _acting(session), request)
    returns = gate.compare_returns(trainer, played)
    agreement = _agreement(network, session, sets.visited)
    gate.check("The int8 file", agreement, returns, gate.Tolerance(), _INT8_ADVICE)
    obs = golden.golden_observations(request.checkpoint.state.observation_space, trainer.observations)
    info = PrecisionInfo(
        file=INT8_FILE,
        tolerance=golden.int8_tolerance(model, layers, weights, obs),
        measured_return=played.statistics,
        action_agreement=agreement,
    )
    return _Proven(INT8_FILE, data, session, info), _report(scales, written, returns)


def _report(scales: Quantized, written: float, returns: gate.ReturnComparison) -> dict[str, Any]:
    """What the manifest says of the quantization."""
    document = msgspec.to_builtins(scales.document)
    kept = ("method", "observer", "seed", "calibration_episodes", "calibration_observations", "layers", "report")
    return {
        **{key: document[key] for key in kept},
        "agreement_with_paddle": written,
        "return_drop": returns.drop,
        "return_interval": returns.interval,
    }


def _manifest(
    request: Request,
    model: onnx.ModelProto,
    proven: dict[str, _Proven],
    proof: Parity,
    report: dict[str, Any] | None,
) -> Manifest:
    state = request.checkpoint.state
    return Manifest(
        name=request.name,
        version=0,
        algorithm=state.algorithm,
        environment=state.environment,
        observation_space=state.observation_space,
        action_space=state.action_space,
        action_transform=_transform(state),
        inputs=tensor_infos(model.graph.input),
        outputs=tensor_infos(model.graph.output),
        opset=model.opset_import[0].version,
        ir_version=model.ir_version,
        precisions={name: candidate.info for name, candidate in proven.items()},
        files={},
        provenance=_provenance(request.checkpoint),
        parity=proof,
        quantization=report,
    )


def _transform(state: CheckpointState) -> ActionTransform:
    """How the outputs become an action."""
    space = state.action_space
    if isinstance(space, Box):
        return ActionTransform(kind="tanh" if state.network.squash else "affine")
    if isinstance(space, MultiBinary):
        return ActionTransform(kind="threshold")
    return ActionTransform(kind="argmax", splits=space.nvec if isinstance(space, MultiDiscrete) else ())


def _provenance(checkpoint: Checkpoint) -> Provenance:
    state = checkpoint.state
    tools = {name: importlib.metadata.version(name) for name in _TOOLS if _installed(name)}
    return Provenance(
        run_id=state.run_id,
        checkpoint_sha256=checkpoint.sha256,
        step=state.step,
        seed=state.seed,
        config=state.config,
        versions={**state.versions, **tools},
        created=now(),
    )


def _publish(
    request: Request,
    draft: Manifest,
    proven: dict[str, _Proven],
    network: PolicyNetwork,
    trainer: Episodes,
) -> Outcome:
    sessions = {name: candidate.session for name, candidate in proven.items()}
    obs = golden.golden_observations(request.checkpoint.state.observation_space, trainer.observations)
    files = {candidate.file: candidate.data for candidate in proven.values()}
    files[GOLDEN] = npz_bytes(golden.golden_arrays(obs, sessions, network.output_names))
    sizes = {name: len(data) for name, data in files.items()}

    def with_card(manifest: Manifest) -> dict[str, bytes]:
        return {**files, CARD: model_card(manifest, trainer.statistics, sizes, rows_of(obs, -1)).encode()}

    path = publish(request.models, draft, with_card)
    manifest = msgspec.structs.replace(draft, version=int(path.name))
    return Outcome(path, manifest, trainer.statistics)


def _play(label: str, policy: BatchPolicy, request: Request, *, keep: int = 0) -> Episodes:
    env_id = request.checkpoint.state.environment.id
    with stage(f"Playing {label}, {request.episodes} episodes", request.episodes) as advance:
        return play(policy, env_id, request.episodes, request.seed, keep=keep, on_episode=advance)


def _acting(session: Session) -> Callable[[Leaves], Array]:
    return lambda obs: session.run(obs, ("action",))[0]


def _agreement(network: PolicyNetwork, session: Session, obs: Leaves) -> float:
    expected = run_network(network, obs)["action"]
    return gate.action_agreement(network.action_space, expected, parity.run_onnx(session, obs, ("action",))["action"])


def _bytes(model: onnx.ModelProto) -> bytes:
    return bytes(model.SerializeToString(deterministic=True))


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
