"""Stacking frames as the environment's wrapper did while the policy learned, for callers that have no such wrapper."""

from __future__ import annotations

import re
from collections import deque
from typing import Literal, Self

import numpy as np

from paddleport.errors import ObservationError, UsageError
from paddleport.manifest import Manifest
from paddleport.spaces import Array

ZERO_PADDING = "frame_padding=zero"
_STACK = re.compile(r"frame_stack=([1-9][0-9]{0,3})")


class FrameStack:
    """The newest frames of one episode, oldest first, as one observation.

    Make one for each episode that runs at a time.

    Args:
        size: how many frames the policy sees.
        padding: what stands for the frames before an episode's first one: that frame itself, as
            `gymnasium.wrappers.FrameStackObservation` has it by default, or zeros, as ale-py's environments have it.

    Example:
        >>> frames = FrameStack.of(policy.manifest)
        >>> action = policy.act(frames.reset(first_frame))
        >>> action = policy.act(frames.push(next_frame))

    Raises:
        UsageError: the size is not positive.
    """

    def __init__(self, size: int, padding: Literal["first", "zero"] = "first") -> None:
        if size < 1:
            raise UsageError("A stack of frames has to hold at least one", expected="1 or more", got=size)
        self.size = size
        self.padding = padding
        self._frames: deque[Array] = deque(maxlen=size)

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """A stack of as many frames as the policy's environment stacked.

        Raises:
            UsageError: its manifest names no `frame_stack=N`, so the policy takes single observations.
        """
        found = [match for step in manifest.environment.preprocessing if (match := _STACK.fullmatch(step))]
        if not found:
            raise UsageError(
                f"Policy {manifest.name!r} saw no stack of frames",
                expected="frame_stack=N in its manifest's preprocessing",
                got=", ".join(manifest.environment.preprocessing) or "nothing",
                todo="Give it single observations",
            )
        padded = ZERO_PADDING in manifest.environment.preprocessing
        return cls(int(found[-1][1]), "zero" if padded else "first")

    def reset(self, frame: Array) -> Array:
        """Begin an episode with its first frame; returns the stack, [size, …]."""
        first = np.array(frame)
        before = np.zeros_like(first) if self.padding == "zero" else first
        self._frames.extend([*[before] * (self.size - 1), first])
        return np.stack(self._frames)

    def push(self, frame: Array) -> Array:
        """Take the next frame, of which a copy is kept; returns the stack, [size, …].

        Raises:
            UsageError: no episode has begun.
            ObservationError: the frame has another shape than those before it.
        """
        if not self._frames:
            raise UsageError("No episode has begun", expected="reset(frame) before push(frame)")
        newest = np.array(frame)
        if newest.shape != self._frames[-1].shape:
            raise ObservationError(
                "This frame does not fit those before it", expected=list(self._frames[-1].shape), got=list(newest.shape)
            )
        self._frames.append(newest)
        return np.stack(self._frames)
