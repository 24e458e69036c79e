import numpy as np
import pytest

import environments  # noqa: F401 - registers the environments
from paddleport.errors import TrainingError
from paddleport.spaces import Box, Discrete
from train.collector import Collector
from train.distributions import Categorical
from train.encoding import Encoder
from train.environments import make_vector
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


@pytest.mark.parametrize(("env_id", "what"), [("NanObs-v0", "observation"), ("NanReward-v0", "reward")])
def test_a_number_that_is_not_finite_stops_with_the_environments_index(env_id, what):
    with pytest.raises(TrainingError, match=f"{what} that is not finite, near step .* in environment 0"):
        rollout(env_id, 20)
