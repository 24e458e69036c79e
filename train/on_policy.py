"""What PPO and A2C share: acting, rollouts, advantages, and the state that a checkpoint holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np
import paddle
from gymnasium.vector import VectorEnv

from paddleport.checkpoint import NetworkInfo
from paddleport.spaces import Array, Box, Space
from train.acting import Actor
from train.collector import Collector, Rollout
from train.config import OnPolicyConfig
from train.distributions import distribution_for
from train.engines.base import Engine, Optimizer, Problem
from train.gae import generalized_advantages
from train.iteration import episode_means, finite_means
from train.network import ActorCritic, initial_weights
from train.normalizer import RunningNormalizer
from train.schedules import scheduled

_ADVANTAGE_EPSILON = 1e-8
_WARM_UP_ROWS = 1024
C = TypeVar("C", bound=OnPolicyConfig)


class OnPolicy(ABC, Generic[C]):
    """An algorithm that collects a rollout with the present policy, learns from it and forgets it.

    A subclass says what the loss is and in which batches a rollout is learnt from.

    Args:
        config: hyper-parameters.
        envs: the vector environment, in next-step autoreset mode.
        observation_space: of one environment.
        action_space: of one environment.
        make_engine: makes the engine for a problem.
        rng: the run's one generator.
    """

    terms: ClassVar[tuple[str, ...]]
    """Names of what the loss reports."""
    extra_inputs: ClassVar[dict[str, tuple[tuple[int, ...], str]]] = {}
    """Shape and type of what the loss takes beside one row a transition."""
    replay = None

    def __init__(
        self,
        config: C,
        envs: VectorEnv,
        observation_space: Space,
        action_space: Space,
        make_engine: Callable[[Problem], Engine],
        rng: np.random.Generator,
    ) -> None:
        self.config, self.rng = config, rng
        self.network_info = NetworkInfo(
            hidden_sizes=config.hidden_sizes, activation=config.activation, normalize_obs=config.normalize_obs
        )
        self._make_network = partial(ActorCritic, observation_space, action_space, self.network_info)
        self.distribution = distribution_for(action_space)
        size = observation_space.size if isinstance(observation_space, Box) else 1
        self.normalizer = RunningNormalizer(size) if config.normalize_obs else None
        self.engine = make_engine(self._problem(size))
        self.engine.load_weights(initial_weights(self._make_network(), rng))
        self.actor = Actor(action_space, self.network_info)
        self.actor.load(self.engine.weights())
        self.collector = Collector(envs, self.actor, self.distribution, self.normalizer)
        self.step = 0
        self.updates = 0

    @property
    @abstractmethod
    def batch_rows(self) -> int:
        """Rows in each batch that the engine is given."""

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
        """One rollout and the updates on it.

        Args:
            progress: share of the training that is done, for the schedules.

        Returns:
            What there is to log.

        Raises:
            TrainingError: a number stopped being finite.
        """
        config = self.config
        if self.normalizer and not self.normalizer.count:
            self._warm_up()
        rollout = self.collector.collect(config.n_steps, self.rng, self.step)
        advantages = generalized_advantages(
            rollout.rewards,
            rollout.values,
            rollout.next_values,
            rollout.terminated,
            rollout.done,
            config.gamma,
            config.gae_lambda,
        )
        learning_rate = scheduled(config.learning_rate, config.learning_rate_schedule, progress)
        flat, transitions = _flat_rows(rollout, advantages), np.flatnonzero(rollout.valid)
        terms = [self.engine.update(batch, learning_rate) for batch in self.batches(flat, transitions, progress)]
        self.updates += len(terms)
        self.step += rollout.transitions
        self.actor.load(self.engine.weights())
        return {
            **episode_means(rollout.returns, rollout.lengths),
            **finite_means(self.terms, terms, self.step),
            "explained_variance": _explained_variance(rollout, advantages),
            "learning_rate": learning_rate,
        }

    def act(self, obs: Array) -> Array:
        """Deterministic actions in the environment's units for raw observations [batch, …]."""
        features = self.normalizer.normalize(obs) if self.normalizer else obs.astype(np.float32)
        return self.distribution.to_environment(self.distribution.mode(self.actor.heads(features)))

    def policy_tensors(self) -> dict[str, Array]:
        """Tensors of the whole policy, as `PolicyNetwork` takes them."""
        tensors = self.engine.weights()
        if self.normalizer:
            tensors |= {"obs_mean": self.normalizer.mean32, "obs_std": self.normalizer.std32}
        return tensors

    def trainer_tensors(self) -> dict[str, Array]:
        """What else training needs to continue exactly."""
        tensors = self.engine.optimizer_state()
        if self.normalizer:
            tensors |= {"normalizer/mean": self.normalizer.mean, "normalizer/variance": self.normalizer.variance}
        return tensors

    def counters(self) -> dict[str, int]:
        """What is counted beside the steps."""
        return {"updates": self.updates}

    def reset_environments(self, seed: int) -> None:
        """Start a new episode in every environment."""
        self.collector.reset(seed)

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
        self.step, self.updates = step, counters["updates"]
        if self.normalizer:
            self.normalizer.restore(normalizer_count, trainer["normalizer/mean"], trainer["normalizer/variance"])

    def _warm_up(self) -> None:
        """Let the normaliser see some observations first; nothing is learnt from them, and their steps count.

        An update on features of a wrong scale can saturate units that never recover.
        """
        steps = min(self.config.n_steps, -(-_WARM_UP_ROWS // self.config.num_envs))
        self.step += self.collector.collect(steps, self.rng, self.step).transitions

    def _problem(self, size: int) -> Problem:
        rows = (self.batch_rows,)
        action = (rows + self.distribution.action_shape, self.distribution.action_dtype)
        per_row = ("log_prob", "advantage", "value_target", "weight")
        return Problem(
            make_network=self._make_network,
            loss=lambda network, batch: self.loss(network.heads(batch["obs"]), batch),
            terms=self.terms,
            batch_shapes={
                "obs": ((*rows, size), "float32"),
                "action": action,
                **dict.fromkeys(per_row, (rows, "float32")),
                **self.extra_inputs,
            },
            optimizer=self.optimizer,
            max_grad_norm=self.config.max_grad_norm,
        )


def standardized(values: Array, weight: Array) -> Array:
    """Values [batch] shifted and scaled to mean 0 and standard deviation 1 over the rows that count, float32."""
    counted = values[weight > 0]
    if len(counted) < 2:
        return values
    scale = counted.std(ddof=1) + _ADVANTAGE_EPSILON
    return ((values - counted.mean()) / scale).astype(np.float32)


def _explained_variance(rollout: Rollout, advantages: Array) -> float | None:
    """1 - Var(target - value) / Var(target): 1 is a perfect critic, 0 no better than a constant."""
    targets = (advantages + rollout.values)[rollout.valid]
    variance = float(targets.var())
    return 1.0 - float(advantages[rollout.valid].var()) / variance if variance > 0 else None


def _flat_rows(rollout: Rollout, advantages: Array) -> dict[str, Array]:
    return {
        "obs": _flat(rollout.features),
        "action": _flat(rollout.actions),
        "log_prob": _flat(rollout.log_probs),
        "advantage": _flat(advantages),
        "value_target": _flat(advantages + rollout.values),
    }


def _flat(values: Array) -> Array:
    """[T, N, …] → [T·N, …]."""
    return values.reshape(-1, *values.shape[2:])
