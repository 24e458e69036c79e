"""A small environment of one's own: a heat pump that keeps a room warm over a winter day.

Importing this module registers `Thermostat-v0`, so `--env thermostat:Thermostat-v0` trains on it from this folder.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 96  # of 15 minutes
HOURS = 0.25
LOSS = 0.15  # kW that the room loses for each kelvin between inside and outside
CAPACITY = 2.0  # kWh that warm the room by one kelvin
EFFICIENCY = 3.0  # heat for each unit of electricity


class Thermostat(gymnasium.Env[np.ndarray, np.ndarray]):
    """Observation: room and outside temperature and set point in °C, hour of the day. Action: 0 to 2.5 kW electric.

    The reward is minus the discomfort in kelvin and minus half the electricity's cost, each step.
    """

    observation_space = spaces.Box(
        np.array([-20, -30, 10, 0], np.float32), np.array([50, 40, 30, 24], np.float32), dtype=np.float32
    )
    action_space = spaces.Box(np.array([0.0], np.float32), np.array([2.5], np.float32))
    # They go with the policy: into its card, its C header, and a server takes observations by these names.
    observation_names = ("room", "outside", "set point", "hour")
    observation_units = ("°C", "°C", "°C", "h")
    action_names, action_units = ("power",), ("kW",)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a day: a cold or a mild one, the room somewhat off its set point."""
        super().reset(seed=seed)
        self.step_count = 0
        self.mean_outside = self.np_random.uniform(-5, 10)
        self.room = self.np_random.uniform(16, 23)
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Heat for a quarter of an hour."""
        power = float(action[0])
        gain = EFFICIENCY * power - LOSS * (self.room - self._outside())
        self.room += gain * HOURS / CAPACITY
        self.step_count += 1
        discomfort = abs(self.room - self._set_point())
        reward = -discomfort - 0.5 * self._price() * power * HOURS
        return self._obs(), reward, False, self.step_count >= STEPS, {}

    def _hour(self) -> float:
        return self.step_count * HOURS % 24

    def _outside(self) -> float:
        return float(self.mean_outside + 5 * np.sin((self._hour() - 9) / 24 * 2 * np.pi))

    def _set_point(self) -> float:
        return 21.0 if 6 <= self._hour() < 22 else 17.0

    def _price(self) -> float:
        return 0.4 if 17 <= self._hour() < 20 else 0.2

    def _obs(self) -> np.ndarray:
        return np.array([self.room, self._outside(), self._set_point(), self._hour()], dtype=np.float32)


gymnasium.register("Thermostat-v0", entry_point=Thermostat)
