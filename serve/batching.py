"""Requests that arrive together run as one batch.

While a batch runs, in a thread, those that arrive gather; they are the next batch. So under load a policy that takes
long is run on as many observations as there are, and without load nobody waits (unless `--max-batch-delay-us` says
so). Each request was checked before it joined, so none can spoil its neighbours; should a run fail all the same, each
is run by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from paddleport.errors import PaddleportError
from serve.handlers import Handlers
from serve.jobs import Job
from serve.protocol.messages import Response
from serve.runtime.errors import NotReadyError
from serve.runtime.policy import ServedPolicy
from serve.settings import Settings
from serve.together import Together

_Waiting = tuple[Job, "asyncio.Future[Response]"]


class Batcher:
    """Gathers jobs by policy.

    Args:
        loop: of the worker.
        handlers: finish the jobs.
        settings: when to batch, how large, and how long to wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, handlers: Handlers, settings: Settings) -> None:
        self._loop = loop
        self._handlers = handlers
        self._mode = settings.batching
        self._most = settings.max_batch
        self._most_waiting = settings.max_queue
        self._delay = settings.max_batch_delay_us / 1e6
        self._waiting: dict[ServedPolicy, deque[_Waiting]] = {}
        self._running: set[ServedPolicy] = set()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="batch")
        self._shadow_thread = ThreadPoolExecutor(1, thread_name_prefix="shadow")
        self._shadows = 0
        self._now = handlers.statistics.now
        self.together = Together(handlers, self.shadow)

    def takes(self, job: Job) -> bool:
        """Whether this job is better run in a batch."""
        return self._mode == "on" or (self._mode == "auto" and job.policy.takes_long)

    def add(self, job: Job) -> asyncio.Future[Response]:
        """Run the job with others.

        Raises:
            NotReadyError: too many wait already.
        """
        queue = self._waiting.setdefault(job.policy, deque())
        if len(queue) >= self._most_waiting:
            raise NotReadyError(f"Too many requests wait for policy {job.policy.manifest.name!r}. Try again soon")
        answer: asyncio.Future[Response] = self._loop.create_future()
        queue.append((job, answer))
        self._now["queued"] += 1
        if job.policy not in self._running:
            self._running.add(job.policy)
            if self._delay:
                self._loop.call_later(self._delay, self._start, job.policy)
            else:
                self._loop.call_soon(self._start, job.policy)
        return answer

    def shadow(self, job: Job) -> None:
        """Ask a job's shadow as well, when there is time; where too many wait the comparison is left out."""
        if self._shadows >= self._most_waiting:
            assert job.shadow is not None  # noqa: S101 - the caller has looked
            self._handlers.statistics.compared(job.shadow, "dropped", job.batch)
            return
        self._shadows += 1
        self._shadow_thread.submit(self._compare, job)

    def close(self) -> None:
        """Wait for nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._shadow_thread.shutdown(wait=False, cancel_futures=True)

    def _compare(self, job: Job) -> None:
        try:
            actions = job.policy.compute(job.feeds, ["action"])[0]
            self._handlers.jobs.compare(job, actions)
        except PaddleportError:
            assert job.shadow is not None  # noqa: S101 - as above
            self._handlers.statistics.compared(job.shadow, "failed", job.batch)
        finally:
            self._shadows -= 1

    def _start(self, policy: ServedPolicy) -> None:
        """Run what waits, as much as one batch may hold, of requests that still have somebody waiting."""
        queue = self._waiting[policy]
        batch: list[_Waiting] = []
        size = 0
        while queue and (not batch or size + queue[0][0].batch <= self._most):
            job, answer = queue.popleft()
            self._now["queued"] -= 1
            if not answer.done():
                batch.append((job, answer))
                size += job.batch
        if not batch:
            self._running.discard(policy)
            del self._waiting[policy]
            return
        running = self._loop.run_in_executor(self._threads, self.together.run, policy, [job for job, _ in batch])
        running.add_done_callback(lambda done: self._deliver(policy, batch, done))

    def _deliver(self, policy: ServedPolicy, batch: list[_Waiting], done: asyncio.Future[list[Response]]) -> None:
        error = None if done.cancelled() else done.exception()
        responses = [] if done.cancelled() or error else done.result()
        for index, (job, answer) in enumerate(batch):
            if answer.done():
                continue
            if responses:
                answer.set_result(responses[index])
            else:
                failure = error if isinstance(error, Exception) else RuntimeError("the worker stops")
                answer.set_result(self._handlers.failed(job.protocol, job, failure))
        self._start(policy)
