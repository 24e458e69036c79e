"""What is to be learnt: the environments, and what they show and take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gymnasium.vector import VectorEnv

from paddleport.spaces import Space, leaf_spaces

_FRAME_STACK = re.compile(r"frame_stack=(\d+)")


@dataclass(frozen=True)
class Task:
    """A vector environment and the spaces of one environment in it."""

    envs: VectorEnv
    observation_space: Space
    action_space: Space
    preprocessing: tuple[str, ...] = ()
    """What wrappers do to observations before a policy sees them."""

    def stacks(self) -> dict[str, int]:
        """How many frames lie along the first dimension of each array that is a stack of them, oldest first."""
        frames = frame_stack(self.preprocessing)
        leaves = leaf_spaces(self.observation_space)
        return {name: frames for name, leaf in leaves.items() if frames > 1 and leaf.shape[:1] == (frames,)}


def frame_stack(preprocessing: Iterable[str]) -> int:
    """How many frames an observation is stacked of; 0 where it is not."""
    found = [_FRAME_STACK.fullmatch(step) for step in preprocessing]
    return next((int(match[1]) for match in reversed(found) if match), 0)
