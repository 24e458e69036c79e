"""PPO and A2C as wholes: schedules, when a rollout is learnt from enough, and what belongs to the policy."""

import numpy as np
import paddle
import pytest

import environments  # noqa: F401 - registers the environments
from train.a2c import A2C
from train.config import A2CConfig, PPOConfig
from train.engines.eager import EagerEngine
from train.environments import describe_space, make_vector
from train.losses import PPO_TERMS, value_errors
from train.ppo import PPO
from train.schedules import falling, scheduled
from train.task import Task

SMALL = {"hidden_sizes": (8,), "num_envs": 2, "n_steps": 32}


class Recording(EagerEngine):
    """An engine that keeps what each update was given and what it reported."""

    def __init__(self, problem):
        super().__init__(problem)
        self.seen = []

    def update(self, batch, learning_rate):
        reported = super().update(batch, learning_rate)
        self.seen.append((batch, learning_rate, reported))
        return reported


def made(kind=PPO, env_id="Terminates-v0", **options):
    configs = {PPO: lambda **given: PPOConfig(batch_size=16, **given), A2C: A2CConfig}
    config = configs[kind](**SMALL | options)
    envs = make_vector(env_id, config.num_envs)
    spaces = (describe_space(envs.single_observation_space), describe_space(envs.single_action_space))
    algorithm = kind(config, Task(envs, *spaces), Recording, np.random.default_rng(0))
    algorithm.reset_environments(0)
    return algorithm


def test_the_updates_of_a_rollout_end_once_the_policy_has_moved_too_far():
    ppo = made(target_kl=0.01, learning_rate=0.03, epochs=20)
    metrics = ppo.iterate(0.0)
    moved = [reported[PPO_TERMS.index("approx_kl")] for _, _, reported in ppo.engine.seen]
    assert metrics["updates"] == len(moved) < 20 * 3
    assert moved[-1] > 1.5 * 0.01
    assert max(moved[:-1], default=0) <= 1.5 * 0.01
    before = len(moved)
    ppo.iterate(0.0)
    assert len(ppo.engine.seen) > before  # the next rollout is learnt from again


def test_without_a_target_every_pass_is_made():
    ppo = made(learning_rate=0.03, epochs=5)
    assert ppo.iterate(0.0)["updates"] == 5 * 3  # 48 of 64 rows are transitions: three minibatches of 16


@pytest.mark.parametrize(("kind", "schedule"), [(PPO, "linear"), (PPO, "constant"), (A2C, "linear"), (A2C, "constant")])
def test_the_learning_rate_follows_its_schedule(kind, schedule):
    algorithm = made(kind, learning_rate=4e-3, learning_rate_schedule=schedule)
    for progress, share in ((0.0, 1.0), (0.25, 0.75), (0.9, 0.1)):
        algorithm.engine.seen.clear()
        metrics = algorithm.iterate(progress)
        expected = 4e-3 * (share if schedule == "linear" else 1.0)
        assert list({rate for _, rate, _ in algorithm.engine.seen}) == pytest.approx([expected])
        assert metrics["learning_rate"] == pytest.approx(expected)


def test_the_clip_range_follows_its_schedule():
    ppo = made(clip_range=0.4, clip_range_schedule="linear")
    for progress, expected in ((0.0, 0.4), (0.5, 0.2), (0.75, 0.1)):
        ppo.engine.seen.clear()
        ppo.iterate(progress)
        assert list({float(batch["clip_range"][0]) for batch, _, _ in ppo.engine.seen}) == pytest.approx([expected])


def test_schedules_by_hand():
    assert [scheduled(2.0, "linear", progress) for progress in (0, 0.25, 1)] == [2.0, 1.5, 0.0]
    assert scheduled(2.0, "constant", 0.9) == 2.0
    assert [falling(1.0, 0.2, progress, 0.5) for progress in (0, 0.25, 0.5, 1)] == pytest.approx([1, 0.6, 0.2, 0.2])
    assert falling(1.0, 0.2, 0.0, 0.0) == pytest.approx(0.2)


def test_every_transition_is_in_one_minibatch_of_a_pass_and_padding_weighs_nothing():
    ppo = made(epochs=1, normalize_advantage=False, normalize_obs=False)
    rollouts = []
    collect = ppo.collector.collect
    ppo.collector.collect = lambda *given: rollouts.append(collect(*given)) or rollouts[-1]
    ppo.iterate(0.0)
    counted = np.concatenate([batch["log_prob"][batch["weight"] > 0] for batch, _, _ in ppo.engine.seen])
    assert sorted(counted) == sorted(rollouts[0].log_probs[rollouts[0].valid])
    assert {len(batch["weight"]) for batch, _, _ in ppo.engine.seen} == {16}


def test_clipped_value_errors_are_as_computed_by_hand():
    # Before 1: a value of 3 is moved to at most 1.5, and one of 1.2 stays; the larger error counts.
    outputs = {"value": paddle.to_tensor(np.array([[3.0], [3.0], [1.2], [-2.0]], np.float32))}
    batch = {"value": [1.0, 1.0, 1.0, 1.0], "value_target": [4.0, 0.0, 2.0, -2.0]}
    tensors = {name: paddle.to_tensor(np.float32(values)) for name, values in batch.items()}
    assert value_errors(outputs, tensors, 0.5).numpy() == pytest.approx([2.5**2, 9.0, 0.8**2, 2.5**2], rel=1e-6)
    assert value_errors(outputs, tensors, 0.0).numpy() == pytest.approx([1.0, 9.0, 0.8**2, 0.0], abs=1e-6)


def test_clipping_the_values_changes_what_is_learnt():
    def value_head(clip):
        ppo = made(value_clip_range=clip, learning_rate=0.02)
        ppo.iterate(0.0)
        return ppo.engine.weights()["value_head.weight"]

    assert (value_head(0.0) != value_head(0.01)).any()
    assert value_head(0.0) == pytest.approx(value_head(1e6), abs=1e-6)


def test_rewards_are_scaled_for_learning_and_reported_as_they_are():
    plain, scaled = (made(A2C, "Terminates-v0", normalize_reward=on, normalize_obs=False) for on in (False, True))
    first, second = plain.iterate(0.0), scaled.iterate(0.0)
    assert first["episode_return"] == second["episode_return"] == 3.0
    targets = [algorithm.engine.seen[0][0]["value_target"] for algorithm in (plain, scaled)]
    assert not np.allclose(*targets)


def test_the_reward_normaliser_is_in_the_checkpoint_and_not_in_the_policy():
    algorithm = made(A2C, normalize_reward=True)
    algorithm.iterate(0.0)
    assert not any("reward" in name for name in algorithm.policy_tensors())
    moments = algorithm.reward_normalizer.moments
    saved = algorithm.trainer_tensors()
    assert saved["reward_normalizer"].tolist() == [moments.count, moments.mean[0], moments.variance[0]]
    resumed = made(A2C, normalize_reward=True)
    resumed.restore(algorithm.policy_tensors(), saved, algorithm.step, algorithm.counters(), algorithm.normalizer.count)
    again = resumed.reward_normalizer.moments
    assert (again.count, again.mean[0], again.variance[0]) == (moments.count, moments.mean[0], moments.variance[0])
