"""From a run's checkpoint to its scales: play, observe, compare, publish."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from paddleport.checkpoint import Checkpoint
from paddleport.progress import stage
from paddleport.spaces import Leaves, batch_size
from quantize import gate, ptq, scales
from quantize.fake import fake_quantized
from quantize.scales import Quantization, Report
from train.checkpointing import now, versions
from train.episodes import Episodes, play
from train.network import PolicyNetwork, network_of, run_network

CALIBRATION_SEEDS = 1_000_000
"""Calibration episodes are seeded this far from those that the gate plays: scales are not judged by what made them."""
_CALIBRATION_OBSERVATIONS = 2**16  # all of them as a rule: the rare ones, at an episode's start, matter most
_GATE_OBSERVATIONS = 1024
_ADVICE = "Try another --observer (absmax, mse, hist), or more --calibration-episodes; nothing was changed"


@dataclass(frozen=True)
class Request:
    """What to quantize, and how."""

    run: Path
    checkpoint: Checkpoint
    method: str
    observer: str
    calibration_episodes: int
    episodes: int
    seed: int
    trust_code: bool = False


def quantize_run(request: Request, tolerance: gate.Tolerance | None = None) -> tuple[Path, Quantization]:
    """Decide scales for a run's policy and publish them in `RUN/quantized/<method>/`.

    Args:
        request: what to do.
        tolerance: the gate's limits.

    Returns:
        The folder, and the document in it (its `files` left empty).

    Raises:
        GateError: the fake-quantized policy is too far from the float one; earlier results stay as they were.
        ArtifactError: the checkpoint is damaged.
        UsageError: its environment cannot be made here, or a layer of it cannot be quantized.
    """
    checkpoint = request.checkpoint
    network = network_of(checkpoint, trust_code=request.trust_code)
    ptq.refuse_what_stays_float(network)
    observations = _visited(network, request)
    with stage(f"Deciding scales ({request.observer})", 1) as advance:
        layers = ptq.calibrate(network, observations, request.observer)
        advance()
    report = compare(network, fake_quantized(network, layers), checkpoint, request.episodes, request.seed)
    gate.check("The fake-quantized policy", report.agreement, report.returns, tolerance or gate.Tolerance(), _ADVICE)
    document = Quantization(
        method=request.method,
        observer=request.observer,
        checkpoint_sha256=checkpoint.sha256,
        step=checkpoint.state.step,
        seed=request.seed,
        calibration_episodes=request.calibration_episodes,
        calibration_observations=batch_size(observations),
        layers=layers,
        report=report,
        versions={**versions(), "paddleslim": importlib.metadata.version("paddleslim")},
        created=now(),
        files={},
    )
    return scales.publish(request.run, document, checkpoint.policy_tensors()), document


def compare(network: PolicyNetwork, twin: PolicyNetwork, checkpoint: Checkpoint, episodes: int, seed: int) -> Report:
    """Measure a fake-quantized policy against its float original, on whole episodes and on visited observations."""
    env_id = checkpoint.state.environment.id
    floats = _play("Playing float", network, env_id, episodes, seed, keep=_GATE_OBSERVATIONS)
    fakes = _play("Playing fake-quantized", twin, env_id, episodes, seed)
    visited = floats.observations
    agreement = gate.action_agreement(
        network.action_space, run_network(network, visited)["action"], run_network(twin, visited)["action"]
    )
    return Report(
        agreement=agreement, agreement_observations=batch_size(visited), returns=gate.compare_returns(floats, fakes)
    )


def _visited(network: PolicyNetwork, request: Request) -> Leaves:
    env_id = request.checkpoint.state.environment.id
    episodes, seed = request.calibration_episodes, request.seed + CALIBRATION_SEEDS
    return _play("Calibrating", network, env_id, episodes, seed, keep=_CALIBRATION_OBSERVATIONS).observations


def _play(label: str, network: PolicyNetwork, env_id: str, episodes: int, seed: int, *, keep: int = 0) -> Episodes:
    with stage(f"{label}, {episodes} episodes", episodes) as advance:
        return play(
            lambda obs: run_network(network, obs)["action"], env_id, episodes, seed, keep=keep, on_episode=advance
        )
