"""An episode as an animated GIF, drawn by the environment itself."""

from __future__ import annotations

import io
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paddleport.errors import TrainingError, UsageError
from paddleport.files import write_atomic
from paddleport.spaces import Array
from train.environments import make_environment
from train.environments.guarded import Guarded

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_STEPS = 2000
"""Pictures are held in memory until the episode ends: up to 230 kB each."""
_LONGEST_SIDE = 480
_DEFAULT_FPS = 30.0
_MOST_FPS = 50.0
"""What comes faster, browsers slow down to ten frames a second."""
_SHORTEST_CENTISECONDS = 2
_COLORS = 128
_PIXELS = "pixels, uint8 [height, width, 3]"


@dataclass
class Camera:
    """Takes a picture of each step of an episode; `train.episodes.play` tells it when.

    The pictures are scaled down to at most 480 pixels along their longer side, and held with 128 colours each.

    Args:
        limit: how many steps to record; the episode goes on unrecorded.
    """

    limit: int
    steps: int = -1
    """Steps the episode has had."""
    frames: list[Image] = field(default_factory=list)
    fps: float = _DEFAULT_FPS

    @property
    def recorded(self) -> int:
        """Steps that are in the recording."""
        return min(self.steps, self.limit)

    def __call__(self, env: Guarded) -> None:
        """Take a picture of the environment as it stands.

        Raises:
            TrainingError: it gave something else than pixels.
        """
        self.steps += 1
        self.fps = _fps(env)
        if self.steps > self.limit or self.steps % self._stride:
            return
        picture = env.render()
        if not is_picture(picture):
            raise TrainingError("The environment drew something else than before", expected=_PIXELS, got=_kind(picture))
        self.frames.append(_small(picture))

    @property
    def _stride(self) -> int:
        """Steps from one picture to the next."""
        return math.ceil(self.fps / _MOST_FPS)

    def write(self, path: Path) -> None:
        """Write the GIF, which runs at the environment's own speed, over and over."""
        milliseconds = 10 * max(_SHORTEST_CENTISECONDS, round(100 * self._stride / self.fps))
        buffer = io.BytesIO()
        first, *rest = self.frames
        first.save(buffer, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)
        write_atomic(path, buffer.getvalue())


def check_recordable(env_id: str, seed: int) -> None:
    """Try to draw an environment's first state.

    Raises:
        UsageError: it cannot be drawn as pixels.
    """
    import PIL.Image  # noqa: F401 - if it is missing, that is said before an episode is played

    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame would look for a screen, and complain of none
    env = make_environment(env_id, render_mode="rgb_array")
    try:
        env.reset(seed=seed)
        picture = env.render()
    except TrainingError as error:
        raise UsageError(f"{env_id} cannot be recorded", got=error.got or error) from error
    finally:
        env.close()
    if not is_picture(picture):
        raise UsageError(
            f"{env_id} cannot be recorded",
            expected=f"that its render() gives {_PIXELS}, under the render mode rgb_array where it has modes",
            got=_kind(picture),
        )


def is_picture(value: object) -> bool:
    """Whether a value is pixels that can be recorded: uint8 [height, width, 3], neither side empty."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 3:
        return False
    return value.shape[2] == 3 and value.size > 0


def _kind(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return "nothing" if value is None else type(value).__name__


def _fps(env: Guarded) -> float:
    metadata: dict[str, Any] = env.metadata or {}
    fps = metadata.get("render_fps") or metadata.get("video.frames_per_second")  # the latter is the older gym's
    return float(fps) if isinstance(fps, int | float) and 0 < fps < math.inf else _DEFAULT_FPS


def _small(picture: Array) -> Image:
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    return image.quantize(_COLORS, dither=Image.Dither.NONE)
