"""A policy inside the caller's own process: NumPy and ONNX Runtime, no Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddleport import observation
from paddleport.bundle import Bundle, replay_golden
from paddleport.manifest import Manifest
from paddleport.session import DEFAULT_PROVIDERS, Session
from paddleport.spaces import Array, Discrete


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
        self._input = manifest.inputs[0].name

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        precision: str = "float32",
        providers: Sequence[str] = DEFAULT_PROVIDERS,
        threads: int = 1,
    ) -> Policy:
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
        bundle = Bundle.open(path, replay=False)
        session = bundle.session(precision, providers, threads)
        replay_golden(bundle, precision, session)
        return cls(bundle.manifest, session, precision)

    def act(self, obs: Any) -> Any:  # noqa: ANN401 - array or nested list in; int or array out
        """The deterministic action for one observation: an int for Discrete, an array for Box.

        Raises:
            ObservationError: wrong shape or type, or not finite.
        """
        action = self._run(observation.one(self.manifest.observation_space, obs), ("action",))[0][0]
        return int(action) if isinstance(self.manifest.action_space, Discrete) else action

    def act_batch(self, obs: Any) -> Array:  # noqa: ANN401
        """The deterministic actions for observations [batch, …]: [batch] for Discrete, [batch, …] for Box.

        Raises:
            ObservationError: wrong shape or type, or not finite.
        """
        return self._run(observation.many(self.manifest.observation_space, obs), ("action",))[0]

    def outputs(self, obs: Any) -> dict[str, Array]:  # noqa: ANN401
        """Every output of the graph for observations [batch, …], by name."""
        names = [output.name for output in self.manifest.outputs]
        batch = observation.many(self.manifest.observation_space, obs)
        return dict(zip(names, self._run(batch, names), strict=True))

    def _run(self, obs: Array, outputs: Sequence[str]) -> list[Array]:
        return self._session.run({self._input: obs}, outputs)
