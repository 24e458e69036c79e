"""From a checkpoint to a published bundle: convert, prove, quantize, prove again, play, publish."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import onnx

from export import golden
from export.canonical import canonicalize, tensor_infos
from export.convert import Conversion
from export.metadata import describe_itself
from export.model_card import model_card
from export.observations import observation_sets
from export.precisions import (
    Proven,
    Trainer,
    play_stage,
    prove_float32,
    prove_half,
    prove_int8,
    prove_tensorrt,
)
from export.publish import npz_bytes, publish
from export.quantization_report import FIGURE, quantization_figure, quantization_report
from paddleport.checkpoint import Checkpoint, CheckpointState
from paddleport.errors import GateError, PaddleportError
from paddleport.features import statistics_of
from paddleport.manifest import (
    GOLDEN,
    ActionTransform,
    Manifest,
    Parity,
    Provenance,
    ReturnStatistics,
)
from paddleport.progress import stage
from paddleport.spaces import Box, MultiBinary, MultiDiscrete, leaf_spaces, rows_of
from quantize.scales import Quantized
from train.checkpointing import now
from train.curves import curve_of
from train.figures import learning_curve
from train.metrics import read_metrics
from train.network import network_of, run_network

CARD = "README.md"
LEARNING_CURVE = "learning_curve.png"
_VISITED = 1024
_TOOLS = ("paddle2onnx", "onnx", "onnxruntime", "paddleslim")


@dataclass(frozen=True)
class Request:
    """What to export, and where to."""

    checkpoint: Checkpoint
    quantized: Quantized | None
    name: str
    models: Path
    episodes: int
    seed: int
    half: bool = False
    """Whether to make the float16 file too."""
    trust_code: bool = False


@dataclass(frozen=True)
class Outcome:
    """A published bundle."""

    path: Path
    manifest: Manifest
    trainer: ReturnStatistics
    parity: Parity
    left_out: dict[str, str] = field(default_factory=dict)
    """Files that did not pass and that the others do without, by precision, with what was wrong."""


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
    state = checkpoint.state
    network = network_of(checkpoint, trust_code=request.trust_code)
    playing = state.environment.id, request.episodes, request.seed
    played = play_stage("trainer", lambda obs: run_network(network, obs)["action"], *playing, keep=_VISITED)
    with stage("Converting with paddle2onnx", 1) as advance:
        converted = conversion.result()
        advance()
    model = canonicalize(converted, leaf_spaces(state.observation_space), network.output_names)
    describe_itself(
        model,
        algorithm=state.algorithm,
        environment=state.environment,
        observation_space=state.observation_space,
        action_space=state.action_space,
        run_id=state.run_id,
    )
    sets = observation_sets(state.observation_space, played.observations, request.seed)
    trainer = Trainer(checkpoint, network, model, sets, played, request.trust_code)
    proven: dict[str, Proven] = {}
    proven["float32"], proof = prove_float32(trainer)
    agreement, left_out = 0.0, dict[str, str]()
    if request.quantized is not None:
        proven["int8"], agreement = prove_int8(trainer, request.quantized)
        try:
            proven["int8-trt"] = prove_tensorrt(trainer, request.quantized)
        except (
            GateError
        ) as error:  # its grids are coarser where nothing is negative; the file for CPUs stands by itself
            left_out["int8-trt"] = f"{error.what}: expected {error.expected}, got {error.got}"
    if request.half:
        proven["fp16"] = prove_half(trainer)
    report = quantization_report(request.quantized, proven, agreement, sets.visited) if request.quantized else None
    draft = _manifest(request, model, proven, proof, report)
    draft = msgspec.structs.replace(
        draft, observation_statistics=statistics_of(state.observation_space, played.observations)
    )
    path, manifest = _publish(draft, request, proven, trainer)
    return Outcome(path, manifest, played.statistics, proof, left_out)


def _manifest(
    request: Request,
    model: onnx.ModelProto,
    proven: dict[str, Proven],
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


def _publish(draft: Manifest, request: Request, proven: dict[str, Proven], trainer: Trainer) -> tuple[Path, Manifest]:
    sessions = {name: candidate.session for name, candidate in proven.items()}
    obs, played = trainer.golden_rows, trainer.episodes.statistics
    files = {candidate.file: candidate.data for candidate in proven.values()}
    files[GOLDEN] = npz_bytes(golden.golden_arrays(obs, sessions, trainer.network.output_names))
    if (curve := _learning_curve(request)) is not None:
        files[LEARNING_CURVE] = curve
    if draft.quantization is not None:
        files[FIGURE] = quantization_figure(draft, played)
    sizes = {name: len(data) for name, data in files.items()}

    def with_card(manifest: Manifest) -> dict[str, bytes]:
        return {**files, CARD: model_card(manifest, sizes, rows_of(obs, -1), trainer=played).encode()}

    path = publish(request.models, draft, with_card)
    return path, msgspec.structs.replace(draft, version=int(path.name))


def _learning_curve(request: Request) -> bytes | None:
    """How the run learnt, as a picture; None where its metrics are gone, or Matplotlib is not there."""
    state = request.checkpoint.state
    run = request.checkpoint.path.parents[1]
    try:
        curve = curve_of(read_metrics(run))
        if not len(curve.steps) + len(curve.means):
            return None
        return learning_curve(curve, f"{state.algorithm} on {state.environment.id}, seed {state.seed}")
    except (ModuleNotFoundError, PaddleportError, OSError):
        return None  # a bundle is no worse a policy without a picture


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
