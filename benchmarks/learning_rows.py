"""What `benchmarks/learning.py` trains: a row for each task and algorithm, decided before anything was run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ZOO = "rl-baselines3-zoo"
_ZOO_V2 = f"{_ZOO}, on LunarLander-v2"


@dataclass(frozen=True)
class Target:
    """What a row has to reach."""

    at_least: float
    """Mean return over the evaluation's episodes."""
    seeds: int = 0
    """How many seeds have to reach it, each by itself; 0 means that the mean over all seeds has to."""

    def met(self, means: Sequence[float], declared: int) -> bool | None:
        """Whether the seeds' mean returns reach it; None where fewer seeds have run than were declared."""
        if len(means) < declared:
            return None
        if self.seeds:
            return sum(mean >= self.at_least for mean in means) >= self.seeds
        return sum(means) / len(means) >= self.at_least

    def words(self, declared: int) -> str:
        """The target as a table says it."""
        if declared == 1:
            return f"≥ {self.at_least:g}"
        over = f"{self.seeds} of {declared} seeds" if self.seeds else f"mean of {declared} seeds"
        return f"≥ {self.at_least:g}, {over}"


@dataclass(frozen=True)
class Published:
    """What others report for the same task and algorithm."""

    mean_return: float
    steps: int
    source: str = _ZOO


@dataclass(frozen=True)
class Row:
    """A task and an algorithm, trained by the preset with the seeds 0, 1, …, `seeds` - 1."""

    environment: str
    algorithm: str
    seeds: int
    published: Published
    target: Target | None = None
    """None where nothing was set as a target: the row is reported all the same."""
    options: tuple[str, ...] = ()
    """Of `paddleport train`, beside what the preset says."""
    minutes: float = 0.0
    """Wall time after which a training is asked to stop, wherever it is; 0 lets it finish."""

    @property
    def name(self) -> str:
        """What `--only` calls it."""
        return f"{self.environment.replace('/', '-')}-{self.algorithm}"


ROWS = (
    Row("CartPole-v1", "ppo", 10, Published(500, 100_000), Target(495, seeds=10)),
    Row("CartPole-v1", "a2c", 10, Published(500, 500_000), Target(475, seeds=9)),
    Row("CartPole-v1", "dqn", 10, Published(500, 50_000), Target(475, seeds=9)),
    Row("Acrobot-v1", "ppo", 3, Published(-73.5, 1_000_000), Target(-85)),
    Row("Acrobot-v1", "a2c", 3, Published(-83.4, 500_000), Target(-85)),
    Row("Acrobot-v1", "dqn", 3, Published(-76.6, 100_000), Target(-85)),
    Row("MountainCar-v0", "ppo", 3, Published(-110.4, 1_000_000), Target(-115)),
    Row("MountainCar-v0", "a2c", 3, Published(-111.3, 1_000_000), Target(-115)),
    Row("MountainCar-v0", "dqn", 3, Published(-100.8, 120_000), Target(-115)),
    Row("Pendulum-v1", "ppo", 3, Published(-172.2, 100_000), Target(-180)),
    Row("Pendulum-v1", "a2c", 3, Published(-163.0, 1_000_000), Target(-180)),
    Row("LunarLander-v3", "ppo", 3, Published(242.1, 1_000_000, _ZOO_V2), Target(220)),
    Row("LunarLander-v3", "dqn", 3, Published(154.4, 100_000, _ZOO_V2), Target(150)),
    Row("BipedalWalker-v3", "ppo", 1, Published(287.9, 5_000_000), Target(250)),
    Row(
        "PongNoFrameskip-v4",
        "ppo",
        1,
        Published(20.99, 10_000_000),
        options=("--total-steps", "1000000", "--checkpoint-every", "50000", "--evaluation-episodes", "3"),
        minutes=55,
    ),
)
