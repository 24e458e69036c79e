"""Several checked requests for one policy, run as one batch and answered each for itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter

from paddleport.errors import PaddleportError
from paddleport.spaces import Array, joined
from serve.handlers import Handlers
from serve.jobs import Job
from serve.protocol.messages import Response
from serve.runtime.policy import ServedPolicy

_LOG = logging.getLogger(__name__)
_MOST_IN_A_TURN = 64  # observations; each further one would keep the first waiting
_FEW = 8


class Together:
    """Runs jobs.

    Args:
        handlers: finish the jobs, and answer those that fail.
        shadow: asks a job's shadow, later.
    """

    def __init__(self, handlers: Handlers, shadow: Callable[[Job], None]) -> None:
        self._handlers = handlers
        self._shadow = shadow

    def run(self, policy: ServedPolicy, jobs: list[Job]) -> list[Response]:
        """Run jobs of one policy as one batch, and answer each; should the run fail, each is run by itself."""
        if len(jobs) == 1:
            return [self.alone(jobs[0])]
        names = list(dict.fromkeys([name for job in jobs for name in job.outputs]))
        started = perf_counter()
        try:
            together = policy.compute(joined([job.feeds for job in jobs]), names)
        except PaddleportError:
            return [self.alone(job) for job in jobs]
        ended = perf_counter()
        results = dict(zip(names, together, strict=True))
        responses: list[Response] = []
        row = 0
        for job in jobs:
            own = [results[name][row : row + job.batch] for name in job.outputs]
            row += job.batch
            responses.append(self._answer(job, own, started, ended, first=row == job.batch))
        return responses

    def alone(self, job: Job) -> Response:
        """Run a job by itself and answer it."""
        try:
            response = self._handlers.jobs.run(job)
        except PaddleportError as error:
            return self._handlers.failed(job.protocol, job, error)
        if job.shadow is not None:
            self._shadow(job)
        return response

    def _answer(self, job: Job, results: list[Array], started: float, ended: float, *, first: bool) -> Response:
        try:
            response = self._handlers.jobs.finish(job, results, started, ended, int(first))
        except PaddleportError as error:
            return self._handlers.failed(job.protocol, job, error)
        if job.shadow is not None:
            self._shadow(job)
        return response


class Soon:
    """A response at the end of this turn; like a future, but whoever waits is told at once instead of a turn later."""

    __slots__ = ("_callbacks", "_response")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Soon], object]] = []
        self._response: Response | None = None

    def add_done_callback(self, callback: Callable[[Soon], object]) -> None:
        """Call this with me once the response is there."""
        self._callbacks.append(callback)

    def cancelled(self) -> bool:
        """Never: nobody can."""
        return False

    def result(self) -> Response:
        """The response."""
        assert self._response is not None  # noqa: S101 - only those ask who were told
        return self._response

    def set_result(self, response: Response) -> None:
        """Tell those who wait; one that fails keeps it from no other."""
        self._response = response
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception:  # noqa: BLE001 - whatever it is, the next one is told too
                _LOG.exception("An answer could not be given")


class Turn:
    """Small requests that came within one turn of the event loop, run at its end.

    A run costs ONNX Runtime some 30 µs before it computes anything, which for a small policy is most of a request. All
    that one look at the sockets has brought is parsed first and then run as one; nobody waits for what may still come.

    Args:
        loop: of the worker.
        together: runs the jobs.
        handlers: answer what fails.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, together: Together, handlers: Handlers) -> None:
        self._loop = loop
        self._together = together
        self._handlers = handlers
        self._jobs: dict[ServedPolicy, list[tuple[Job, Soon]]] = {}
        self._last = 0

    def takes(self, job: Job, connection: int) -> bool:
        """Whether this job is small, and others may have come with it: its connection did not send the last one too."""
        alone, self._last = connection == self._last and not self._jobs, connection
        return job.batch <= _FEW and not alone

    def add(self, job: Job) -> Soon:
        """Run the job at the end of this turn."""
        answer = Soon()
        if not self._jobs:
            self._loop.call_soon(self._run)
        self._jobs.setdefault(job.policy, []).append((job, answer))
        return answer

    def _run(self) -> None:
        policies, self._jobs = self._jobs, {}
        for policy, waiting in policies.items():
            most = max(1, _MOST_IN_A_TURN // max(job.batch for job, _ in waiting))
            for first in range(0, len(waiting), most):
                self._run_some(policy, waiting[first : first + most])

    def _run_some(self, policy: ServedPolicy, some: list[tuple[Job, Soon]]) -> None:
        try:
            responses = self._together.run(policy, [job for job, _ in some])
        except Exception as error:  # noqa: BLE001 - the last boundary before the clients
            responses = [self._handlers.failed(job.protocol, job, error) for job, _ in some]
        for (_, answer), response in zip(some, responses, strict=True):
            answer.set_result(response)
