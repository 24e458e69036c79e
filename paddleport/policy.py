"""A policy inside the caller's own process: NumPy and ONNX Runtime, no Paddle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from paddleport import observation
from paddleport.bundle import Bundle, replay_golden
from paddleport.errors import ObservationError
from paddleport.manifest import Manifest
from paddleport.session import DEFAULT_PROVIDERS, Session
from paddleport.spaces import Array, DictSpace, Discrete, Leaves, Space, TupleSpace

_DISTRIBUTIONS = ("logits", "q_values", "mean")


class Policy:
    """Raw observation in, environment action out.

    Make one with `Policy.load`. It may be shared between threads.

    Example:
        >>> policy = Policy.load("models/cartpole")
        >>> policy.act(env.reset()[0])
        1
    """

    def __init__(self, manifest: Manifest, session: Session, precision: str) -> None:
        self.manifest = manifest
        self.precision = precision
        self.provider = session.provider
        self._session = session
        names = {output.name for output in manifest.outputs}
        # An argmax over NaN is an integer like any other: what it was taken over is looked at as well.
        self._acting = ("action", *(name for name in _DISTRIBUTIONS if name in names))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        precision: str = "float32",
        providers: Sequence[str] = DEFAULT_PROVIDERS,
        threads: int = 1,
    ) -> Self:
        """Open, verify and load a bundle.

        Args:
            path: a bundle, or a policy's folder (its newest version is taken).
            precision: which of the bundle's files runs, `float32` or `int8`.
            providers: ONNX Runtime's execution providers; the first has to be the one in use.
            threads: threads within one operator.

        Raises:
            ArtifactError: the bundle is missing, damaged or does not reproduce its golden vectors.
            UsageError: it has no such precision, or the provider is not there.
        """
        return cls.of(Bundle.open(path, replay=False), precision, providers, threads)

    @classmethod
    def of(
        cls,
        bundle: Bundle,
        precision: str,
        providers: Sequence[str] = DEFAULT_PROVIDERS,
        threads: int = 1,
    ) -> Self:
        """Load a policy of an opened bundle; its golden vectors are replayed on the very session that will act."""
        session = bundle.session(precision, providers, threads)
        replay_golden(bundle, precision, session)
        return cls(bundle.manifest, session, precision)

    def act(self, obs: Any) -> Any:  # noqa: ANN401 - array or nested list in; int or array out
        """The deterministic action for one observation: an int for Discrete, an array for other spaces.

        What `env.reset()` returned, an observation and a dict, is taken too.

        Raises:
            ObservationError: wrong shape or type, not finite, or so large that the policy's numbers overflow.
        """
        space = self.manifest.observation_space
        if _is_reset_result(obs, space):
            obs = obs[0]
        action = self.act_checked(observation.one(space, obs))[0]
        return int(action) if isinstance(self.manifest.action_space, Discrete) else action

    def act_batch(self, obs: Any) -> Array:  # noqa: ANN401
        """The deterministic actions for observations [batch, …]: [batch] for Discrete, [batch, …] for other spaces.

        Raises:
            ObservationError: as `act`, of any of them.
        """
        return self.act_checked(observation.many(self.manifest.observation_space, obs))

    def outputs(self, obs: Any) -> dict[str, Array]:  # noqa: ANN401
        """Every output of the graph for observations [batch, …], by name.

        Raises:
            ObservationError: as `act`, of any of them.
        """
        names = [output.name for output in self.manifest.outputs]
        batch = observation.many(self.manifest.observation_space, obs)
        return dict(zip(names, self.run(batch, names), strict=True))

    def act_checked(self, obs: Leaves) -> Array:
        """The deterministic actions for observations [batch, …] that `paddleport.observation` has passed.

        Raises:
            ObservationError: the observations are so large that the policy's numbers overflow.
        """
        return self.run(obs, self._acting)[0]

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs for checked inputs, in order.

        Raises:
            ObservationError: an output is not finite. The golden vectors were, so it is the observations.
        """
        results = self._session.run(feeds, outputs)
        for name, array in zip(outputs, results, strict=True):
            if array.dtype.kind == "f" and not observation.is_finite(array, array.dtype):
                raise ObservationError(
                    f"The policy's {name!r} is not finite for this observation",
                    expected="observations like those it was trained on",
                    got=f"magnitudes up to {max(np.abs(obs).max() for obs in feeds.values()):.3g}",
                )
        return results


def _is_reset_result(obs: Any, space: Space) -> bool:  # noqa: ANN401
    """Whether this is what `env.reset()` returned, an observation and a dict, and no observation of two parts."""
    if not (isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict)):
        return False
    return not (isinstance(space, TupleSpace) and len(space.spaces) == 2 and isinstance(space.spaces[1], DictSpace))
