"""What is trained in the comparison of training speeds, the same on every side. Nothing but the standard library.

Hyper-parameters have Paddleport's names. They are rl-baselines3-zoo's, whose rows are the reference that every side
can run; where a row leaves something out, it is stable-baselines3's default, written out here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GOAL_RETURN = 475.0
"""CartPole-v1 counts as solved at this mean return (`reward_threshold` of its registration)."""
GOAL_EPISODES = 20
"""The goal is reached when the last so many training episodes, not fewer, have that mean return. 100 episodes of 475
steps would be nearly all of the shortest training, so that none could reach it in time."""


@dataclass(frozen=True)
class Task:
    """One training."""

    title: str
    algo: str
    """ppo, a2c or dqn."""
    env: str
    steps: int
    """Environment steps, those of all environments together."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Hyper-parameters, by their names in `train/config.py`."""
    has_goal: bool = False
    """Whether the time to `GOAL_RETURN` is measured."""
    aim: float = 1.0
    """Times stable-baselines3's steps per CPU-second that Paddleport aims at."""

    @property
    def quick_steps(self) -> int:
        """The fewest steps that show something: two rollouts, or a tenth of a training to the goal."""
        return self.steps // 10 if self.has_goal else self.steps * 2 // 3


_PPO = {
    "learning_rate_schedule": "constant",
    "clip_range": 0.2,
    "clip_range_schedule": "constant",
    "value_coef": 0.5,
    "entropy_coef": 0.0,
    "max_grad_norm": 0.5,
    "adam_epsilon": 1e-5,
    "activation": "tanh",
    "normalize_obs": False,
    "normalize_reward": False,
}

TASKS = {
    "ppo-cartpole": Task(
        "PPO CartPole-v1, 64×64",
        "ppo",
        "CartPole-v1",
        100_000,
        {
            **_PPO,
            "num_envs": 8,
            "n_steps": 32,
            "batch_size": 256,
            "epochs": 20,
            "gamma": 0.98,
            "gae_lambda": 0.8,
            "learning_rate": 1e-3,
            "learning_rate_schedule": "linear",
            "clip_range_schedule": "linear",
            "hidden_sizes": (64, 64),
        },
        has_goal=True,
        aim=4.5,
    ),
    "dqn-cartpole": Task(
        "DQN CartPole-v1, 256×256",
        "dqn",
        "CartPole-v1",
        50_000,
        {
            "num_envs": 1,
            "learning_rate": 2.3e-3,
            "learning_rate_schedule": "constant",
            "batch_size": 64,
            "replay_capacity": 100_000,
            "learning_starts": 1000,
            "gamma": 0.99,
            "target_every": 10,
            "train_every": 256,
            "gradient_steps": 128,
            "exploration_start": 1.0,
            "exploration_end": 0.04,
            "exploration_fraction": 0.16,
            "double": False,
            "max_grad_norm": 10.0,
            "adam_epsilon": 1e-8,
            "hidden_sizes": (256, 256),
            "activation": "relu",
            "normalize_obs": False,
        },
        has_goal=True,
        aim=3.7,
    ),
    "ppo-lunarlander": Task(
        "PPO LunarLander-v3, 64×64",
        "ppo",
        "LunarLander-v3",
        3 * 16 * 1024,
        {
            **_PPO,
            "num_envs": 16,
            "n_steps": 1024,
            "batch_size": 64,
            "epochs": 4,
            "gamma": 0.999,
            "gae_lambda": 0.98,
            "learning_rate": 3e-4,
            "entropy_coef": 0.01,
            "hidden_sizes": (64, 64),
        },
        aim=4.5,
    ),
    "ppo-bipedalwalker": Task(
        "PPO BipedalWalker-v3, 256×256",
        "ppo",
        "BipedalWalker-v3",
        3 * 32 * 256,
        {
            **_PPO,
            "num_envs": 32,
            "n_steps": 256,
            "batch_size": 64,
            "epochs": 10,
            "gamma": 0.999,
            "gae_lambda": 0.95,
            "learning_rate": 3e-4,
            "clip_range": 0.18,
            "normalize_obs": True,
            "normalize_reward": True,
            "hidden_sizes": (256, 256),
        },
        aim=1.5,
    ),
    "a2c-cartpole": Task(
        "A2C CartPole-v1, 64×64",
        "a2c",
        "CartPole-v1",
        100_000,
        {
            "num_envs": 8,
            "n_steps": 5,
            "gamma": 0.99,
            "gae_lambda": 1.0,
            "learning_rate": 7e-4,
            "learning_rate_schedule": "constant",
            "value_coef": 0.5,
            "entropy_coef": 0.0,
            "max_grad_norm": 0.5,
            "normalize_advantage": False,
            "optimizer": "rmsprop",
            "rmsprop_decay": 0.99,
            "optimizer_epsilon": 1e-5,
            "hidden_sizes": (64, 64),
            "activation": "tanh",
            "normalize_obs": False,
            "normalize_reward": False,
        },
        has_goal=True,
        aim=4.0,
    ),
}
