"""A policy inside the caller's own process: NumPy and ONNX Runtime, no Paddle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from paddleport import observation, sampling
from paddleport.bundle import Bundle, replay_golden
from paddleport.errors import ObservationError, UsageError
from paddleport.manifest import Manifest
from paddleport.session import DEFAULT_PROVIDERS, Session
from paddleport.spaces import OBSERVATION, Array, Box, DictSpace, Discrete, Leaves, Space, TupleSpace

_DISTRIBUTIONS = ("logits", "q_values", "mean")


class Policy:
    """Raw observation in, environment action out.

    Make one with `Policy.load`. It may be shared between threads.

    Example:
        >>> policy = Policy.load("models/cartpole")
        >>> policy.act(env.reset()[0])
        1
        >>> policy.act(env.reset()[0], deterministic=False, rng=np.random.default_rng(0))
        0
    """

    def __init__(self, manifest: Manifest, session: Session, precision: str) -> None:
        self.manifest = manifest
        self.precision = precision
        self.provider = session.provider
        self._session = session
        names = {output.name for output in manifest.outputs}
        # An argmax over NaN is an integer like any other: what it was taken over is looked at as well.
        self._acting = ("action", *(name for name in _DISTRIBUTIONS if name in names))
        self._is_choice = isinstance(manifest.action_space, Discrete)
        space = manifest.observation_space
        is_real = isinstance(space, Box) and space.dtype in ("float32", "float64")
        self._shape = space.shape if isinstance(space, Box) and is_real else None
        self._dtype = np.dtype(space.dtype) if isinstance(space, Box) else None

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
            precision: which of the bundle's files runs, such as `float32` or `int8`.
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

    def act(self, obs: Any, *, deterministic: bool = True, rng: np.random.Generator | None = None) -> Any:  # noqa: ANN401 - array or nested list in; int or array out
        """The action for one observation: an int for Discrete, an array for other spaces.

        What `env.reset()` returned, an observation and a dict, is taken too.

        Args:
            obs: an array or nested list; for a Dict a mapping, for a Tuple a sequence, of these.
            deterministic: the policy's best action, or one drawn from its distribution.
            rng: where the randomness comes from; left out, a new generator each time. Threads should not share one.

        Raises:
            ObservationError: wrong shape or type, not finite, or so large that the policy's numbers overflow.
            UsageError: an action is to be drawn, and the policy (DQN's) has no distribution, or `rng` is no generator.
        """
        feeds = self._plain(obs) or self._one(obs)
        actions = self.act_checked(feeds) if deterministic else self._draw(feeds, rng)
        return actions.item() if self._is_choice else actions[0]

    def act_batch(self, obs: Any, *, deterministic: bool = True, rng: np.random.Generator | None = None) -> Array:  # noqa: ANN401
        """The actions for observations [batch, …]: [batch] for Discrete, [batch, …] for other spaces.

        Args:
            obs: an array or list of observations; for a Dict or Tuple also one observation whose arrays hold the whole
                batch, as Gymnasium's vector environments give it.
            deterministic: as `act`.
            rng: as `act`.

        Raises:
            ObservationError: as `act`, of any of them.
            UsageError: as `act`.
        """
        feeds = observation.many(self.manifest.observation_space, obs)
        return self.act_checked(feeds) if deterministic else self._draw(feeds, rng)

    def q_values(self, obs: Any) -> Array:  # noqa: ANN401
        """What each action is worth for one observation, [actions]; of a batch, `outputs` has them.

        Raises:
            ObservationError: as `act`.
            UsageError: the policy has no Q-values.
        """
        return self._output("q_values", obs)

    def value(self, obs: Any) -> float:  # noqa: ANN401
        """The critic's estimate of the return from one observation on, as it was trained (rewards may be scaled).

        Raises:
            ObservationError: as `act`.
            UsageError: the policy has no critic.
        """
        return float(self._output("value", obs))

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

    def _plain(self, obs: Any) -> Leaves | None:  # noqa: ANN401
        """An array that is just what the graph takes, as a control loop has it, checked in a tenth of the time."""
        if type(obs) is not np.ndarray or obs.dtype is not self._dtype or obs.shape != self._shape:
            return None
        # What overflows goes the long way and is looked at.
        return {OBSERVATION: obs[np.newaxis]} if observation.is_plainly_finite(obs) else None

    def _one(self, obs: Any) -> Leaves:  # noqa: ANN401
        space = self.manifest.observation_space
        return observation.one(space, obs[0] if _is_reset_result(obs, space) else obs)

    def _draw(self, obs: Leaves, rng: np.random.Generator | None) -> Array:
        if not isinstance(rng, np.random.Generator | None):
            raise UsageError("No generator of random numbers", expected="np.random.default_rng(seed)", got=repr(rng))
        names = sampling.needed(self.manifest)
        outputs = dict(zip(names, self.run(obs, names), strict=True))
        return sampling.sample(self.manifest, outputs, np.random.default_rng() if rng is None else rng)

    def _output(self, name: str, obs: Any) -> Array:  # noqa: ANN401
        names = [output.name for output in self.manifest.outputs]
        if name not in names:
            raise UsageError(
                f"Policy {self.manifest.name!r} has no output {name!r}", expected=f"one of {', '.join(names)}", got=name
            )
        found: Array = self.run(self._one(obs), (name,))[0][0]
        return found

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs for checked inputs, in order.

        Raises:
            ObservationError: an output is not finite. The golden vectors were, so it is the observations.
        """
        results = self._session.run(feeds, outputs)
        for array in results:
            if array.dtype.kind == "f" and not observation.is_plainly_finite(array):
                _check_finite(results, outputs, feeds)
        return results


def _check_finite(results: Sequence[Array], names: Sequence[str], feeds: Mapping[str, Array]) -> None:
    for array, name in zip(results, names, strict=True):
        if array.dtype.kind == "f" and not observation.is_finite(array, array.dtype):
            raise ObservationError(
                f"The policy's {name!r} is not finite for this observation",
                expected="observations like those it was trained on",
                got=f"magnitudes up to {max(np.abs(obs).max() for obs in feeds.values()):.3g}",
            )


def _is_reset_result(obs: Any, space: Space) -> bool:  # noqa: ANN401
    """Whether this is what `env.reset()` returned, an observation and a dict, and no observation of two parts."""
    if not (isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict)):
        return False
    return not (isinstance(space, TupleSpace) and len(space.spaces) == 2 and isinstance(space.spaces[1], DictSpace))
