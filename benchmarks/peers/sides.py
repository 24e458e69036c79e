"""Who is measured, and what has to be known about each. Nothing but the standard library."""

from __future__ import annotations

from dataclasses import dataclass

from peers.tasks import TASKS

OURS, REFERENCE = "paddleport", "stable-baselines3"


@dataclass(frozen=True)
class Side:
    """A library that is measured."""

    name: str
    script: str
    environment: str
    """Folder in build/peers; empty for our own."""
    tasks: tuple[str, ...]
    note: str
    """Why it is as fast as it is, and what it could not be told."""


SIDES = (
    Side(
        OURS,
        "run_paddleport.py",
        "",
        tuple(TASKS),
        "The trainer of `paddleport train`, which also writes its metrics. Updates are one static Paddle program run"
        " directly; acting is NumPy on a copy of the weights. Rows in which an environment only resets"
        " are no steps and are not counted.",
    ),
    Side(
        REFERENCE,
        "run_sb3.py",
        "sb3",
        tuple(TASKS),
        "PyTorch in eager mode: acting and updating call one small operator after another. It writes no logs here.",
    ),
    Side(
        "sbx-rl",
        "run_sbx.py",
        "sbx",
        tuple(name for name, task in TASKS.items() if task.algo != "a2c"),
        "stable-baselines3's loops with JAX. DQN samples all minibatches between two phases of acting at once and runs"
        " their updates as one compiled loop (`jax.lax.scan`): one call from Python for 128 of them. PPO compiles one"
        " update, with an optimizer for the actor and one for the critic, each with its own clipping, and waits for two"
        " numbers behind each. Its DQN clips no gradients. It has no A2C. Its compiling is in the start-up.",
    ),
    Side(
        "cleanrl",
        "run_cleanrl.py",
        "cleanrl",
        ("ppo-cartpole", "dqn-cartpole"),
        "The files of its package, 0.4.8 of 2021, unchanged, with classic gym 0.21 and its CartPole-v1. PyTorch in"
        " eager mode, with little around it. ppo.py's clip range cannot fall. dqn.py has a network of 120×84 and a"
        " squared error, and updates once in two steps instead of 128 times in 256, so it does less arithmetic than the"
        " others. There is no A2C; LunarLander-v3 is newer than its gym, and 256-wide networks are no option of"
        " its files.",
    ),
    Side(
        "parl",
        "run_parl.py",
        "parl",
        ("ppo-cartpole", "dqn-cartpole"),
        "2.2.1, its algorithms and replay memory in loops of ours, since its package has none. Paddle in eager mode. An"
        " empty module `paddle.fluid` lets it load on Paddle 3. Its PPO clips each gradient by itself and its clip"
        " range stays; its DQN has a squared error and clips nothing. Its A2C has an optimizer and sums of its own,"
        " which are not the task's.",
    ),
)
