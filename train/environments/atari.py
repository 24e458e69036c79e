"""Atari games by ale-py's own vector environment, with the standard preprocessing (Mnih et al. 2015).

A policy sees [4, 84, 84] uint8: the last four frames in greyscale, the newest last, and after a reset zeros in the
places of frames that have not been seen yet. Each frame is the pixelwise maximum over the last two of the four that
an action lasts. In training, rewards are clipped to their sign and the loss of a life ends an episode for the learner
while the game goes on; in evaluation neither is done.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from paddleport.errors import MissingExtraError, UsageError
from paddleport.frames import ZERO_PADDING

PREPROCESSING = (
    *("frame_skip=4", "max_pool=2", "grayscale", "resize=84x84", "frame_stack=4", ZERO_PADDING),
    *("noop_max=30", "fire_reset"),
)
"""What stands between the console and the policy, for `EnvironmentInfo`."""
_FRAME_SKIP = 4
_FRAMES_PER_SECOND = 60
_SCREEN = {"grayscale": False, "img_height": 210, "img_width": 160, "stack_num": 1}
_ENTRY_POINT = "ale_py.env:AtariEnv"
_NAME = re.compile(r"ALE/.+-v5|\w+NoFrameskip-v[04]")
_SEEDS = 2**31 - 2**16
"""ale-py holds the seed of each environment, which are consecutive, in 32 bits with a sign."""
_KEYWORDS = ("game", "repeat_action_probability", "full_action_space", "max_num_frames_per_episode")


def atari_keywords(env_id: str) -> dict[str, Any] | None:
    """What ale-py's vector environment takes to play this game; None where the id is not an Atari game's.

    Raises:
        MissingExtraError: it is one, and ale-py is not installed.
        UsageError: it is one whose registration the standard preprocessing does not fit.
    """
    name = env_id.removeprefix("ale_py:")
    if _NAME.fullmatch(name):
        if not importlib.util.find_spec("ale_py"):
            raise MissingExtraError("ale-py", "atari")
        importlib.import_module("ale_py")  # it registers its games
    spec = gymnasium.registry.get(name)
    if spec is None or spec.entry_point != _ENTRY_POINT or not {*spec.kwargs} <= {*_KEYWORDS, "frameskip"}:
        return None
    if spec.kwargs.get("frameskip") not in (1, _FRAME_SKIP):
        raise UsageError(
            f"{env_id} skips a random number of frames, and Paddleport always skips {_FRAME_SKIP}",
            expected="an id like ALE/Pong-v5 or PongNoFrameskip-v4",
        )
    return {key: spec.kwargs[key] for key in _KEYWORDS if key in spec.kwargs}


def step_limit(keywords: dict[str, Any]) -> int:
    """Steps after which an episode is truncated: the limit is given in frames."""
    return int(keywords.get("max_num_frames_per_episode", 108_000)) // _FRAME_SKIP


def make_atari_vector(keywords: dict[str, Any], num_envs: int, *, training: bool) -> AtariVector:
    """Several copies of a game that step together, with next-step autoreset."""
    return AtariVector(keywords, num_envs, training=training)


class AtariVector(VectorEnv[Any, Any, Any]):
    """ale-py's vector environment, which takes any seed.

    Where `training` is set, the row after a lost life is no first row of an episode: the game has gone on.

    Args:
        keywords: of the game, and of ale-py's vector environment.
        num_envs: how many.
        training: whether rewards are clipped and lives end episodes.
    """

    def __init__(self, keywords: dict[str, Any], num_envs: int, *, training: bool) -> None:
        import ale_py
        from ale_py.vector_env import AtariVectorEnv

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        limit = step_limit(keywords) * _FRAME_SKIP
        shared = dict(VectorEnv.metadata)
        self._envs = AtariVectorEnv(
            **{**keywords, "max_num_frames_per_episode": limit},
            num_envs=num_envs,
            num_threads=1 if num_envs == 1 else 0,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            frameskip=_FRAME_SKIP,
            life_loss_info=training,
            reward_clipping=training,
        )
        VectorEnv.metadata.clear()  # ale-py writes into what every vector environment shares
        VectorEnv.metadata.update(shared)
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = num_envs
        self.single_observation_space = self._envs.single_observation_space
        self.single_action_space = self._envs.single_action_space
        self.observation_space, self.action_space = self._envs.observation_space, self._envs.action_space

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        """Start a new game in every environment; the i-th one is seeded `seed + i`."""
        return self._envs.reset(seed=None if seed is None else int(seed) % _SEEDS, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:  # noqa: ANN401
        """Step every game; actions int64 [num_envs]."""
        obs, rewards, terminated, truncated, info = self._envs.step(np.asarray(actions, dtype=np.int64))
        return obs, np.asarray(rewards, dtype=np.float64), terminated, truncated, info


class AtariGame(gymnasium.Env[Any, Any]):
    """One game, unclipped and to its end: what a policy is evaluated in. It shows what the vector environment shows.

    To be watched, the same game is played a second time beside it, with the same seed and the same actions: ale-py's
    vector environment gives either what a policy sees or the screen.

    Args:
        keywords: of the game.
        render_mode: "rgb_array" to be watched.
    """

    def __init__(self, keywords: dict[str, Any], render_mode: str | None = None) -> None:
        self._game = AtariVector(keywords, 1, training=False)
        self._watched = AtariVector({**keywords, **_SCREEN}, 1, training=False) if render_mode else None
        self._screen: Any = None
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": _FRAMES_PER_SECOND // _FRAME_SKIP}
        self.observation_space = self._game.single_observation_space
        self.action_space = self._game.single_action_space
        self.max_episode_steps = step_limit(keywords)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new game."""
        super().reset(seed=seed)
        if self._watched and seed is None:
            seed = int(self.np_random.integers(_SEEDS))  # the same one for both
        obs, _ = self._game.reset(seed=seed)
        if self._watched:
            screen, _ = self._watched.reset(seed=seed)
            self._screen = screen[0, -1]
        return obs[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """Step."""
        obs, reward, terminated, truncated, _ = self._game.step([action])
        if self._watched:
            screen, *_ = self._watched.step([action])
            self._screen = screen[0, -1]
        return obs[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> Any:  # noqa: ANN401
        """The screen after the last step, uint8 [210, 160, 3]; None where it is not watched."""
        return self._screen
