"""From a request to what answers it: the two hot routes at once in the event loop, everything else in threads.

Flask costs more than parsing, acting and answering together, so act and infer go round it. Those that came in the same
turn of the loop run together. A body or a policy that takes long would hold up every other connection, and goes into a
thread or a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import NamedTuple

from paddleport.errors import PaddleportError
from serve.access_log import AccessLog, RequestIds
from serve.batching import Batcher
from serve.door import Door
from serve.handlers import Handlers, from_defect
from serve.http.request import Request, to_environ
from serve.protocol.messages import Pending, Response, busy, error_response
from serve.settings import Settings
from serve.together import Turn
from serve.traces import Traces
from serve.wsgi import answer_of

_FEW_BYTES = 64 * 1024
_THREADS = 8
_READERS = 2  # a large body takes many times its bytes while it is read, and the interpreter all the while
_LONGEST_CHANGE = 150.0  # seconds: every worker opens a version, which may take minutes on a GPU


class Hot(NamedTuple):
    """A request to one of the two routes that have to be quick."""

    protocol: str
    name: str
    version: str | None


class Front:
    """The application that the listener calls.

    Args:
        loop: of the worker.
        handlers: the routes.
        flask: the WSGI application with all routes.
        settings: limits.
        door: who may ask.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handlers: Handlers,
        flask: Callable[..., object],
        settings: Settings,
        door: Door,
    ) -> None:
        self._loop = loop
        self._handlers = handlers
        self._flask = flask
        self._door = door
        self._deadline = settings.deadline
        self._most_waiting = settings.max_queue
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="request")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="read")
        self._now = handlers.statistics.now
        self._now.update(in_flight=0, queued=0)
        self._viewers = ThreadPoolExecutor(_THREADS, thread_name_prefix="view")
        self._health = {"/v2/health/live": handlers.live, "/v2/health/ready": handlers.server_ready}
        self._batcher = Batcher(loop, handlers, settings)
        self._turn = None if settings.batching == "off" else Turn(loop, self._batcher.together, handlers)
        self._ids = RequestIds()
        self._traces = Traces() if settings.traces else None
        self._observers = [one for one in (AccessLog() if settings.access_log else None, self._traces) if one]

    def __call__(self, request: Request) -> Response | Pending:
        """Answer one request, at once or later; never raises."""
        if not self._observers:
            if "x-request-id" in request.headers:
                self._ids.of(request)
            return self._answer(request)
        self._ids.of(request)
        began = perf_counter()
        answer = self._answer(request)
        if isinstance(answer, Response):
            self._note(request, began, answer)
        else:
            answer.add_done_callback(lambda done: self._note_done(request, began, done))
        return answer

    def _note_done(self, request: Request, began: float, done: Pending) -> None:
        if not done.cancelled():
            self._note(request, began, done.result())

    def _note(self, request: Request, began: float, answer: Response) -> None:
        for observer in self._observers:
            observer.add(request, answer.status, began, len(answer.body))

    def _answer(self, request: Request) -> Response | Pending:
        try:
            hot = hot_route(request)
            if hot is None:
                return self._other(request)
            refused = self._door.admit(request, "act")
            if refused is not None:
                return refused
            if len(request.body) > _FEW_BYTES or "content-encoding" in request.headers:
                return self._later(self._begin_in_thread(hot, request))
            return self._act(hot, request)
        except Exception as error:  # noqa: BLE001 - the last boundary before the client
            return from_defect(error)

    def _other(self, request: Request) -> Response | Pending:
        """Flask, in a thread; but not for health, which must be answered however many threads wait for something."""
        health = self._health.get(request.target) if request.method in ("GET", "HEAD") else None
        if health is not None:
            return health()
        changes = request.method != "GET"
        work = self._loop.run_in_executor(
            self._threads if changes else self._viewers, lambda: answer_of(self._flask, to_environ(request))
        )
        return self._later(work, _LONGEST_CHANGE if changes else self._deadline)

    def close(self) -> None:
        """Wait for nothing more."""
        for threads in (self._threads, self._readers, self._viewers):
            threads.shutdown(wait=False, cancel_futures=True)
        self._batcher.close()
        if self._traces:
            self._traces.close()

    def _act(self, hot: Hot, request: Request) -> Response | Pending:
        job = None
        try:
            job = self._handlers.begin(hot.protocol, request, hot.name, hot.version)
            if self._batcher.takes(job):
                return self._later(self._batcher.add(job))
        except PaddleportError as error:
            return self._handlers.failed(hot.protocol, job, error)
        if self._turn is not None and self._turn.takes(job, request.connection):
            return self._turn.add(job)
        return self._batcher.together.alone(job)

    async def _begin_in_thread(self, hot: Hot, request: Request) -> Response:
        """A body that is large, or may become so, is parsed in a thread; what follows goes the same way as all else."""
        job = None
        try:
            begin = self._handlers.begin
            job = await self._loop.run_in_executor(self._readers, begin, hot.protocol, request, hot.name, hot.version)
            if self._batcher.takes(job):
                return await self._batcher.add(job)
            return await self._loop.run_in_executor(self._threads, self._batcher.together.alone, job)
        except PaddleportError as error:
            return self._handlers.failed(hot.protocol, job, error)

    def _later(self, work: Awaitable[Response], seconds: float | None = None) -> Response | Pending:
        """What is being worked on, unless too much is; it is answered 504 where it takes too long."""
        if self._now["in_flight"] >= self._most_waiting:
            if asyncio.iscoroutine(work):
                work.close()
            elif isinstance(work, asyncio.Future):
                work.cancel()
            return busy("The server has too many requests waiting")
        self._now["in_flight"] += 1
        return self._loop.create_task(self._in_time(work, seconds or self._deadline))

    async def _in_time(self, work: Awaitable[Response], seconds: float) -> Response:
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            return error_response(
                504, f"The request was not done in time: expected within {seconds:g} s. The server is busy."
            )
        except Exception as error:  # noqa: BLE001 - the last boundary before the client
            return from_defect(error)
        finally:
            self._now["in_flight"] -= 1


def hot_route(request: Request) -> Hot | None:
    """Whether the request is one to act or infer."""
    if request.method != "POST":
        return None
    match request.segments():
        case ["", "v1", "policies", name, "act"]:
            return Hot("act", name, None)
        case ["", "v2", "models", name, "infer"]:
            return Hot("infer", name, None)
        case ["", "v1", "policies", name, "versions", version, "act"]:
            return Hot("act", name, version)
        case ["", "v2", "models", name, "versions", version, "infer"]:
            return Hot("infer", name, version)
    return None
