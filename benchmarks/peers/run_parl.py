"""PARL's PPO and DQN on a task of the comparison: its algorithms and replay memory, in the loop of its examples.

PARL 2.2.1 is of 2023 and looks for `paddle.fluid`, which Paddle 3 has no more: an empty module of that name lets its
algorithms load. The loops are ours, since its package has none. Where its algorithms differ: PPO clips each gradient by
itself and its clip range stays; DQN has a squared error and clips nothing.
"""

from __future__ import annotations

import itertools
import sys
import types
import warnings
from importlib.metadata import version
from typing import Any

from meter import Meter, begin, cpu_seconds

METER = begin("parl")
warnings.simplefilter("ignore")
STDOUT, sys.stdout = sys.stdout, sys.stderr  # parl logs there

import gymnasium  # noqa: E402 - one thread has to be asked for before anything that computes is imported
import numpy as np  # noqa: E402
import paddle  # noqa: E402

sys.modules["paddle.fluid"] = paddle.fluid = types.ModuleType("paddle.fluid")

import parl  # noqa: E402
from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402
from paddle import nn  # noqa: E402
from parl.utils import ReplayMemory  # noqa: E402

BATCH = ("obs", "action", "value", "value_target", "log_prob", "advantage")
"""What `PPO.learn` takes, in order."""


def main() -> None:
    """Measure."""
    paddle.seed(METER.seed)
    np.random.seed(METER.seed)  # its replay memory draws from there
    learner = {"ppo": LearnerPPO, "dqn": LearnerDQN}[METER.task.algo](METER)
    learner.learn()
    sys.stdout = STDOUT
    names = {name: version(name) for name in ("parl", "paddlepaddle", "gymnasium", "numpy")}
    METER.finish(names, update_microseconds=round(1e6 * learner.update_seconds / learner.updates))


class ActorCritic(parl.Model):
    """What `parl.algorithms.PPO` asks for."""

    def __init__(self, inputs: int, settings: dict[str, Any], outputs: int) -> None:
        super().__init__()
        hidden = (inputs, *settings["hidden_sizes"])
        self.actor = layers((*hidden, outputs), settings["activation"])
        self.critic = layers((*hidden, 1), settings["activation"])

    def value(self, obs: paddle.Tensor) -> paddle.Tensor:
        """Values [batch, 1]."""
        return self.critic(obs)

    def policy(self, obs: paddle.Tensor) -> paddle.Tensor:
        """Logits [batch, n]."""
        return self.actor(obs)


class QNetwork(parl.Model):
    """What `parl.algorithms.DQN` asks for."""

    def __init__(self, inputs: int, settings: dict[str, Any], outputs: int) -> None:
        super().__init__()
        self.layers = layers((inputs, *settings["hidden_sizes"], outputs), settings["activation"])

    def forward(self, obs: paddle.Tensor) -> paddle.Tensor:
        """Q-values [batch, n]."""
        return self.layers(obs)


def layers(sizes: tuple[int, ...], activation: str) -> nn.Sequential:
    """A multi-layer perceptron; `sizes` from the input to the output."""
    parts: list[nn.Layer] = []
    for entering, leaving in itertools.pairwise(sizes):
        parts += [nn.Linear(entering, leaving), {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]()]
    return nn.Sequential(*parts[:-1])


class LearnerPPO:
    """Rollouts and updates of PPO."""

    def __init__(self, meter: Meter) -> None:
        self.meter, self.settings = meter, meter.task.settings
        makers = [lambda: gymnasium.make(meter.task.env)] * self.settings["num_envs"]
        self.envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        inputs, outputs = self.envs.single_observation_space.shape[0], int(self.envs.single_action_space.n)
        self.algorithm = parl.algorithms.PPO(
            ActorCritic(inputs, self.settings, outputs),
            clip_param=self.settings["clip_range"],
            value_loss_coef=2 * self.settings["value_coef"],  # it halves the squared error
            entropy_coef=self.settings["entropy_coef"],
            initial_lr=self.settings["learning_rate"],
            eps=self.settings["adam_epsilon"],
            max_grad_norm=self.settings["max_grad_norm"],
            use_clipped_value_loss=False,
        )
        self.rng = np.random.default_rng(meter.seed)
        self.totals = np.zeros(self.settings["num_envs"])
        self.updates, self.update_seconds = 0, 0.0

    def learn(self) -> None:
        """Train."""
        settings, total = self.settings, self.meter.steps
        rollout = settings["num_envs"] * settings["n_steps"]
        self.obs, _ = self.envs.reset(seed=self.meter.seed)
        self.meter.start()
        for taken in range(0, total, rollout):
            rows, returns = self._collect()
            with paddle.no_grad():
                last = self.algorithm.value(paddle.to_tensor(self.obs)).numpy().reshape(-1)
            flat = with_advantages(rows, last, settings["gamma"], settings["gae_lambda"])
            self._update(flat, settings["learning_rate"] * (1 - taken / total))
            self.meter.phase(taken + rollout, learnt=True, returns=returns)

    def _collect(self) -> tuple[dict[str, np.ndarray], list[float]]:
        """A rollout, [T, N, …], and the returns of the episodes that ended in it."""
        rows: dict[str, list[np.ndarray]] = {}
        returns: list[float] = []
        for _ in range(self.settings["n_steps"]):
            with paddle.no_grad():
                value, action, log_prob, _ = self.algorithm.sample(paddle.to_tensor(self.obs))
            chosen = action.numpy().reshape(-1)
            following, reward, terminated, truncated, _ = self.envs.step(chosen)
            done = terminated | truncated
            step = {"obs": self.obs, "action": chosen, "value": value.numpy().reshape(-1), "done": done}
            step |= {"log_prob": log_prob.numpy().reshape(-1), "reward": reward.astype(np.float32)}
            for name, values in step.items():
                rows.setdefault(name, []).append(values)
            self.obs, self.totals = following, self.totals + reward
            returns += self.totals[done].tolist()
            self.totals[done] = 0.0
        return {name: np.stack(values) for name, values in rows.items()}, returns

    def _update(self, flat: dict[str, np.ndarray], learning_rate: float) -> None:
        size, started = self.settings["batch_size"], cpu_seconds()
        for _ in range(self.settings["epochs"]):
            order = self.rng.permutation(len(flat["value"]))
            for start in range(0, len(order), size):
                batch = [paddle.to_tensor(flat[name][order[start : start + size]]) for name in BATCH]
                self.algorithm.learn(*batch, learning_rate)
                self.updates += 1
        self.update_seconds += cpu_seconds() - started


def with_advantages(
    rows: dict[str, np.ndarray], last: np.ndarray, gamma: float, gae_lambda: float
) -> dict[str, np.ndarray]:
    """Rows [T, N, …] with generalised advantages and their targets, flat [T·N, …]; `last` are the values [N] after."""
    advantages, running, following = np.zeros_like(rows["value"]), np.zeros_like(last), last
    for t in reversed(range(len(advantages))):
        going = 1 - rows["done"][t].astype(np.float32)
        delta = rows["reward"][t] + gamma * following * going - rows["value"][t]
        running = delta + gamma * gae_lambda * going * running
        advantages[t], following = running, rows["value"][t]
    every = {**rows, "advantage": advantages, "value_target": advantages + rows["value"]}
    return {name: values.reshape(-1, *values.shape[2:]) for name, values in every.items()}


class LearnerDQN:
    """Steps and updates of DQN."""

    def __init__(self, meter: Meter) -> None:
        self.meter, self.settings = meter, meter.task.settings
        self.env = gymnasium.make(meter.task.env)
        inputs, self.actions = self.env.observation_space.shape[0], int(self.env.action_space.n)
        network = QNetwork(inputs, self.settings, self.actions)
        self.algorithm = parl.algorithms.DQN(network, self.settings["gamma"], self.settings["learning_rate"])
        self.memory = ReplayMemory(self.settings["replay_capacity"], inputs, 0)
        self.rng = np.random.default_rng(meter.seed)
        self.total, self.returns = 0.0, []
        self.updates, self.update_seconds = 0, 0.0

    def learn(self) -> None:
        """Train."""
        settings = self.settings
        self.obs, _ = self.env.reset(seed=self.meter.seed)
        self.meter.start()
        for step in range(1, self.meter.steps + 1):
            self._act(min(1.0, step / (settings["exploration_fraction"] * self.meter.steps)))
            if step % settings["train_every"] == 0 and step >= settings["learning_starts"]:
                self._update()
                self.meter.phase(step, learnt=True, returns=self.returns)
                self.returns.clear()

    def _act(self, share: float) -> None:
        """One step; `share` of the exploration is over."""
        first, last = self.settings["exploration_start"], self.settings["exploration_end"]
        if self.rng.random() < first + share * (last - first):
            action = int(self.rng.integers(self.actions))
        else:
            with paddle.no_grad():
                action = int(self.algorithm.predict(paddle.to_tensor(self.obs[None])).argmax())
        following, reward, terminated, truncated, _ = self.env.step(action)
        self.memory.append(self.obs, action, reward, following, terminated)
        self.total, self.obs = self.total + float(reward), following
        if terminated or truncated:
            self.returns.append(self.total)
            self.total, (self.obs, _) = 0.0, self.env.reset()

    def _update(self) -> None:
        started = cpu_seconds()
        self.algorithm.sync_target()  # every 10 steps are several times between two learning phases, all the same
        for _ in range(self.settings["gradient_steps"]):
            batch = self.memory.sample_batch(self.settings["batch_size"])
            self.algorithm.learn(*(paddle.to_tensor(column) for column in columns(*batch)))
            self.updates += 1
        self.update_seconds += cpu_seconds() - started


def columns(*batch: np.ndarray) -> list[np.ndarray]:
    """`obs, action, reward, next_obs, terminal` as `DQN.learn` takes them: what is one number a row as [rows, 1]."""
    kinds = ("float32", "int64", "float32", "float32", "float32")
    shaped = [column if column.ndim > 1 else column[:, None] for column in batch]
    return [column.astype(kind) for column, kind in zip(shaped, kinds, strict=True)]


if __name__ == "__main__":
    main()
