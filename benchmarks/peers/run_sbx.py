"""sbx-rl (stable-baselines3's interface, in JAX) on a task of the comparison. It has no A2C."""

from __future__ import annotations

from importlib.metadata import version

from meter import begin
from run_sb3 import build, learn


def main() -> None:
    """Measure."""
    meter = begin("sbx-rl")
    import jax
    from flax import linen
    from sbx import DQN, PPO

    jax.config.update("jax_platforms", "cpu")
    activation = {"tanh": linen.tanh, "relu": linen.relu}[meter.task.settings["activation"]]
    learn(meter, build(meter, {"ppo": PPO, "dqn": DQN}[meter.task.algo], activation))
    meter.finish({name: version(name) for name in ("sbx-rl", "jax", "stable-baselines3", "gymnasium", "numpy")})


if __name__ == "__main__":
    main()
