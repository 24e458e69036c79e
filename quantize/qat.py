"""Quantization-aware training: a fake-quantized student learns to act as its float teacher, on states it visits itself.

Round by round the student plays whole episodes, greedily, and the float policy says what it would have answered on
every observation (Ross et al. 2011, "A Reduction of Imitation Learning and Structured Prediction to No-Regret Online
Learning": DAgger, with the student alone at the wheel); then it learns on all that was seen so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from paddleport.errors import TrainingError
from paddleport.progress import stage
from paddleport.spaces import Array, Leaves, batch_size, joined, rows_of
from quantize import qat_state
from quantize.calibration import thinned
from quantize.comparison import Reference, answers
from quantize.distillation import TARGET, TERMS, distillation_loss, spreads
from quantize.qat_state import Progress, Settings
from quantize.scales import LayerScales, Training
from quantize.student import float_weights, learnt_scales, student_of
from train.engines.base import Optimizer, Problem
from train.engines.eager import EagerEngine
from train.episodes import play
from train.network import PolicyNetwork, run_network

QAT_SEEDS = 2_000_000
"""Episodes that the student plays are seeded this far from those of the gate and of calibration."""
_ROUND_SEEDS = 10_000
_MAX_GRAD_NORM = 1.0
_TAUGHT = ("logits", "mean", "q_values", "value")


@dataclass(frozen=True)
class Learnt:
    """What came of it."""

    layers: dict[str, LayerScales]
    weights: dict[str, Array]
    """The student's float weights, by the policy's structural paths."""
    training: Training


def train(
    run: Path,
    reference: Reference,
    layers: dict[str, LayerScales],
    observations: Leaves,
    settings: Settings,
    *,
    resume: bool,
) -> Learnt:
    """Train a student, or train on one that was interrupted: with the same end, bit for bit, on a CPU.

    Args:
        run: the run directory, which keeps the training after each round.
        reference: the float policy.
        layers: scales to begin with, of the layers to quantize.
        observations: what calibration saw; the student learns on these too.
        settings: how.
        resume: whether to go on with what the run keeps.

    Raises:
        UsageError, ArtifactError: there is nothing to go on with.
        TrainingError: the loss is not finite any more.
    """
    student = student_of(reference.network, layers)
    few = thinned(observations, settings.rows_a_round)
    seen = {**few, **_targets(reference.network, few)}
    engine = EagerEngine(_problem(student, reference.network, seen))
    progress = Progress(0, 0.0, {}, {}, seen)
    if resume:
        progress = qat_state.read(run, settings)
        engine.load_weights(progress.student)
        engine.load_optimizer_state(progress.optimizer)
    else:
        qat_state.remove(run)
    left = settings.rounds - progress.rounds_done
    with stage(f"Training the student, {left} rounds", left * settings.updates) as advance:
        while progress.rounds_done < settings.rounds:
            progress = _round(engine, student, reference, settings, progress, advance)
            qat_state.write(run, settings, progress)
    training = Training(
        rounds=settings.rounds,
        updates=settings.rounds * settings.updates,
        learning_rate=settings.learning_rate,
        observations=batch_size(progress.seen),
        loss=progress.loss,
    )
    return Learnt(learnt_scales(student, layers), float_weights(student), training)


def _problem(student: PolicyNetwork, teacher: PolicyNetwork, seen: Leaves) -> Problem:
    scale = spreads({name.removeprefix(TARGET): array for name, array in seen.items() if name.startswith(TARGET)})

    def loss(network: Any, batch: dict[str, paddle.Tensor]) -> dict[str, paddle.Tensor]:  # noqa: ANN401 - the student
        obs = {name: tensor for name, tensor in batch.items() if not name.startswith(TARGET)}
        return distillation_loss(teacher.action_space, network.heads(network.features(obs)), batch, scale)

    return Problem(
        make_network=lambda: student,
        loss=loss,
        terms=TERMS,
        batch_shapes={},  # the eager engine takes what comes
        optimizer=Optimizer(kind="adam", epsilon=1e-8),
        max_grad_norm=_MAX_GRAD_NORM,
    )


def _round(
    engine: EagerEngine,
    student: PolicyNetwork,
    reference: Reference,
    settings: Settings,
    progress: Progress,
    advance: Callable[[], None],
) -> Progress:
    """Play with the student, ask the teacher, learn."""
    number, updates = progress.rounds_done, settings.updates
    student.eval()
    obs = play(
        lambda rows: run_network(student, rows)["action"],
        reference.env_id,
        settings.episodes,
        settings.seed + QAT_SEEDS + number * _ROUND_SEEDS,
        keep=settings.rows_a_round,
    ).observations
    student.train()
    seen = joined([progress.seen, {**obs, **_targets(reference.network, obs)}])
    rng = np.random.default_rng([settings.seed, number])
    losses = []
    for index in range(updates):
        rows = rng.integers(batch_size(seen), size=settings.batch_size)
        done = (number * updates + index) / (settings.rounds * updates)
        losses.append(engine.update(rows_of(seen, rows), settings.learning_rate * (1 - done)))
        advance()
    loss = float(np.mean([terms[0] for terms in losses if terms is not None]))
    if not np.isfinite(loss):
        todo = "Try a lower --qat-learning-rate"
        raise TrainingError("The student's loss is not finite any more", got=f"round {number + 1}", todo=todo)
    return Progress(number + 1, loss, engine.weights(), engine.optimizer_state(), seen)


def _targets(teacher: PolicyNetwork, obs: Leaves) -> dict[str, Array]:
    """What the teacher answers, under the names that `distillation_loss` reads."""
    return {f"{TARGET}{name}": array for name, array in answers(teacher, obs).items() if name in _TAUGHT}
