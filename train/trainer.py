"""The training loop: iterate, evaluate and checkpoint at scheduled barriers, continue exactly after a stop."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import paddle
from gymnasium.vector import VectorEnv

from paddleport.checkpoint import REPLAY_ROWS, Checkpoint, CheckpointState, Run
from paddleport.errors import ArtifactError, TrainingError, UsageError
from paddleport.files import sweep
from paddleport.manifest import EnvironmentInfo, FileInfo, ReturnStatistics
from paddleport.spaces import Array, Space
from train import configuration
from train.a2c import A2C
from train.checkpointing import now, versions, write_checkpoint
from train.config import AlgorithmConfig, TrainConfig
from train.devices import Device, choose_device, make_engine
from train.disk import writing_to
from train.dqn import DQN
from train.environments import check_environment, describe_environment, make_vector
from train.environments.watchdog import watchdog
from train.episodes import Stopped, play
from train.keeping import newest_whole, prune
from train.on_policy import OnPolicy
from train.ppo import PPO
from train.replay_files import write_rows
from train.reporting import Reporter
from train.stopping import PATIENCE_SECONDS, StopRequest, signals
from train.task import Task

Algorithm: TypeAlias = OnPolicy[Any] | DQN
ALGORITHMS: dict[str, Callable[..., Algorithm]] = {"ppo": PPO, "a2c": A2C, "dqn": DQN}
_LOCK = ".lock"
_EVALUATION_SEED = 2_000_000_000


class Training(msgspec.Struct, frozen=True):
    """What a training came to."""

    run_dir: str
    run_id: str
    algorithm: str
    environment: str
    step: int
    finished: bool
    engine: str
    device: str
    evaluation: ReturnStatistics | None
    """Of the last checkpoint, on the evaluation episodes that choose the best one."""
    best_mean_return: float | None
    steps_per_second: float
    resumed_from: int | None
    trunk_class: str
    """The user's own trunk; empty where it is Paddleport's."""


def train(config: TrainConfig[AlgorithmConfig]) -> Training:
    """Train until `total_steps`, or until a signal asks to stop.

    Raises:
        UsageError: the run directory holds something and `resume` is not set, or a value is out of range.
        ArtifactError: there is nothing to resume that is whole.
        TrainingError: training cannot go on.
    """
    configuration.check(config)
    folder = Path(config.run.run_dir)
    device = choose_device(config.run)
    watchdog.limit = config.run.step_limit_seconds
    check_environment(config.run.env)
    described = describe_environment(config.run.env)
    paddle.seed(config.run.seed)  # for the first weights of a user's own trunk: everything else is drawn with NumPy
    with contextlib.closing(make_vector(config.run.env, config.algorithm.num_envs, config.run.vector)) as envs:
        # Before there is a folder: it refuses what it cannot do.
        trainer = Trainer(config, folder, device, described, envs)
        with _claimed(folder, resume=config.run.resume) as run_id:
            return trainer.run(trainer.resume_or_start(run_id))


class Trainer:
    """One run in progress.

    Args:
        config: what to train, checked.
        folder: the run directory.
        device: where and how updates run.
        described: the environment, its observation space and its action space.
        envs: the environments to learn in.

    Raises:
        UsageError: the algorithm cannot do these spaces, or there is no such network.
    """

    def __init__(
        self,
        config: TrainConfig[AlgorithmConfig],
        folder: Path,
        device: Device,
        described: tuple[EnvironmentInfo, Space, Space],
        envs: VectorEnv,
    ) -> None:
        self.config, self.folder, self.device = config, folder, device
        self.environment, self.observation_space, self.action_space = described
        self.run_id = ""
        self.rng = np.random.default_rng(config.run.seed)
        task = Task(envs, self.observation_space, self.action_space, self.environment.preprocessing)
        self.algorithm = ALGORITHMS[config.run.algo](config.algorithm, task, partial(make_engine, device), self.rng)
        self.every = config.run.checkpoint_every or max(1, config.run.total_steps // 10)
        self.evaluation: ReturnStatistics | None = None
        self.best: float | None = None
        self._replay_files: dict[str, FileInfo] = {}

    def resume_or_start(self, run_id: str) -> int | None:
        """Restore the newest whole checkpoint; returns its step, or None at the very start.

        Args:
            run_id: identity of the run.
        """
        self.run_id = run_id
        path = self.folder / configuration.CONFIG
        with writing_to(self.folder):
            if not path.exists():
                configuration.save(self.config, run_id, path)
            checkpoint = newest_whole(Run(self.folder)) if self.config.run.resume else None
        if checkpoint is not None:
            self._restore(checkpoint)
            # Once more: a kill may have come between the last checkpoint and what it made superfluous.
            prune(Run(self.folder), checkpoint.state.step, self.config.run.keep_checkpoints)
        self._reset_environments()
        return checkpoint.state.step if checkpoint else None

    def run(self, resumed: int | None) -> Training:
        """Iterate to the end, or to a barrier where a signal asked to stop."""
        options, algorithm = self.config.run, self.algorithm
        label = f"{options.algo} {options.env}"
        last = algorithm.step
        gc.collect()
        gc.freeze()  # what is there stays: Paddle's objects are many, and looking through them again costs a tenth
        with Reporter(self.folder, last, options.total_steps, label) as report, signals() as stop:
            report.say(self.device.reason)
            if algorithm.step >= options.total_steps:
                report.say(f"This run finished at step {algorithm.step} already.")
            while algorithm.step < options.total_steps:
                at_barrier = algorithm.step == last
                if stop.asked and (at_barrier or self._seconds_to_barrier(last, report) > PATIENCE_SECONDS):
                    break
                barrier = self._next_barrier(last)
                metrics = algorithm.iterate(min(1.0, algorithm.step / options.total_steps))
                report.iteration(algorithm.step, metrics)
                if algorithm.step >= barrier:
                    if not self._checkpoint(report, stop):
                        break
                    last = algorithm.step
            finished = algorithm.step >= options.total_steps
            if not finished:
                redo = algorithm.step - last
                again = f" and takes {redo} steps again" if redo else ""
                report.say(f"Stopped. --resume continues from step {last}{again}.")
            rate = report.rate(algorithm.step)
            report.learning_curve(f"{options.algo} on {options.env}, seed {options.seed}")
        return self._result(finished, rate, resumed)

    def _next_barrier(self, last: int) -> int:
        return min((last // self.every + 1) * self.every, self.config.run.total_steps)

    def _seconds_to_barrier(self, last: int, report: Reporter) -> float:
        rate = report.rate(self.algorithm.step)
        return (self._next_barrier(last) - self.algorithm.step) / rate if rate > 0 else float("inf")

    def _checkpoint(self, report: Reporter, stop: StopRequest) -> bool:
        """The barrier: evaluate, write, and reset every environment, also in a run that is never interrupted.

        Returns whether there is a checkpoint: a signal to stop does not wait for long evaluations.

        Raises:
            TrainingError: an evaluation gave a number that is not finite, or the weights are none.
        """
        options, algorithm = self.config.run, self.algorithm
        _check_weights(algorithm.policy_tensors(), algorithm.step)
        seed = _EVALUATION_SEED + options.seed % 1_000_000
        try:
            played = play(algorithm.act, options.env, options.evaluation_episodes, seed, stop=stop.has_waited)
        except Stopped:
            return False
        self.evaluation = played.statistics
        self.best = self.evaluation.mean if self.best is None else max(self.best, self.evaluation.mean)
        # Reported first: what the checkpoint lets a resumed run skip has to be on record by then.
        report.evaluation(algorithm.step, self.evaluation.mean, self.evaluation.std)
        algorithm.end_episodes()
        with writing_to(self.folder):
            self._write()
        self._reset_environments()
        return True

    def _write(self) -> None:
        algorithm, replay = self.algorithm, self.algorithm.replay
        if replay is not None:
            self._replay_files = write_rows(self.folder, replay, self._replay_files)
        rest = replay.state() if replay is not None else {}
        write_checkpoint(self.folder, self._state(), algorithm.policy_tensors(), algorithm.trainer_tensors(), rest)
        prune(Run(self.folder), algorithm.step, self.config.run.keep_checkpoints)

    def _reset_environments(self) -> None:
        seed = np.random.SeedSequence((self.config.run.seed, self.algorithm.step)).generate_state(1)[0]
        self.algorithm.reset_environments(int(seed))

    def _state(self) -> CheckpointState:
        algorithm = self.algorithm
        return CheckpointState(
            run_id=self.run_id,
            algorithm=self.config.run.algo,
            step=algorithm.step,
            seed=self.config.run.seed,
            config=configuration.to_mapping(self.config),
            environment=self.environment,
            observation_space=self.observation_space,
            action_space=self.action_space,
            network=algorithm.network_info,
            counters=algorithm.counters(),
            rng=msgspec.to_builtins(self.rng.bit_generator.state),
            normalizer_count=algorithm.normalizer.count if algorithm.normalizer else 0.0,
            amp_scaler=algorithm.engine.scaler_state(),
            evaluation=self.evaluation,
            best_mean_return=self.best,
            versions=versions(),
            created=now(),
            files={},
            replay_files=self._replay_files,
        )

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.state
        before = configuration.to_mapping(configuration.of_run(state.config, str(checkpoint.path)))
        differing = configuration.differences(before, configuration.to_mapping(self.config))
        if differing:
            raise ArtifactError(
                f"{self.folder / configuration.CONFIG} is not what {checkpoint.path} was trained with",
                got=", ".join(differing),
                todo="Put the old values back, or train in another --run-dir",
            )
        if (state.observation_space, state.action_space) != (self.observation_space, self.action_space):
            raise ArtifactError(
                f"The environment {self.config.run.env} is not the one that {checkpoint.path} was trained in",
                expected=f"{state.observation_space}, {state.action_space}",
                got=f"{self.observation_space}, {self.action_space}",
            )
        try:
            self._restore_algorithm(checkpoint)
        except (KeyError, ValueError, TypeError) as error:  # of an edited state, or of an older release
            raise ArtifactError(
                f"{checkpoint.path} does not hold what this training needs",
                got=f"{type(error).__name__}: {error}",
                todo="Train again in another --run-dir",
            ) from error
        self.evaluation, self.best = state.evaluation, state.best_mean_return

    def _restore_algorithm(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.state
        self.algorithm.restore(
            checkpoint.policy_tensors(),
            checkpoint.optimizer_tensors(),
            state.step,
            state.counters,
            state.normalizer_count,
        )
        self.algorithm.engine.load_scaler_state(state.amp_scaler)
        if self.algorithm.replay is not None:
            self.algorithm.replay.restore(checkpoint.replay_tensors(), checkpoint.replay_rows())
            self._replay_files = state.replay_files
        self.rng.bit_generator.state = state.rng

    def _result(self, finished: bool, rate: float, resumed: int | None) -> Training:
        return Training(
            run_dir=str(self.folder),
            run_id=self.run_id,
            algorithm=self.config.run.algo,
            environment=self.config.run.env,
            step=self.algorithm.step,
            finished=finished,
            engine=self.device.engine,
            device=self.device.name,
            evaluation=self.evaluation,
            best_mean_return=self.best,
            steps_per_second=round(rate, 1),
            resumed_from=resumed,
            trunk_class=self.config.algorithm.trunk_class,
        )


def _check_weights(tensors: dict[str, Array], step: int) -> None:
    """Refuse to keep weights that are no numbers: a checkpoint is there to go on from."""
    wrong = sorted(name for name, array in tensors.items() if not np.isfinite(array).all())
    if wrong:
        raise TrainingError(
            f"The weights are not finite any more, at step {step}",
            got=", ".join(wrong[:3]),
            todo="Train again in another --run-dir with a lower --learning-rate; the checkpoint before this is kept",
        )


@contextlib.contextmanager
def _claimed(folder: Path, *, resume: bool) -> Iterator[str]:
    """Hold the run directory for this process; yields the run's id.

    Raises:
        UsageError: it holds something and `resume` is not set, or another process trains in it.
    """
    occupied = folder.is_dir() and any(entry.name != _LOCK for entry in folder.iterdir())
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", expected="a folder for the run")
    if occupied and not resume:
        raise UsageError(
            f"{folder} is not empty",
            expected="a new or empty folder",
            todo="Continue the run in it with --resume, choose another --run-dir, or delete it if it is of no use",
        )
    run_id = uuid.uuid4().hex[:12]
    if resume and occupied:
        _, run_id = configuration.load(Run(folder).path / configuration.CONFIG)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"Another process trains in {folder}", todo="Wait for it, or stop it") from error
        for swept in (folder / "checkpoints", folder / "checkpoints" / REPLAY_ROWS):
            sweep(swept, older_than=0)  # nobody else writes here: the lock is ours
        yield run_id
