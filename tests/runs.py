"""Run directories made without training, for tests of what comes after it."""

from pathlib import Path

import numpy as np

from paddleport.checkpoint import CheckpointState, NetworkInfo, step_name
from train.checkpointing import now, versions, write_checkpoint
from train.environments import describe_environment
from train.initialization import initial_weights
from train.network import PolicyNetwork, load_arrays, state_arrays


def untrained_run(
    path: Path,
    env_id: str = "CartPole-v1",
    *,
    seed: int = 0,
    hidden_sizes: tuple[int, ...] = (64, 64),
    activation: str = "tanh",
    obs_shift: float = 0.3,
) -> Path:
    """A run with one checkpoint of random weights, its heads made large and its normaliser not the identity."""
    info, observation_space, action_space = describe_environment(env_id)
    network_info = NetworkInfo(hidden_sizes=hidden_sizes, activation=activation, normalize_obs=True)
    network = PolicyNetwork(observation_space, action_space, network_info)
    rng = np.random.default_rng(seed)
    weights = {**state_arrays(network), **initial_weights(network, rng)}
    weights["policy_head.weight"] = weights["policy_head.weight"] * 100
    weights["obs_mean"] = rng.normal(0, obs_shift, weights["obs_mean"].shape).astype(np.float32)
    weights["obs_std"] = rng.uniform(0.5, 2, weights["obs_std"].shape).astype(np.float32)
    load_arrays(network, weights)
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(f"algo: ppo\nenv: {env_id}\nseed: {seed}\n")
    state = CheckpointState(
        run_id="untrained",
        algorithm="ppo",
        step=1000,
        seed=seed,
        config={"algo": "ppo", "env": env_id, "seed": seed},
        environment=info,
        observation_space=observation_space,
        action_space=action_space,
        network=network_info,
        counters={"iterations": 1},
        rng={},
        normalizer_count=1000.0,
        evaluation=None,
        best_mean_return=None,
        versions=versions(),
        created=now(),
        files={},
    )
    write_checkpoint(path, state, state_arrays(network), {"unused": np.zeros(1, np.float32)})
    return path / "checkpoints" / step_name(1000)
