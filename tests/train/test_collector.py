import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import environments
from environments import same_step
from paddleport.errors import TrainingError
from paddleport.spaces import Box, Discrete
from train.collector import Collector
from train.distributions import Categorical
from train.encoding import Encoder
from train.environments import describe_space, make_vector
from train.gae import generalized_advantages
from train.stepping import Stepper


class CountingCritic:
    """An actor whose value of an observation is ten times the observation."""

    def heads(self, features):
        return {"logits": np.zeros((len(features["vector"]), 2), np.float32), "value": self.value(features)}

    def value(self, features):
        return features["vector"][:, 0] * 10


OBS = Box(shape=(1,), dtype="float32", low=None, high=None)


def collector_of(envs, encoder=None):
    encoder = encoder or Encoder(OBS, normalize=False)
    return Collector(Stepper(envs, OBS), CountingCritic(), Categorical(Discrete(2)), encoder)


def rollout(env_id, steps, *, encoder=None, num_envs=1):
    collector = collector_of(make_vector(env_id, num_envs), encoder)
    collector.stepper.reset(seed=0)
    return collector.collect(steps, np.random.default_rng(0))


@pytest.mark.parametrize(("env_id", "terminated"), [("Terminates-v0", True), ("Truncates-v0", False)])
def test_the_step_after_an_end_is_no_transition(env_id, terminated):
    played = rollout(env_id, 8)
    assert played.features["vector"][:, 0, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert played.valid[:, 0].tolist() == [True, True, True, False] * 2
    assert played.done[:, 0].tolist() == [False, False, True, False] * 2
    assert played.terminated[:, 0].tolist() == [False, False, terminated, False] * 2
    assert played.transitions == 6


def test_the_value_behind_an_end_is_that_of_the_episodes_last_observation():
    played = rollout("Truncates-v0", 4)
    assert played.values[:, 0].tolist() == [0, 10, 20, 30]
    assert played.next_values[:3, 0].tolist() == [10, 20, 30]


def test_a_rollout_that_stops_in_an_episode_bootstraps_from_where_it_stands():
    assert rollout("Truncates-v0", 2).next_values[:, 0].tolist() == [10, 20]


def test_returns_and_lengths_count_transitions_only():
    played = rollout("Terminates-v0", 8)
    assert played.returns == [3.0, 3.0]
    assert played.lengths == [3, 3]


def test_an_end_on_the_last_row_is_remembered_by_the_next_rollout():
    collector = collector_of(make_vector("Terminates-v0", 1))
    collector.stepper.reset(seed=0)
    rng = np.random.default_rng(0)
    collector.collect(3, rng)
    assert collector.collect(2, rng).valid[:, 0].tolist() == [False, True]


def test_a_reset_cuts_episodes_and_clears_what_they_had_gathered():
    collector = collector_of(make_vector("Terminates-v0", 1))
    collector.stepper.reset(seed=0)
    rng = np.random.default_rng(0)
    collector.collect(2, rng)
    collector.stepper.reset(seed=1)
    played = collector.collect(3, rng)
    assert played.features["vector"][:, 0, 0].tolist() == [0, 1, 2]
    assert played.returns == [3.0]


def test_every_observation_reaches_the_normaliser_once():
    encoder = Encoder(OBS, normalize=True)
    rollout("Terminates-v0", 8, encoder=encoder, num_envs=2)
    assert encoder.normalizer.count == 16
    assert encoder.normalizer.mean == pytest.approx([1.5])


@pytest.mark.parametrize(
    ("env_id", "what"), [("NanObs-v0", "observation"), ("NanReward-v0", "reward"), ("InfReward-v0", "reward")]
)
def test_a_number_that_is_not_finite_stops_with_the_environments_index(env_id, what):
    with pytest.raises(TrainingError, match=f"{what} that is not finite, near step .* in environment 0"):
        rollout(env_id, 20)


def advantages(played, gamma=0.9, gae_lambda=0.8):
    """GAE of a rollout's transitions, [transitions]."""
    found = generalized_advantages(
        played.rewards, played.values, played.next_values, played.terminated, played.done, gamma, gae_lambda
    )
    return found[played.valid]


def same_step_rollout(env_id, steps):
    collector = collector_of(same_step(env_id, 1))
    collector.stepper.reset(seed=0)
    return collector.collect(steps, np.random.default_rng(0))


@pytest.mark.parametrize(("env_id", "behind"), [("Terminates-v0", 0.0), ("Truncates-v0", 30.0)])
def test_both_ways_of_starting_anew_give_the_advantages_computed_by_hand(env_id, behind):
    # Rewards 1, values 0, 10, 20 and `behind` at the end: δ = 1 + 0.9·V' - V, A = δ + 0.72·A'.
    last = 1 + 0.9 * behind - 20
    middle = 1 + 0.9 * 20 - 10 + 0.72 * last
    episode = [1 + 0.9 * 10 + 0.72 * middle, middle, last]
    following, same = rollout(env_id, 8), same_step_rollout(env_id, 6)
    assert advantages(following) == pytest.approx(episode * 2, rel=1e-5)
    assert advantages(same) == pytest.approx(episode * 2, rel=1e-5)


def test_under_same_step_autoreset_every_row_is_a_transition():
    played = same_step_rollout("Terminates-v0", 6)
    assert played.features["vector"][:, 0, 0].tolist() == [0, 1, 2, 0, 1, 2]
    assert played.valid.all()
    assert played.done[:, 0].tolist() == [False, False, True] * 2
    assert (played.returns, played.lengths) == ([3.0, 3.0], [3, 3])


def test_under_same_step_autoreset_an_end_on_the_last_row_is_valued_by_its_own_last_observation():
    assert same_step_rollout("Truncates-v0", 3).next_values[:, 0].tolist() == [10, 20, 30]


def test_under_same_step_autoreset_only_the_environments_that_ended_are_valued_apart():
    makers = [lambda length=length: environments.Counter(length=length, end="truncated") for length in (2, 5)]
    collector = collector_of(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))
    collector.stepper.reset(seed=0)
    played = collector.collect(4, np.random.default_rng(0))
    assert played.next_values.tolist() == [[10, 10], [20, 20], [10, 30], [20, 40]]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_the_last_observation_of_a_nested_space_is_found_part_by_part(mode):
    makers = [lambda length=length: environments.Cue(form="tuple", length=length) for length in (2, 3)]
    envs = SyncVectorEnv(makers, autoreset_mode=mode)
    space = describe_space(envs.single_observation_space)
    stepper = Stepper(envs, space)
    stepper.reset(seed=0)
    for _ in range(2):
        taken = stepper.take(np.array([0, 0]) - 1)
    assert taken.done.tolist() == [True, False]
    if mode == AutoresetMode.NEXT_STEP:
        assert taken.final_obs is None
    else:
        assert taken.final_obs.keys() == {"obs.0", "obs.1.cue"}
        assert taken.final_obs["obs.0"][0] != stepper.obs["obs.0"][0]
        assert taken.final_obs["obs.0"][1] == stepper.obs["obs.0"][1]


@pytest.mark.parametrize("env_id", ["NanPart-v0", "InfPart-v0"])
def test_a_part_that_is_not_finite_is_named_with_its_environment(env_id):
    envs = make_vector(env_id, 2)
    stepper = Stepper(envs, describe_space(envs.single_observation_space))
    stepper.reset(seed=0)
    message = r"an observation \(its part 'obs.noise'\) that is not finite, near step .* in environment 1"
    with pytest.raises(TrainingError, match=message):
        for _ in range(20):
            stepper.take(np.array([0, 1]))
