"""The ONNX files of a bundle, each proven by its own rules before it counts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import onnx

from export import golden, parity
from export.half import half
from export.kernels import float_layers
from export.observations import ObservationSets
from export.qdq import CPU, TENSORRT, Form, quantized
from paddleport.checkpoint import Checkpoint
from paddleport.errors import GateError
from paddleport.manifest import Precision, PrecisionInfo
from paddleport.progress import stage
from paddleport.session import Session
from paddleport.spaces import Array, Leaves, joined
from quantize import gate
from quantize.fake import fake_quantized
from quantize.grid import signed
from quantize.scales import Quantized
from train.episodes import BatchPolicy, Episodes, play
from train.network import PolicyNetwork, network_of, run_network

FILES: dict[Precision, str] = {
    "float32": "policy.onnx",
    "int8": "policy.int8.onnx",
    "int8-trt": "policy.int8-trt.onnx",
    "fp16": "policy.fp16.onnx",
}
_WRITER_AGREEMENT = 0.99
_INT8_ADVICE = (
    "Quantize with --method qat, another --observer or --keep-float auto, or export without int8: --quantized none; "
    "nothing was published"
)
_HALF_ADVICE = "Leave --fp16 out; nothing was published"
_REPORT_ADVICE = "Nothing was published. Please report this with the run's config.yaml"


@dataclass(frozen=True)
class Proven:
    """One precision's file, after its gate."""

    file: str
    data: bytes
    session: Session
    info: PrecisionInfo
    returns: gate.ReturnComparison


@dataclass(frozen=True)
class Trainer:
    """What every file is held against: the policy in Paddle, and the episodes that it played."""

    checkpoint: Checkpoint
    network: PolicyNetwork
    model: onnx.ModelProto
    """Its canonical float32 graph."""
    sets: ObservationSets
    episodes: Episodes
    trust_code: bool

    @property
    def golden_rows(self) -> Leaves:
        """The observations that the golden vectors answer."""
        return golden.golden_observations(self.checkpoint.state.observation_space, self.episodes.observations)

    def agreement(self, session: Session) -> float:
        """How alike a file acts on visited observations."""
        return _agreement(self.network, session, self.sets.visited)


def prove_float32(trainer: Trainer) -> tuple[Proven, parity.Parity]:
    """The float32 file, equal to the trainer; returns it with the proof.

    Raises:
        GateError: it is not.
    """
    data = _bytes(trainer.model)
    session = Session(data)
    proof = parity.prove_float32(trainer.network, session, trainer.sets)
    return _proven(trainer, "float32", data, session, gate.Tolerance(), golden.FLOAT32_TOLERANCE, _REPORT_ADVICE), proof


def prove_int8(trainer: Trainer, scales: Quantized) -> tuple[Proven, float]:
    """The int8 file for CPUs, on integer kernels and equal to fake-quantized Paddle; returns it with that agreement.

    Raises:
        GateError: a layer would run on floats, or the policy acts otherwise or earns too little.
    """
    data = _bytes(_written(trainer, scales, CPU))
    if left := float_layers(data):
        todo = "Quantize again with --keep-float and their names; nothing was published"
        raise GateError("ONNX Runtime would not run these layers on integers", got=", ".join(left), todo=todo)
    return _int8(trainer, scales, "int8", data, CPU)


def prove_tensorrt(trainer: Trainer, scales: Quantized) -> Proven:
    """The int8 file in the form that TensorRT takes. It is run here by ONNX Runtime on a CPU, slowly.

    Raises:
        GateError: the policy acts otherwise, or earns too little.
    """
    return _int8(trainer, scales, "int8-trt", _bytes(_written(trainer, scales, TENSORRT)), TENSORRT)[0]


def prove_half(trainer: Trainer) -> Proven:
    """The float16 file.

    Float16 ends at 65,504: raw observations far out, which no normaliser brings nearer, are beyond it, so its outputs
    are asked to be finite on what is visited and around the bounds only.

    Raises:
        GateError: the policy acts otherwise, or earns too little.
    """
    data = _bytes(half(trainer.model))
    session = Session(data)
    near, names = joined([trainer.sets.visited, trainer.sets.sampled]), trainer.network.output_names
    parity.check_actions(trainer.network.action_space, parity.run_onnx(session, near, names), "fp16")
    parity.check_repeatable(session, near, names, "fp16")
    tolerance = golden.half_tolerance(Session(_bytes(trainer.model)), session, trainer.golden_rows, names)
    return _proven(trainer, "fp16", data, session, gate.Tolerance(), tolerance, _HALF_ADVICE)


def play_stage(label: str, policy: BatchPolicy, env_id: str, episodes: int, seed: int, *, keep: int = 0) -> Episodes:
    """Play whole episodes, with a progress bar."""
    with stage(f"Playing {label}, {episodes} episodes", episodes) as advance:
        return play(policy, env_id, episodes, seed, keep=keep, on_episode=advance)


def _int8(trainer: Trainer, scales: Quantized, name: Precision, data: bytes, form: Form) -> tuple[Proven, float]:
    session, names = Session(data), trainer.network.output_names
    everything = trainer.sets.everything
    parity.check_actions(trainer.network.action_space, parity.run_onnx(session, everything, names), name)
    parity.check_repeatable(session, everything, names, name)
    own = network_of(trainer.checkpoint, scales.tensors(), trust_code=trainer.trust_code)
    layers = scales.document.layers
    written = _agreement(fake_quantized(own, signed(layers) if form.signed else layers), session, trainer.sets.visited)
    if written < _WRITER_AGREEMENT:
        raise GateError(
            f"The {name} file does not act as the policy fake-quantized in Paddle",
            expected=f"an agreement of at least {_WRITER_AGREEMENT}",
            got=f"{written:.4f}",
            todo=_REPORT_ADVICE,
        )
    write = functools.partial(_written, trainer, scales, form)
    tolerance = golden.int8_tolerance(write, layers, trainer.golden_rows, names)
    return _proven(trainer, name, data, session, scales.document.tolerance, tolerance, _INT8_ADVICE), written


def _written(trainer: Trainer, scales: Quantized, form: Form, layers: golden.Layers | None = None) -> onnx.ModelProto:
    """The int8 model in a form, with the document's scales or with others."""
    document = scales.document
    chosen = document.layers if layers is None else layers
    return quantized(trainer.model, chosen, scales.tensors(), kept_float=document.kept_float, form=form)


def _proven(
    trainer: Trainer,
    name: Precision,
    data: bytes,
    session: Session,
    tolerance: gate.Tolerance,
    golden_tolerance: float,
    advice: str,
) -> Proven:
    """Let a file pass the gate."""
    episodes = trainer.episodes
    env_id = trainer.checkpoint.state.environment.id
    agreement = trainer.agreement(session)
    what = f"The {name} file"
    gate.check_agreement(what, agreement, tolerance, advice)
    played = play_stage(name, _acting(session), env_id, len(episodes.returns), episodes.seed)
    returns = gate.compare_returns(episodes, played)
    gate.check(what, agreement, returns, tolerance, advice)
    info = PrecisionInfo(
        file=FILES[name],
        tolerance=golden_tolerance,
        measured_return=played.statistics,
        action_agreement=agreement,
    )
    return Proven(FILES[name], data, session, info, returns)


def _acting(session: Session) -> Callable[[Leaves], Array]:
    return lambda obs: session.run(obs, ("action",))[0]


def _agreement(network: PolicyNetwork, session: Session, obs: Leaves) -> float:
    expected = run_network(network, obs)["action"]
    return gate.action_agreement(network.action_space, expected, parity.run_onnx(session, obs, ("action",))["action"])


def _bytes(model: onnx.ModelProto) -> bytes:
    return bytes(model.SerializeToString(deterministic=True))
