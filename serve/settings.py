"""What decides how the server starts, from flags or from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paddleport.errors import UsageError
from paddleport.manifest import PRECISIONS

_PREFIX = "PADDLEPORT_"


@dataclass(frozen=True)
class Settings:
    """Settings of the application, whatever HTTP server runs it."""

    models: Path = Path("models")
    """The models folder."""
    precision: str = "float32"
    """Which file of each bundle runs, `float32` or `int8`."""
    threads: int = 1
    """Threads within one operator."""
    max_body_bytes: int = 16 * 2**20
    """Largest body of a request, before and after decompression."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.precision not in PRECISIONS:
            raise UsageError("Unknown precision", expected=f"one of {', '.join(PRECISIONS)}", got=self.precision)
        for name in ("threads", "max_body_bytes"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is too small", expected="1 or more", got=getattr(self, name))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Settings from `PADDLEPORT_MODELS`, `…_PRECISION`, `…_THREADS` and `…_MAX_BODY_BYTES`.

        Raises:
            UsageError: a variable holds what its setting cannot be.
        """
        return cls(
            models=Path(environment.get(_PREFIX + "MODELS", cls.models)),
            precision=environment.get(_PREFIX + "PRECISION", cls.precision),
            threads=_integer(environment, "THREADS", cls.threads),
            max_body_bytes=_integer(environment, "MAX_BODY_BYTES", cls.max_body_bytes),
        )


def _integer(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(_PREFIX + name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{_PREFIX}{name} is no number", expected="a whole number", got=repr(text))
    return int(text)
