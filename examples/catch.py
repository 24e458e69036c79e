"""A small environment of pictures: a ball falls, and a paddle catches it.

Its policy is NatureCNN's (84×84 pixels), and learns within minutes on two cores, where an Atari game takes hours:

    paddleport train --env examples/catch.py:Catch --total-steps 40000 --run-dir runs/catch
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

CELL = 7  # pixels
CELLS = 12  # a side
PADDLE = 3  # cells wide
BALLS = 10  # an episode


class Catch(gymnasium.Env[np.ndarray, np.int64]):
    """Observation: a grey picture, uint8 [84, 84, 1]. Action: left, stay, right. A ball caught pays 1, one missed -1.

    Ten balls fall, one after the other, one row a step; each starts in a column of its own choice and drifts.
    """

    observation_space = spaces.Box(0, 255, (CELLS * CELL, CELLS * CELL, 1), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Drop the first ball; the paddle starts in the middle."""
        super().reset(seed=seed)
        self.paddle = (CELLS - PADDLE) // 2
        self.balls = 0
        self._drop()
        return self._picture(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move the paddle by a cell, and the ball by a row."""
        self.paddle = int(np.clip(self.paddle + int(action) - 1, 0, CELLS - PADDLE))
        self.row += 1
        if self.np_random.random() < 0.3:
            self.column = int(np.clip(self.column + self.drift, 0, CELLS - 1))
        reward = 0.0
        if self.row == CELLS - 1:
            reward = 1.0 if 0 <= self.column - self.paddle < PADDLE else -1.0
            self.balls += 1
            self._drop()
        return self._picture(), reward, self.balls == BALLS, False, {}

    def _drop(self) -> None:
        self.row, self.column = 0, int(self.np_random.integers(CELLS))
        self.drift = int(self.np_random.choice([-1, 1]))

    def _picture(self) -> np.ndarray:
        cells = np.zeros((CELLS, CELLS), np.uint8)
        cells[self.row, self.column] = 255
        cells[-1, self.paddle : self.paddle + PADDLE] = 128
        return np.kron(cells, np.ones((CELL, CELL), np.uint8))[:, :, np.newaxis]
