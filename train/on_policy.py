"""What PPO and A2C share: acting, rollouts, advantages, and the state that a checkpoint holds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np
import paddle

from paddleport.checkpoint import NetworkInfo
from paddleport.errors import UsageError
from paddleport.spaces import Array, Box, Leaves, Space, describe
from train.acting import make_actor
from train.collector import Collector, Rollout
from train.config import OnPolicyConfig
from train.distributions import distribution_for
from train.encoding import Encoder, encoding_of, prefixed
from train.engines.base import Engine, Optimizer, Problem
from train.gae import generalized_advantages
from train.initialization import initial_weights
from train.iteration import episode_means, finite_means, scaler_metrics
from train.losses import features_in
from train.network import ActorCritic
from train.normalizer import RewardNormalizer, RunningNormalizer
from train.schedules import scheduled
from train.stepping import Stepper
from train.task import Task

_ADVANTAGE_EPSILON = 1e-8
_WARM_UP_ROWS = 1024
C = TypeVar("C", bound=OnPolicyConfig)


class OnPolicy(ABC, Generic[C]):
    """An algorithm that collects a rollout with the present policy, learns from it and forgets it.

    A subclass says what the loss is and in which batches a rollout is learnt from.

    Args:
        config: hyper-parameters.
        task: the environments and their spaces.
        make_engine: makes the engine for a problem.
        rng: the run's one generator.
    """

    terms: ClassVar[tuple[str, ...]]
    """Names of what the loss reports."""
    extra_inputs: ClassVar[dict[str, tuple[tuple[int, ...], str]]] = {}
    """Shape and type of what the loss takes beside one row a transition."""
    steps_an_iteration: ClassVar[int] = 1
    """An iteration takes rollouts until it has at least so many steps: reporting each short one would cost as much."""
    replay = None

    def __init__(
        self,
        config: C,
        task: Task,
        make_engine: Callable[[Problem], Engine],
        rng: np.random.Generator,
    ) -> None:
        self.config, self.rng = config, rng
        observation_space, action_space = task.observation_space, task.action_space
        self.network_info = _network_info(config, observation_space, action_space)
        self._make_network = partial(ActorCritic, observation_space, action_space, self.network_info)
        self.distribution = distribution_for(action_space, squash=self.network_info.squash)
        self.encoder = Encoder(observation_space, normalize=config.normalize_obs)
        self.reward_normalizer = RewardNormalizer(config.num_envs, config.gamma) if config.normalize_reward else None
        weights = initial_weights(self._make_network(), rng, config.log_std_init)
        self.engine = make_engine(self._problem())
        self.engine.load_weights(weights)
        self.actor = make_actor(observation_space, action_space, self.network_info, self._make_network)
        self.actor.load(self.engine.weights())
        self.stepper = Stepper(task.envs, observation_space)
        self.collector = Collector(self.stepper, self.actor, self.distribution, self.encoder)
        self.updates = 0

    @property
    def step(self) -> int:
        """Transitions taken so far."""
        return self.stepper.step

    @property
    def normalizer(self) -> RunningNormalizer | None:
        """The normaliser of observations, where the policy has one."""
        return self.encoder.normalizer

    @property
    @abstractmethod
    def batch_rows(self) -> int:
        """Rows in each batch that the engine is given."""

    @property
    @abstractmethod
    def row_inputs(self) -> tuple[str, ...]:
        """What the loss takes of each row beside observation, action and `weight`; see `_flat_rows`."""

    @property
    @abstractmethod
    def optimizer(self) -> Optimizer:
        """The optimizer."""

    @abstractmethod
    def loss(self, outputs: dict[str, paddle.Tensor], batch: dict[str, paddle.Tensor]) -> dict[str, paddle.Tensor]:
        """`terms` as scalars, `loss` among them."""

    @abstractmethod
    def batches(self, flat: dict[str, Array], transitions: Array, progress: float) -> Iterable[dict[str, Array]]:
        """What a rollout is learnt from, in order.

        Args:
            flat: arrays [rows, …], a row an environment and step.
            transitions: indices of the rows that are transitions.
            progress: share of the training that is done.
        """

    def iterate(self, progress: float) -> dict[str, float | None]:
        """A rollout and the updates on it, and again while the rollouts are short.

        Args:
            progress: share of the training that is done, for the schedules.

        Returns:
            What there is to log.

        Raises:
            TrainingError: a number stopped being finite.
        """
        config = self.config
        learning_rate = scheduled(config.learning_rate, config.learning_rate_schedule, progress)
        if self.normalizer and not self.normalizer.count:
            self._warm_up()
        first, returns, lengths, terms = self.step, list[float](), list[int](), list[Array]()
        while self.step - first < self.steps_an_iteration:
            rollout = self.collector.collect(config.n_steps, self.rng)
            returns += rollout.returns
            lengths += rollout.lengths
            advantages = self._advantages(rollout)
            terms += self._learn(rollout, advantages, learning_rate, progress)
            self.actor.load(self.engine.weights())
        return {
            **episode_means(returns, lengths),
            **finite_means(self.terms, terms, self.step),
            **scaler_metrics(self.engine.scaler_state()),
            "explained_variance": _explained_variance(rollout, advantages),
            "learning_rate": learning_rate,
            "updates": float(len(terms)),
        }

    def enough(self, terms: Array) -> bool:
        """Whether what an update reported says that this rollout has been learnt from enough."""
        return False

    def _advantages(self, rollout: Rollout) -> Array:
        config, rewards = self.config, rollout.rewards
        if self.reward_normalizer:
            rewards = self.reward_normalizer.normalize(rewards, rollout.done, rollout.valid)
        return generalized_advantages(
            rewards,
            rollout.values,
            rollout.next_values,
            rollout.terminated,
            rollout.done,
            config.gamma,
            config.gae_lambda,
        )

    def _learn(self, rollout: Rollout, advantages: Array, learning_rate: float, progress: float) -> list[Array]:
        """The updates on a rollout; returns what each of them reported."""
        flat, transitions = self._flat_rows(rollout, advantages), np.flatnonzero(rollout.valid)
        terms: list[Array] = []
        for batch in self.batches(flat, transitions, progress):
            reported = self.engine.update(batch, learning_rate)
            if reported is None:  # skipped, since its gradients overflowed
                continue
            terms.append(reported)
            if self.enough(reported):
                break
        self.updates += len(terms)
        return terms

    def act(self, obs: Leaves) -> Array:
        """Deterministic actions in the environment's units for raw observations [batch, …]."""
        heads = self.actor.heads(self.encoder.features(obs))
        return self.distribution.to_environment(self.distribution.mode(heads))

    def policy_tensors(self) -> dict[str, Array]:
        """Tensors of the whole policy, as `PolicyNetwork` takes them."""
        return self.engine.weights() | self.encoder.policy_tensors()

    def trainer_tensors(self) -> dict[str, Array]:
        """What else training needs to continue exactly."""
        tensors = self.engine.optimizer_state() | self.encoder.trainer_tensors()
        if self.reward_normalizer:
            moments = self.reward_normalizer.moments
            tensors["reward_normalizer"] = np.array([moments.count, moments.mean[0], moments.variance[0]])
        return tensors

    def counters(self) -> dict[str, int]:
        """What is counted beside the steps."""
        return {"updates": self.updates}

    def reset_environments(self, seed: int) -> None:
        """Start a new episode in every environment."""
        self.stepper.reset(seed)
        if self.reward_normalizer:
            self.reward_normalizer.reset()

    def end_episodes(self) -> None:
        """A rollout bootstraps from where it stands: there is nothing to do."""

    def restore(
        self,
        policy: dict[str, Array],
        trainer: dict[str, Array],
        step: int,
        counters: dict[str, int],
        normalizer_count: float,
    ) -> None:
        """Continue from saved tensors and counters; the generator is restored by its owner."""
        self.engine.load_weights(policy)
        self.engine.load_optimizer_state(trainer)
        self.actor.load(self.engine.weights())
        self.stepper.step, self.updates = step, counters["updates"]
        self.encoder.restore(normalizer_count, trainer)
        if self.reward_normalizer:
            count, mean, variance = trainer["reward_normalizer"]
            self.reward_normalizer.moments.restore(float(count), np.array([mean]), np.array([variance]))

    def _warm_up(self) -> None:
        """Let the normaliser see some observations first; nothing is learnt from them, and their steps count.

        An update on features of a wrong scale can saturate units that never recover.
        """
        steps = min(self.config.n_steps, -(-_WARM_UP_ROWS // self.config.num_envs))
        self.collector.collect(steps, self.rng)

    def _flat_rows(self, rollout: Rollout, advantages: Array) -> dict[str, Array]:
        """What the loss takes of each row, [rows, …]."""
        known = {
            "log_prob": rollout.log_probs,
            "value": rollout.values,
            "advantage": advantages,
            "value_target": advantages + rollout.values,
        }
        taken = {"action": rollout.actions} | {name: known[name] for name in self.row_inputs}
        return {name: _flat(values) for name, values in (prefixed("obs", rollout.features) | taken).items()}

    def _problem(self) -> Problem:
        rows = (self.batch_rows,)
        features = {f"obs.{name}": (rows + shape, kind) for name, (shape, kind) in self.encoder.shapes.items()}
        return Problem(
            make_network=self._make_network,
            loss=lambda network, batch: self.loss(network.heads(features_in(batch, "obs")), batch),
            terms=self.terms,
            batch_shapes={
                **features,
                "action": (rows + self.distribution.action_shape, self.distribution.action_dtype),
                **dict.fromkeys((*self.row_inputs, "weight"), (rows, "float32")),
                **self.extra_inputs,
            },
            optimizer=self.optimizer,
            max_grad_norm=self.config.max_grad_norm,
        )


def _network_info(config: OnPolicyConfig, observation_space: Space, action_space: Space) -> NetworkInfo:
    if config.squash and not isinstance(action_space, Box):
        raise UsageError("--squash is for Box actions", expected="a Box action space", got=describe(action_space))
    has_images = bool(encoding_of(observation_space).images)
    return NetworkInfo(
        hidden_sizes=config.hidden_sizes,
        activation=config.activation,
        normalize_obs=config.normalize_obs,
        shared_trunk=has_images if config.trunk == "auto" else config.trunk == "shared",
        squash=config.squash,
        trunk_class=config.trunk_class,
    )


def standardized(values: Array, weight: Array) -> Array:
    """Values [batch] shifted and scaled to mean 0 and standard deviation 1 over the rows that count, float32."""
    counted = values if weight.all() else values[weight > 0]
    if len(counted) < 2:
        return values
    mean = counted.mean()
    deviations = counted - mean
    scale = math.sqrt(float(deviations @ deviations) / (len(counted) - 1)) + _ADVANTAGE_EPSILON
    return (values - mean) / np.float32(scale)


def _explained_variance(rollout: Rollout, advantages: Array) -> float | None:
    """1 - Var(target - value) / Var(target): 1 is a perfect critic, 0 no better than a constant."""
    targets = (advantages + rollout.values)[rollout.valid]
    variance = float(targets.var())
    return 1.0 - float(advantages[rollout.valid].var()) / variance if variance > 0 else None


def _flat(values: Array) -> Array:
    """[T, N, …] → [T·N, …]."""
    return values.reshape(-1, *values.shape[2:])
