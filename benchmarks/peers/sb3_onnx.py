"""Train a small policy with stable-baselines3 and export it the way its documentation describes.

    build/peers/sb3/bin/python benchmarks/peers/sb3_onnx.py OUT_FOLDER [--steps 20000]

Writes ppo-cartpole.onnx and ppo-pendulum.onnx, and beside each the observations that it was asked and what
stable-baselines3 answered, for `tests/export/test_adopt.py`. See "Exporting models" in stable-baselines3's guide: the
policy's forward pass is traced; preprocessing is included, clipping of actions is not.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.policies import BasePolicy


class OnnxablePolicy(torch.nn.Module):
    def __init__(self, policy: BasePolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: torch.Tensor):
        return self.policy(observation, deterministic=True)


def export(env_id: str, steps: int, path: Path) -> None:
    """Train on an environment, write the policy, and what it answers."""
    model = PPO("MlpPolicy", env_id, seed=0, device="cpu", n_steps=512, policy_kwargs={"net_arch": [16, 16]})
    model.learn(steps)
    size = model.observation_space.shape
    # The tracing exporter: the newer one asks for further packages. Its batch is fixed at one, as in the documentation.
    torch.onnx.export(
        OnnxablePolicy(model.policy), torch.randn(1, *size), str(path), opset_version=17, input_names=["input"],
        dynamo=False,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(64, *size)).astype(np.float32)
    actions, _ = model.predict(obs, deterministic=True)
    np.savez_compressed(path.with_suffix(".npz"), obs=obs, actions=actions)


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=20_000)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    export("CartPole-v1", chosen.steps, chosen.out / "ppo-cartpole.onnx")
    export("Pendulum-v1", chosen.steps, chosen.out / "ppo-pendulum.onnx")


if __name__ == "__main__":
    main()
