"""Deep Q-learning with a target network, double and dueling forms, n-step returns and prioritised replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from gymnasium.vector import VectorEnv
from paddle import nn

from paddleport.checkpoint import NetworkInfo
from paddleport.spaces import Array, Box, Discrete, Space
from train.acting import QActor
from train.collector import EpisodeCounter, check_finite
from train.config import DQNConfig
from train.engines.base import Engine, Optimizer, Problem
from train.iteration import episode_means, finite_means
from train.losses import DQN_TERMS, dqn_loss
from train.network import QNetwork, initial_weights
from train.replay import Replay
from train.schedules import falling, scheduled

_STEPS_AN_ITERATION = 256
"""What is logged is the mean over about this many environment steps."""


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
        envs: the vector environment, in next-step autoreset mode.
        observation_space: of one environment.
        action_space: of one environment; Discrete.
        make_engine: makes the engine for a problem.
        rng: the run's one generator.

    Raises:
        UsageError: the action space is not Discrete.
    """

    normalizer = None

    def __init__(
        self,
        config: DQNConfig,
        envs: VectorEnv,
        observation_space: Box,
        action_space: Discrete,
        make_engine: Callable[[Problem], Engine],
        rng: np.random.Generator,
    ) -> None:
        self.config, self.rng = config, rng
        self.network_info = NetworkInfo(
            hidden_sizes=config.hidden_sizes,
            activation=config.activation,
            normalize_obs=False,
            kind="q_values",
            dueling=config.dueling,
        )
        make_online = partial(QNetwork, observation_space, action_space, self.network_info)
        online = initial_weights(make_online(), rng)
        self._start, self._actions = action_space.start, action_space.n
        self.engine = make_engine(self._problem(observation_space, action_space))
        self.engine.load_weights(_prefixed("online", online) | _prefixed("target", online))
        self.actor = QActor(self.network_info)
        self.actor.load(online)
        self.replay = Replay(
            config.replay_capacity,
            config.num_envs,
            {"obs": (observation_space.shape, observation_space.dtype)},
            config.n_steps,
            config.gamma,
            config.priority_exponent if config.prioritized else 0.0,
        )
        self._envs = envs
        self._obs: Array = np.zeros(0)
        self._resetting = np.zeros(config.num_envs, dtype=bool)
        self._episodes = EpisodeCounter(config.num_envs)
        self.step = 0
        self.updates = 0
        self._target_step = 0

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
        while self.step - first < _STEPS_AN_ITERATION:
            terms += self._round(epsilon, learning_rate, beta)
        return {
            **episode_means(*self._episodes.ended()),
            **finite_means(DQN_TERMS, terms, self.step),
            "epsilon": epsilon,
            "replay_size": float(len(self.replay)),
            "learning_rate": learning_rate,
        }

    def end_episodes(self) -> None:
        """Count the episodes that are going on as truncated."""
        self.replay.cut({"obs": self._obs})

    def reset_environments(self, seed: int) -> None:
        """Start a new episode in every environment."""
        self._obs, _ = self._envs.reset(seed=seed)
        self._resetting = np.zeros(self.config.num_envs, dtype=bool)
        self._episodes.reset()

    def act(self, obs: Array) -> Array:
        """Greedy actions in the environment's units for raw observations [batch, …]."""
        best: Array = self.actor.q_values(obs.astype(np.float32)).argmax(axis=1)
        return best + self._start

    def policy_tensors(self) -> dict[str, Array]:
        """Tensors of the whole policy, as `QPolicyNetwork` takes them."""
        return _without("online", self.engine.weights())

    def trainer_tensors(self) -> dict[str, Array]:
        """What else training needs to continue exactly, the replay apart."""
        target = _without("target", self.engine.weights())
        return self.engine.optimizer_state() | _prefixed("target", target)

    def counters(self) -> dict[str, int]:
        """What is counted beside the steps."""
        return {"updates": self.updates, "target_step": self._target_step}

    def restore(
        self,
        policy: dict[str, Array],
        trainer: dict[str, Array],
        step: int,
        counters: dict[str, int],
        _: float,
    ) -> None:
        """Continue from saved tensors and counters; the generator and the replay are restored by their owner."""
        target = {name: value for name, value in trainer.items() if name.startswith("target.")}
        self.engine.load_weights(_prefixed("online", policy) | target)
        self.engine.load_optimizer_state(trainer)
        self.actor.load(policy)
        self.step, self.updates, self._target_step = step, counters["updates"], counters["target_step"]

    def _round(self, epsilon: float, learning_rate: float, beta: float) -> list[Array]:
        """`train_every` steps in the environments, then updates; returns what each update reported."""
        config, before = self.config, self.step
        for _ in range(max(1, config.train_every // config.num_envs)):
            self._step(epsilon)
        if self.step < config.learning_starts or len(self.replay) < config.batch_size:
            return []
        self._refresh_target()
        count = self.step - before if config.gradient_steps < 0 else config.gradient_steps
        terms = [self._learn(learning_rate, beta) for _ in range(count)]
        self.updates += count
        self.actor.load(_without("online", self.engine.weights()))
        return terms

    def _step(self, epsilon: float) -> None:
        check_finite("observation", self._obs, self.step)
        random = self.rng.random(len(self._obs)) < epsilon
        actions = self.rng.integers(self._actions, size=len(self._obs))
        if not random.all():
            greedy = self.actor.q_values(self._obs.astype(np.float32)).argmax(axis=1)
            actions = np.where(random, actions, greedy)
        obs, valid = self._obs, ~self._resetting
        self._obs, rewards, terminated, truncated, _ = self._envs.step(actions + self._start)
        check_finite("reward", rewards, self.step)
        done = terminated | truncated
        self.replay.append({"obs": obs}, actions, rewards, terminated, done, valid)
        self._resetting = done
        self._episodes.add(rewards, valid, done)
        self.step += int(valid.sum())

    def _learn(self, learning_rate: float, beta: float) -> Array:
        sample = self.replay.sample(self.config.batch_size, self.rng, beta)
        batch = {
            "obs": sample.obs["obs"].astype(np.float32),
            "next_obs": sample.next_obs["obs"].astype(np.float32),
            "action": sample.actions,
            "returns": sample.returns,
            "discounts": sample.discounts,
            "weight": sample.weight,
        }
        reported = self.engine.update(batch, learning_rate)
        self.replay.update_priorities(sample.rows, reported[len(DQN_TERMS) :])
        return reported[: len(DQN_TERMS)]

    def _refresh_target(self) -> None:
        """Copy the network that learns, once in every `target_every` environment steps."""
        due = self.step // self.config.target_every
        if due > self._target_step:
            self._target_step = due
            online = _without("online", self.engine.weights())
            self.engine.load_weights(_prefixed("online", online) | _prefixed("target", online))

    def _problem(self, observation_space: Box, action_space: Discrete) -> Problem:
        rows = (self.config.batch_size,)
        obs = ((*rows, observation_space.size), "float32")
        return Problem(
            make_network=partial(TwinQNetwork, observation_space, action_space, self.network_info),
            loss=partial(dqn_loss, double=self.config.double),
            terms=DQN_TERMS,
            row_terms=("td_errors",),
            batch_shapes={
                "obs": obs,
                "next_obs": obs,
                "action": (rows, "int64"),
                **dict.fromkeys(("returns", "discounts", "weight"), (rows, "float32")),
            },
            optimizer=Optimizer("adam", self.config.adam_epsilon),
            max_grad_norm=self.config.max_grad_norm,
        )


def _prefixed(prefix: str, weights: dict[str, Array]) -> dict[str, Array]:
    return {f"{prefix}.{name}": value for name, value in weights.items()}


def _without(prefix: str, weights: dict[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(f"{prefix}."): value for name, value in weights.items() if name.startswith(f"{prefix}.")}
