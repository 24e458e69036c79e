"""Deep Q-learning with a target network, double and dueling forms, n-step returns and prioritised replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from paddle import nn

from paddleport.checkpoint import NetworkInfo
from paddleport.errors import UsageError
from paddleport.spaces import Array, Discrete, Leaves, Space, leaf_spaces
from train.acting import make_actor
from train.config import DQNConfig
from train.encoding import Encoder, prefixed
from train.engines.base import Engine, Optimizer, Problem
from train.initialization import initial_weights
from train.iteration import STEPS_AN_ITERATION, episode_means, finite_means, scaler_metrics
from train.losses import DQN_TERMS, dqn_loss
from train.network import QNetwork
from train.normalizer import RunningNormalizer
from train.replay import Replay, Sample
from train.schedules import falling, scheduled
from train.stepping import Stepper
from train.task import Task

_SAMPLED_AT_ONCE = 1024
"""Transitions of several minibatches are drawn together, up to about this many."""


class TwinQNetwork(nn.Layer):
    """The network that learns and the one that its targets come from."""

    def __init__(self, observation_space: Space, action_space: Space, info: NetworkInfo) -> None:
        super().__init__()
        self.online = QNetwork(observation_space, action_space, info)
        self.target = QNetwork(observation_space, action_space, info)
        for parameter in self.target.parameters():
            parameter.stop_gradient = True


class DQN:
    """DQN (Mnih et al. 2015, algorithm 1) and one iteration of it.

    Args:
        config: hyper-parameters.
        task: the environments and their spaces; actions are Discrete.
        make_engine: makes the engine for a problem.
        rng: the run's one generator.

    Raises:
        UsageError: the action space is not Discrete.
    """

    def __init__(
        self,
        config: DQNConfig,
        task: Task,
        make_engine: Callable[[Problem], Engine],
        rng: np.random.Generator,
    ) -> None:
        self.config, self.rng = config, rng
        observation_space, action_space = task.observation_space, task.action_space
        self.network_info = NetworkInfo(
            hidden_sizes=config.hidden_sizes,
            activation=config.activation,
            normalize_obs=config.normalize_obs,
            kind="q_values",
            dueling=config.dueling,
            trunk_class=config.trunk_class,
        )
        make_online = partial(QNetwork, observation_space, action_space, self.network_info)
        online = initial_weights(make_online(), rng)
        self._start, self._actions = _choices(action_space)
        self.encoder = Encoder(observation_space, normalize=config.normalize_obs)
        self.engine = make_engine(self._problem(observation_space, action_space))
        self.engine.load_weights(prefixed("online", online) | prefixed("target", online))
        self.actor = make_actor(observation_space, action_space, self.network_info, make_online)
        self.actor.load(online)
        self.replay = _replay(config, task)
        self.stepper = Stepper(task.envs, observation_space)
        self.updates = 0
        self._target_step = 0

    @property
    def step(self) -> int:
        """Transitions taken so far."""
        return self.stepper.step

    @property
    def normalizer(self) -> RunningNormalizer | None:
        """The normaliser of observations, where the policy has one."""
        return self.encoder.normalizer

    def iterate(self, progress: float) -> dict[str, float | None]:
        """Some rounds of steps in the environments and the updates behind them.

        Args:
            progress: share of the training that is done, for the schedules.

        Returns:
            What there is to log.

        Raises:
            TrainingError: a number stopped being finite.
        """
        config = self.config
        epsilon = falling(config.exploration_start, config.exploration_end, progress, config.exploration_fraction)
        learning_rate = scheduled(config.learning_rate, config.learning_rate_schedule, progress)
        beta = config.importance_start + (1 - config.importance_start) * progress
        first, terms = self.step, []
        while self.step - first < STEPS_AN_ITERATION:
            terms += self._round(epsilon, learning_rate, beta)
        return {
            **episode_means(*self.stepper.ended()),
            **finite_means(DQN_TERMS, terms, self.step),
            **scaler_metrics(self.engine.scaler_state()),
            "epsilon": epsilon,
            "replay_size": float(len(self.replay)),
            "learning_rate": learning_rate,
            "updates": float(len(terms)),
        }

    def end_episodes(self) -> None:
        """Count the episodes that are going on as truncated."""
        self.replay.cut(self.stepper.obs)

    def reset_environments(self, seed: int) -> None:
        """Start a new episode in every environment."""
        self.stepper.reset(seed)

    def act(self, obs: Leaves) -> Array:
        """Greedy actions in the environment's units for raw observations [batch, …]."""
        return self._greedy(obs) + self._start

    def policy_tensors(self) -> dict[str, Array]:
        """Tensors of the whole policy, as `QPolicyNetwork` takes them."""
        return _without("online", self.engine.weights()) | self.encoder.policy_tensors()

    def trainer_tensors(self) -> dict[str, Array]:
        """What else training needs to continue exactly, the replay apart."""
        target = _without("target", self.engine.weights())
        return self.engine.optimizer_state() | prefixed("target", target) | self.encoder.trainer_tensors()

    def counters(self) -> dict[str, int]:
        """What is counted beside the steps."""
        return {"updates": self.updates, "target_step": self._target_step}

    def restore(
        self,
        policy: dict[str, Array],
        trainer: dict[str, Array],
        step: int,
        counters: dict[str, int],
        normalizer_count: float,
    ) -> None:
        """Continue from saved tensors and counters; the generator and the replay are restored by their owner."""
        target = {name: value for name, value in trainer.items() if name.startswith("target.")}
        self.engine.load_weights(prefixed("online", policy) | target)
        self.engine.load_optimizer_state(trainer)
        self.actor.load(policy)
        self.encoder.restore(normalizer_count, trainer)
        self.stepper.step = step
        self.updates, self._target_step = counters["updates"], counters["target_step"]

    def _round(self, epsilon: float, learning_rate: float, beta: float) -> list[Array]:
        """`train_every` steps in the environments, then updates; returns what each update reported."""
        config, before = self.config, self.step
        seen = [self._act(epsilon) for _ in range(-(-config.train_every // config.num_envs))]
        self.encoder.observe(seen)
        if self.step < config.learning_starts or len(self.replay) < config.batch_size:
            return []
        self._move_target()
        count = self.step - before if config.gradient_steps < 0 else config.gradient_steps
        terms: list[Array] = []
        for batches in self._drawn(count, beta):
            terms += self._learn(batches, learning_rate)
        self.updates += len(terms)
        self.actor.load(_without("online", self.engine.weights()))
        return terms

    def _act(self, epsilon: float) -> Leaves:
        """One step in every environment, a share `epsilon` of them at random; returns what they showed before it."""
        obs, count = self.stepper.obs, self.stepper.count
        random = self.rng.random(count) < epsilon
        actions = self.rng.integers(self._actions, size=count)
        if not random.all():
            actions = np.where(random, actions, self._greedy(obs))
        taken = self.stepper.take(actions + self._start)
        self.replay.append(
            obs=obs,
            action=actions,
            reward=taken.rewards,
            terminated=taken.terminated,
            done=taken.done,
            valid=taken.valid,
            final_obs=taken.final_obs,
        )
        return obs

    def _greedy(self, obs: Leaves) -> Array:
        best: Array = self.actor.heads(self.encoder.features(obs))["q_values"].argmax(axis=1)
        return best

    def _drawn(self, count: int, beta: float) -> Iterator[Sample]:
        """Transitions for `count` updates: several minibatches at once, but one where priorities change with each."""
        size = self.config.batch_size
        together = 1 if self.config.prioritized else max(1, _SAMPLED_AT_ONCE // size)
        for first in range(0, count, together):
            yield self.replay.sample(min(together, count - first) * size, self.rng, beta)

    def _learn(self, sample: Sample, learning_rate: float) -> list[Array]:
        """An update on each minibatch of a sample; returns what they reported."""
        rows = {
            **prefixed("obs", self.encoder.features(sample.obs)),
            **prefixed("next_obs", self.encoder.features(sample.next_obs)),
            "action": sample.actions,
            "returns": sample.returns,
            "discounts": sample.discounts,
            "weight": sample.weight,
        }
        size, terms = self.config.batch_size, []
        for start in range(0, len(sample.rows), size):
            part = slice(start, start + size)
            reported = self.engine.update({name: values[part] for name, values in rows.items()}, learning_rate)
            if reported is None:  # skipped, since its gradients overflowed
                continue
            self.replay.update_priorities(sample.rows[part], reported[len(DQN_TERMS) :])
            terms.append(reported[: len(DQN_TERMS)])
        return terms

    def _move_target(self) -> None:
        """Copy the network that learns, or move towards it, once in every `target_every` environment steps."""
        due, before = self.step // self.config.target_every, self._target_step
        if due > before:
            self._target_step = due
            # Several moves in a row towards the same weights are one that goes further.
            tau = np.float32(1 - (1 - self.config.target_tau) ** (due - before))
            weights = self.engine.weights()
            online, target = _without("online", weights), _without("target", weights)
            moved = (
                online if tau == 1 else {name: target[name] + tau * (online[name] - target[name]) for name in online}
            )
            self.engine.load_weights(prefixed("online", online) | prefixed("target", moved))

    def _problem(self, observation_space: Space, action_space: Space) -> Problem:
        rows = (self.config.batch_size,)
        features = {name: (rows + shape, kind) for name, (shape, kind) in self.encoder.shapes.items()}
        return Problem(
            make_network=partial(TwinQNetwork, observation_space, action_space, self.network_info),
            loss=partial(dqn_loss, double=self.config.double),
            terms=DQN_TERMS,
            row_terms=("td_errors",),
            batch_shapes={
                **{f"obs.{name}": shape for name, shape in features.items()},
                **{f"next_obs.{name}": shape for name, shape in features.items()},
                "action": (rows, "int64"),
                **dict.fromkeys(("returns", "discounts", "weight"), (rows, "float32")),
            },
            optimizer=Optimizer("adam", self.config.adam_epsilon),
            max_grad_norm=self.config.max_grad_norm,
        )


def _replay(config: DQNConfig, task: Task) -> Replay:
    """The replay memory; UsageError where the system has not so much memory to give."""
    leaves = {name: (leaf.shape, leaf.dtype) for name, leaf in leaf_spaces(task.observation_space).items()}
    exponent = config.priority_exponent if config.prioritized else 0.0
    try:
        return Replay(
            config.replay_capacity, config.num_envs, leaves, config.n_steps, config.gamma, exponent, task.stacks()
        )
    except MemoryError as error:
        raise UsageError(
            f"A replay of {config.replay_capacity} transitions does not fit into this machine's memory",
            got=error,
            todo="Lower --replay-capacity",
        ) from error


def _choices(space: Space) -> tuple[int, int]:
    """The first action and how many there are; `QNetwork` refuses every other kind of space."""
    return (space.start, space.n) if isinstance(space, Discrete) else (0, 0)


def _without(prefix: str, weights: dict[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(f"{prefix}."): value for name, value in weights.items() if name.startswith(f"{prefix}.")}
