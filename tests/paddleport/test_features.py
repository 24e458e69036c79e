"""What of an observation is watched."""

import numpy as np

from paddleport.features import feature_names, features, statistics_of
from paddleport.spaces import Box, DictSpace, Discrete

VECTOR = Box(shape=(2,), dtype="float32", low=None, high=None, names=("angle", "speed"))
IMAGE = Box(shape=(84, 84, 1), dtype="uint8", low=0, high=255)


def test_numbers_are_features_under_their_names_and_an_image_is_one():
    space = DictSpace(spaces={"arm": VECTOR, "goal": Discrete(3), "view": IMAGE})
    assert feature_names(space) == ("arm.angle", "arm.speed", "view.mean of 7056")
    obs = {
        "obs.arm": np.float32([[1, 2], [3, 4]]),
        "obs.goal": np.array([0, 2]),
        "obs.view": np.stack([np.full((84, 84, 1), 10, np.uint8), np.full((84, 84, 1), 20, np.uint8)]),
    }
    np.testing.assert_array_equal(features(space, obs), [[1, 2, 10], [3, 4, 20]])
    found = statistics_of(space, obs)
    assert found.mean == (2.0, 3.0, 15.0)
    assert found.std == (1.0, 1.0, 5.0)


def test_choices_alone_have_no_features():
    assert statistics_of(Discrete(4), {"obs": np.array([1, 2])}) is None
