"""Stacks of frames are what Gymnasium's wrapper, and ale-py, make of the same frames."""

import gymnasium
import msgspec
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

from paddleport import Bundle, FrameStack
from paddleport.errors import ObservationError, UsageError


class Counting(gymnasium.Env):
    """Gives frames of 1, 2, 3 …"""

    observation_space = spaces.Box(0, 255, (2, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 1
        return self._frame(), {}

    def step(self, action):
        self.count += 1
        return self._frame(), 0.0, False, False, {}

    def _frame(self):
        return np.full((2, 3), self.count, np.uint8)


@pytest.mark.parametrize(("padding", "gymnasiums"), [("first", "reset"), ("zero", "zero")])
def test_a_stack_is_what_gymnasiums_wrapper_makes(padding, gymnasiums):
    plain, wrapped = Counting(), FrameStackObservation(Counting(), 3, padding_type=gymnasiums)
    frames = FrameStack(3, padding)
    for _ in range(2):  # an episode leaves nothing to the next
        np.testing.assert_array_equal(frames.reset(plain.reset()[0]), wrapped.reset()[0])
        for _ in range(5):
            np.testing.assert_array_equal(frames.push(plain.step(0)[0]), wrapped.step(0)[0])


def test_a_frame_that_its_maker_overwrites_stays_as_it_was():
    frames, frame = FrameStack(2), np.zeros(3)
    frames.reset(frame)
    frame[:] = 7
    stacked = frames.push(frame)
    frame[:] = 9
    assert stacked.tolist() == [[0, 0, 0], [7, 7, 7]]
    assert frames.push(frame).tolist() == [[7, 7, 7], [9, 9, 9]]


@pytest.mark.parametrize(
    ("preprocessing", "size", "padding"),
    [(("grayscale", "frame_stack=4"), 4, "first"), (("frame_stack=2", "frame_padding=zero", "noop_max=30"), 2, "zero")],
)
def test_the_manifest_says_how_many_frames_and_what_pads_them(published, preprocessing, size, padding):
    manifest = Bundle.open(published).manifest
    environment = msgspec.structs.replace(manifest.environment, preprocessing=preprocessing)
    frames = FrameStack.of(msgspec.structs.replace(manifest, environment=environment))
    assert (frames.size, frames.padding) == (size, padding)


def test_a_policy_that_saw_no_stack_is_refused(published):
    with pytest.raises(UsageError, match="saw no stack of frames: expected frame_stack=N"):
        FrameStack.of(Bundle.open(published).manifest)


def test_misuse_is_explained():
    with pytest.raises(UsageError, match="at least one"):
        FrameStack(0)
    frames = FrameStack(2)
    with pytest.raises(UsageError, match="No episode has begun"):
        frames.push(np.zeros(3))
    frames.reset(np.zeros(3))
    with pytest.raises(ObservationError, match=r"expected \[3\], got \[4\]"):
        frames.push(np.zeros(4))
