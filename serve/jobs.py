"""A request to act on its way through the server: parsed, run, answered; one class for both protocols.

job = jobs.act(request, policy) ──▶ job.feeds, job.outputs ──▶ policy.compute ──▶ job.finish(results)
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from paddleport import observation, sampling
from paddleport.errors import ObservationError, UsageError
from paddleport.features import features
from paddleport.spaces import Array, Leaves, batch_size
from serve.http.request import Request
from serve.protocol import act as act_form
from serve.protocol import answer
from serve.protocol import infer as infer_form
from serve.protocol.body import check_size
from serve.protocol.messages import Response
from serve.protocol.parsing import check_batch
from serve.runtime import drift
from serve.runtime.guard import Guard
from serve.runtime.policy import ServedPolicy
from serve.runtime.repository import ServedRoute
from serve.runtime.statistics import Statistics

if TYPE_CHECKING:
    from serve.settings import Settings

CALLER = "paddleport-caller"
_SHARES = 100_000
_FEW_BYTES = 64 * 1024
_NUMBER_BYTES = 64  # of a number in JSON, with what stands around it


class OutOfDistributionError(ObservationError):
    """An observation lies further from those of the training than `--ood reject` allows."""


class Job:
    """A checked request.

    Attributes:
        policy: what acts.
        shadow: another version that is asked the same, or None.
        feeds: the graph's inputs, [batch, …].
        outputs: the graph's outputs that are needed.
        batch: how many observations there are.
        parsed: when it was ready to run, by `time.perf_counter`.
    """

    __slots__ = ("batch", "began", "feeds", "finish_with", "outputs", "parsed", "policy", "protocol", "shadow")

    def __init__(
        self,
        protocol: str,
        policy: ServedPolicy,
        feeds: Leaves,
        outputs: Sequence[str],
        finish_with: Callable[[Job, list[Array]], Response],
        began: float,
    ) -> None:
        self.protocol = protocol
        self.policy = policy
        self.shadow: ServedPolicy | None = None
        self.feeds = feeds
        self.outputs = outputs
        self.finish_with = finish_with
        self.batch = batch_size(feeds)
        self.began = began
        self.parsed = perf_counter()


class Jobs:
    """Makes jobs and finishes them, for one worker.

    Args:
        settings: limits, and what the watch and the guard do.
        statistics: what is counted.
    """

    def __init__(self, settings: Settings, statistics: Statistics) -> None:
        self._statistics = statistics
        self._body_limit = settings.max_body_bytes
        self._batch_limit = settings.max_batch
        self._ood_limit = settings.ood_limit()
        self._guard = Guard(settings.guard)

    def act(self, request: Request, policy: ServedPolicy) -> Job:
        """An act request.

        Raises:
            RequestError: the body is not of its form.
            ObservationError: an observation does not belong to the policy's space, or is refused by the watch.
        """
        began = perf_counter()
        headers = request.headers
        body, form = self._body(request, policy), headers.get("content-type", "")
        content = act_form.decode(body, policy.manifest, form, self._batch_limit)
        outputs: Sequence[str] = policy.acting
        if content.returns or not content.deterministic:
            outputs = self._more_outputs(content, policy)
        caller = headers.get(CALLER, "")
        job = Job(
            "act", policy, content.obs, outputs, lambda job, results: self._acted(job, content, caller, results), began
        )
        self._check(job)
        return job

    def infer(self, request: Request, policy: ServedPolicy) -> Job:
        """An infer request of the Open Inference Protocol.

        Raises:
            RequestError: the request is not of its form.
            ObservationError: an input does not belong to the policy's space, or is refused by the watch.
        """
        began = perf_counter()
        body = self._body(request, policy)
        length = request.headers.get("inference-header-content-length")
        content = infer_form.decode(body, length, policy.manifest, self._batch_limit)
        asked = [output.name for output in content.outputs]
        outputs = [*asked, *(name for name in policy.acting if name not in asked)]
        caller = request.headers.get(CALLER, "")
        job = Job(
            "infer",
            policy,
            content.feeds,
            outputs,
            lambda job, results: self._inferred(job, content, caller, results),
            began,
        )
        self._check(job)
        return job

    def _body(self, request: Request, policy: ServedPolicy) -> bytes:
        """The body, unless it is larger than the policy's observations can be: it would be read for nothing.

        Reading holds the interpreter, and with it every other request, for a tenth of a second a megabyte.
        """
        most = self._body_limit
        if len(request.body) > _FEW_BYTES or "content-encoding" in request.headers:
            numbers = sum(math.prod(given.shape) for given in policy.manifest.inputs)
            most = min(most, _FEW_BYTES + _NUMBER_BYTES * numbers * self._batch_limit)
        body = request.content(most)
        check_size(len(body), most)
        return body

    def run(self, job: Job) -> Response:
        """Run a job by itself and answer it.

        Raises:
            PaddleportError: its policy cannot answer it.
        """
        started = perf_counter()
        results = job.policy.compute(job.feeds, job.outputs)
        return self.finish(job, results, started, perf_counter(), 1)

    def finish(self, job: Job, results: list[Array], started: float, ended: float, runs: int) -> Response:
        """The answer to a job whose results are there.

        Args:
            job: what was asked.
            results: of its outputs, [batch, …].
            started: when it was run.
            ended: when its results were there.
            runs: 1, or 0 where another job of the same run counts it.

        Raises:
            PaddleportError: its policy cannot answer it.
        """
        response = job.finish_with(job, results)
        times = (job.began, job.parsed, started, ended, perf_counter())
        self._statistics.done(job.policy, job.protocol, times, job.batch, runs)
        return response

    def compare(self, job: Job, actions: Array) -> None:
        """Ask the shadow the same and count whether it acts alike."""
        shadow = job.shadow
        assert shadow is not None  # noqa: S101 - the caller has looked
        other = shadow.compute(job.feeds, ["action"])[0]
        if other.shape != actions.shape:
            alike = np.zeros(job.batch, dtype=bool)
        elif other.dtype.kind == "f":
            alike = np.isclose(other, actions, rtol=1e-3, atol=1e-3).reshape(job.batch, -1).all(axis=1)
        else:
            alike = (other == actions).reshape(job.batch, -1).all(axis=1)
        self._statistics.compared(shadow, "equal", int(alike.sum()))
        self._statistics.compared(shadow, "different", int((~alike).sum()))

    def _acted(self, job: Job, content: act_form.ActRequest, caller: str, results: list[Array]) -> Response:
        shown = act_form.needed_outputs(content) if content.returns else ()
        actions = self._actions(job, caller, results, shown)
        if not content.deterministic:
            named = dict(zip(job.outputs, results, strict=True))
            actions = sampling.sample(job.policy.manifest, named, np.random.default_rng(content.seed))
        extras = _extras(job, content, results) if content.returns else None
        return act_form.encode(content, actions, job.policy.identity, extras)

    def _inferred(self, job: Job, content: infer_form.InferRequest, caller: str, results: list[Array]) -> Response:
        shown = [output.name for output in content.outputs if output.name != "action"]
        actions = self._actions(job, caller, results, shown)
        asked = [
            actions if output.name == "action" else array
            for output, array in zip(content.outputs, results, strict=False)
        ]
        manifest = job.policy.manifest
        return answer.encode(content, asked, manifest.name, manifest.version)

    def _actions(self, job: Job, caller: str, results: list[Array], shown: Sequence[str]) -> Array:
        """The actions, or what stands in for them, once all that leaves has been looked at.

        Args:
            job: what was asked.
            caller: the caller's key.
            results: of the job's outputs.
            shown: the outputs that leave beside the action.
        """
        policy = job.policy
        actions = results[job.outputs.index("action")]
        what = "not finite" if (name := _not_finite(job.outputs, results)) else policy.bounds.breach(actions)
        if not what:
            if caller and self._guard.remembers and job.batch == 1:
                self._guard.remember(policy.manifest.name, caller, actions)
            self._statistics.drift(policy).add(job.feeds, actions)
            return actions
        self._statistics.breached(policy, what)
        if name and (self._guard.refuses or _not_finite(shown, [results[job.outputs.index(one)] for one in shown])):
            raise ObservationError(
                f"The policy's {name!r} is not finite for this observation",
                expected="observations like those it was trained on",
                got=f"magnitudes up to {max(np.abs(obs).max() for obs in job.feeds.values()):.3g}",
            )
        return self._guard.stand_in(policy.manifest, caller, actions, what)

    def _more_outputs(self, content: act_form.ActRequest, policy: ServedPolicy) -> list[str]:
        try:
            drawn_from = () if content.deterministic else sampling.needed(policy.manifest)
        except UsageError as error:
            raise act_form.unsampled(error) from error
        return list(dict.fromkeys([*policy.acting, *act_form.needed_outputs(content), *drawn_from]))

    def _check(self, job: Job) -> None:
        check_batch(job.batch, self._batch_limit)
        reference = job.policy.reference
        if self._ood_limit is None or reference is None:
            return
        away = np.abs(drift.distances(reference, features(job.policy.manifest.observation_space, job.feeds)))
        if away.max() > self._ood_limit:
            self._statistics.drift(job.policy).add(job.feeds, None)
            row, feature = np.unravel_index(int(away.argmax()), away.shape)
            raise OutOfDistributionError(
                f"Observation {row} lies outside of what the policy was trained on",
                expected=f"every feature within {self._ood_limit:g} standard deviations",
                got=f"{reference.names[feature]} at {away.max():.3g}",
            )


def chosen(route: ServedRoute, version: int | None, caller: str) -> tuple[ServedPolicy, ServedPolicy | None]:
    """What answers a request, and what is asked as well: a canary's share of the callers stays with the canary.

    Args:
        route: the policy's versions.
        version: what the request names, or None.
        caller: the caller's key; without one, chance decides each time.

    Raises:
        PaddleportError: there is no such version, or none is ready.
    """
    acting = route.get(version)
    split, other = route.split, route.other
    if split is None or version is not None or other is None:
        return acting, None
    key = f"{route.name}\0{caller}".encode("utf-8", "replace")
    drawn = zlib.crc32(key) % _SHARES if caller else random.randrange(_SHARES)  # noqa: S311 - nobody gains by guessing it
    if drawn >= split.share * _SHARES:
        return acting, None
    return (other, None) if split.kind == "canary" else (acting, other)


def _not_finite(names: Sequence[str], arrays: Sequence[Array]) -> str:
    """The first array that holds NaN or infinity, or nothing."""
    for name, array in zip(names, arrays, strict=True):
        if array.dtype.kind == "f" and not observation.is_finite(array, array.dtype):
            return name
    return ""


def _extras(job: Job, content: act_form.ActRequest, results: list[Array]) -> dict[str, Array]:
    named = dict(zip(job.outputs, results, strict=True))
    found: dict[str, Array] = {}
    for name in content.returns:
        if name == "probabilities":
            found[name] = sampling.probabilities(job.policy.manifest, named["logits"])
        else:
            found[name] = named[name]
    return found
