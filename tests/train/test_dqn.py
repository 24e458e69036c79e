"""DQN as a whole: what reaches its replay, how its target network moves."""

from functools import partial

import numpy as np
import pytest

import environments  # noqa: F401 - registers the environments
from environments import same_step
from paddleport.errors import UsageError
from paddleport.spaces import MultiBinary, MultiDiscrete
from train.config import DQNConfig
from train.dqn import DQN
from train.engines.eager import EagerEngine
from train.environments import describe_space, make_vector
from train.task import Task

SMALL = {"hidden_sizes": (8,), "replay_capacity": 5000, "batch_size": 8, "gradient_steps": 1}


def made(envs, *, action_space=None, seed=0, **options):
    observation_space = describe_space(envs.single_observation_space)
    task = Task(envs, observation_space, action_space or describe_space(envs.single_action_space))
    return DQN(DQNConfig(**SMALL | options), task, EagerEngine, np.random.default_rng(seed))


def transitions(envs, **options):
    """The different transitions that a DQN would learn from: obs, return, discount, next obs behind no termination."""
    dqn = made(envs, learning_starts=10_000, **options)
    dqn.reset_environments(0)
    dqn.iterate(0.0)
    drawn = dqn.replay.sample(4000, np.random.default_rng(0))
    rows = zip(drawn.obs["obs"][:, 0], drawn.returns, drawn.discounts, drawn.next_obs["obs"][:, 0], strict=True)
    return {(float(obs), round(float(r), 3), round(float(d), 3), float(n) if d else None) for obs, r, d, n in rows}


@pytest.mark.parametrize("make", [partial(make_vector, num_envs=2), partial(same_step, num_envs=2)])
@pytest.mark.parametrize("n_steps", [1, 2])
def test_both_ways_of_starting_anew_give_the_transitions_computed_by_hand(make, n_steps):
    # Episodes of three steps, each with reward 1; γ = 0.9.
    expected = {
        ("Terminates-v0", 1): {(0, 1, 0.9, 1), (1, 1, 0.9, 2), (2, 1, 0, None)},
        ("Truncates-v0", 1): {(0, 1, 0.9, 1), (1, 1, 0.9, 2), (2, 1, 0.9, 3)},
        ("Terminates-v0", 2): {(0, 1.9, 0.81, 2), (1, 1.9, 0, None), (2, 1, 0, None)},
        ("Truncates-v0", 2): {(0, 1.9, 0.81, 2), (1, 1.9, 0.81, 3), (2, 1, 0.9, 3)},
    }
    for env_id in ("Terminates-v0", "Truncates-v0"):
        assert transitions(make(env_id), num_envs=2, n_steps=n_steps, gamma=0.9) == expected[env_id, n_steps]


@pytest.mark.parametrize(("every", "tau"), [(64, 0.25), (1, 0.01)])  # rarer than a learning phase, and more often
def test_a_soft_target_moves_by_its_share_at_every_move(every, tau):
    # With a learning rate of 0 the online network stays, so that after k moves (1 - tau)^k of the distance is left.
    options = {"learning_starts": 0, "learning_rate": 0.0, "target_every": every, "target_tau": tau}
    dqn = made(make_vector("Terminates-v0", 1), **options)
    rng = np.random.default_rng(3)
    weights = {name: rng.normal(size=array.shape).astype(np.float32) for name, array in dqn.engine.weights().items()}
    dqn.engine.load_weights(weights)
    dqn.reset_environments(0)
    dqn.iterate(0.0)
    moves = dqn.counters()["target_step"]
    assert moves == dqn.step // every >= 256 // every
    for name, target in dqn.engine.weights().items():
        if name.startswith("target."):
            online = weights[f"online.{name.removeprefix('target.')}"]
            assert target == pytest.approx(online + (1 - tau) ** moves * (weights[name] - online), abs=1e-5)
        else:
            assert (target == weights[name]).all()


def test_between_its_moves_a_target_stays_and_only_what_learns_has_optimizer_state():
    dqn = made(make_vector("Terminates-v0", 1), learning_starts=0, target_every=1000)
    before = dqn.engine.weights()
    dqn.reset_environments(0)
    dqn.iterate(0.0)
    after = dqn.engine.weights()
    for name in (name for name in before if name.startswith("target.")):
        assert (after[name] == before[name]).all()
        assert (after[f"online.{name.removeprefix('target.')}"] != before[name]).any()
    assert dqn.engine.optimizer_state()
    assert all(name.startswith("online.") for name in dqn.engine.optimizer_state())


def test_exploration_falls_linearly_over_its_share_of_the_training():
    dqn = made(make_vector("Terminates-v0", 1), learning_starts=10_000, exploration_fraction=0.5)
    dqn.reset_environments(0)
    assert [dqn.iterate(progress)["epsilon"] for progress in (0.0, 0.25, 0.5, 0.9)] == pytest.approx(
        [1, 0.525, 0.05, 0.05]
    )


@pytest.mark.parametrize("space", [MultiDiscrete(nvec=(2, 2)), MultiBinary(shape=(2,))])
def test_choices_of_several_parts_are_refused_with_the_algorithms_that_can(space):
    with pytest.raises(UsageError, match=r"expected a Discrete action space.*PPO and A2C"):
        made(make_vector("Terminates-v0", 1), action_space=space)
