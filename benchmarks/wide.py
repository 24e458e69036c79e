"""An environment with 17 numbers and 6 choices, which asks for nothing: a policy of that shape, to measure."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


class Wide:
    """Random observations; the return of a step is 1 for the choice that the first number's sign asks for."""

    observation_space = spaces.Box(-np.inf, np.inf, (17,), np.float32)
    action_space = spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode of 50 steps."""
        self._rng = np.random.default_rng(seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act once."""
        self._steps += 1
        reward = float(int(action) == int(self._obs[0] > 0))
        return self._observe(), reward, False, self._steps >= 50, {}

    def _observe(self) -> Any:  # noqa: ANN401
        self._obs = self._rng.normal(size=17).astype(np.float32)
        return self._obs
