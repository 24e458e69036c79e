"""stable-baselines3 on a task of the comparison."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from meter import Meter, begin

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm


def main() -> None:
    """Measure."""
    meter = begin("stable-baselines3")
    import torch
    from stable_baselines3 import A2C, DQN, PPO
    from torch import nn

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    settings = meter.task.settings
    activation = {"tanh": nn.Tanh, "relu": nn.ReLU}[settings["activation"]]
    model = build(meter, {"ppo": PPO, "a2c": A2C, "dqn": DQN}[meter.task.algo], activation, device="cpu")
    learn(meter, model)
    meter.finish({name: version(name) for name in ("stable-baselines3", "torch", "gymnasium", "numpy")})


def build(meter: Meter, kind: type[BaseAlgorithm], activation: object, **more: object) -> BaseAlgorithm:
    """A model with the task's hyper-parameters; sbx's take the same ones.

    Args:
        meter: knows the task.
        kind: the algorithm.
        activation: the non-linearity, as the library wants it.
        more: for the algorithm.
    """
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    settings = meter.task.settings
    envs: Any = make_vec_env(meter.task.env, n_envs=settings["num_envs"], seed=meter.seed)
    if settings["normalize_obs"]:
        envs = VecNormalize(envs, norm_reward=settings["normalize_reward"], gamma=settings["gamma"])
    chosen = of_dqn(settings) if meter.task.algo == "dqn" else of_on_policy(meter.task.algo, settings)
    network = {"net_arch": list(settings["hidden_sizes"]), "activation_fn": activation}
    return kind("MlpPolicy", envs, seed=meter.seed, policy_kwargs=network, **chosen, **more)


def of_on_policy(algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Constructor arguments of PPO and A2C. Adam's and RMSProp's ε and decay are the library's own defaults."""
    chosen = {
        "n_steps": settings["n_steps"],
        "gamma": settings["gamma"],
        "gae_lambda": settings["gae_lambda"],
        "learning_rate": _scheduled(settings, "learning_rate"),
        "ent_coef": settings["entropy_coef"],
        "vf_coef": settings["value_coef"],
        "max_grad_norm": settings["max_grad_norm"],
    }
    if algo == "ppo":
        chosen |= {
            "batch_size": settings["batch_size"],
            "n_epochs": settings["epochs"],
            "clip_range": _scheduled(settings, "clip_range"),
        }
    return chosen


def of_dqn(settings: dict[str, Any]) -> dict[str, Any]:
    """Constructor arguments of DQN."""
    return {
        "learning_rate": _scheduled(settings, "learning_rate"),
        "batch_size": settings["batch_size"],
        "buffer_size": settings["replay_capacity"],
        "learning_starts": settings["learning_starts"],
        "gamma": settings["gamma"],
        "target_update_interval": settings["target_every"],
        "train_freq": settings["train_every"],
        "gradient_steps": settings["gradient_steps"],
        "exploration_initial_eps": settings["exploration_start"],
        "exploration_final_eps": settings["exploration_end"],
        "exploration_fraction": settings["exploration_fraction"],
    }


def learn(meter: Meter, model: BaseAlgorithm) -> None:
    """Train, with a callback that tells the meter about every phase."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Phases(BaseCallback):
        """Marks the ends of the learning phases, and leaves everything else alone."""

        started = False
        seen: object = None
        """The newest episode that was reported."""

        def _on_rollout_start(self) -> None:
            if self.started:
                self._mark()
            else:
                self.started = True
                meter.start()

        def _on_training_end(self) -> None:
            self._mark()

        def _on_step(self) -> bool:
            return True

        def _mark(self) -> None:
            buffer = self.model.ep_info_buffer or ()
            new = [*itertools.takewhile(lambda episode: episode is not self.seen, reversed(buffer))][::-1]
            self.seen = new[-1] if new else self.seen
            meter.phase(self.num_timesteps, self.model._n_updates > 0, [episode["r"] for episode in new])

    model.learn(meter.steps, callback=Phases())


def _scheduled(settings: dict[str, Any], name: str) -> float | Callable[[float], float]:
    """A constant, or a function of the share of the training that remains."""
    value: float = settings[name]
    return (lambda remaining: remaining * value) if settings[f"{name}_schedule"] == "linear" else value


if __name__ == "__main__":
    main()
