"""Where the time of one request goes, in one process: the smallest of many rounds, in microseconds of CPU time.

    .venv/bin/python -m benchmarks.serve_stages

The bytes of an act request go into a connection whose transport throws the answer away, so that no system call and no
client is in it. `whole` is everything from the bytes of a request to those of its answer; `empty answer` is the same
with an application that answers at once; ONNX Runtime is what the whole takes less when its results are put in its
place, since alone, with its code in the cache, it takes half of that; parsing is measured alone, which flatters it;
`own` is what is left.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.serve_policies import publish_mlp
from serve.app import assemble
from serve.front import Front
from serve.handlers import Handlers
from serve.http.connection import Connection
from serve.http.listener import Limits, Listener
from serve.http.request import Request
from serve.runtime.local import open_repository
from serve.settings import Settings

ROUNDS, REQUESTS = 30, 500
BODY = b'{"observation": [0.0123, -0.0456, 0.0789, 0.1011]}'
HEAD = (
    b"POST /v1/policies/small/act HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)


class Nowhere(asyncio.Transport):
    """A transport that throws everything away, and counts it."""

    answers = 0

    def write(self, data: object) -> None:
        """Throw it away."""
        self.answers += 1

    def get_extra_info(self, name: str, default: object = None) -> object:
        """A client's address."""
        return ("127.0.0.1", 1)

    def is_closing(self) -> bool:
        """Never."""
        return False


def smallest(work: Callable[[], object]) -> float:
    """The least CPU time of a call, in microseconds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(REQUESTS):
            work()
        best = min(best, (time.process_time() - began) / REQUESTS)
    return best * 1e6


def _without_running(handlers: Handlers, work: Callable[[], object]) -> float:
    """The time of `work` where the policy gives the same results each time without computing them."""
    policy = handlers.repository.get("small")
    job = handlers.begin("act", Request("POST", "", "", {}, BODY), "small")
    results = policy.compute(job.feeds, job.outputs)
    computing = policy.compute
    policy.compute = lambda feeds, outputs: results  # type: ignore[method-assign]
    took = smallest(work)
    policy.compute = computing  # type: ignore[method-assign]
    return took


async def measured() -> list[str]:
    """The four parts of a request to act, as a table's lines (policy 4→64→64→2, JSON)."""
    with tempfile.TemporaryDirectory() as folder:
        publish_mlp(Path(folder), "small", 4, 64, 2, discrete=True)
        settings = Settings(models=Path(folder), batching="off")  # the loop does not turn here
        repository, _ = open_repository(settings)
    parts = assemble(settings, repository)
    loop = asyncio.get_running_loop()
    front = Front(loop, parts.handlers, parts.wsgi, settings, parts.door)
    with socket.socket() as unused:
        listener = Listener(loop, unused, front, Limits(10, 10, 10, 32768, 2**20, 2**20, 10))
        connection = Connection(listener)
        nowhere = Nowhere()
        connection.connection_made(nowhere)
        raw = HEAD % len(BODY) + BODY
        answer = front(Request("POST", "/v1/policies/small/act", "", {}, BODY))
        gc.freeze()
        whole = smallest(lambda: connection.data_received(raw))
        run = whole - _without_running(parts.handlers, lambda: connection.data_received(raw))
        listener.application = lambda request: answer
        empty = smallest(lambda: connection.data_received(raw))
    assert nowhere.answers == 3 * ROUNDS * REQUESTS, "a request was not answered at once"
    policy = repository.get("small")
    parse = smallest(lambda: parts.handlers.jobs.act(Request("POST", "", "", {}, BODY), policy))
    front.close()
    own = whole - empty - parse - run
    return [
        "Processor time of one act request without the system's part, smallest of many rounds "
        "(`python -m benchmarks.serve_stages`), µs:",
        "",
        "| whole | the HTTP front's empty answer | parsing | ONNX Runtime in its place | our own |",
        "|--:|--:|--:|--:|--:|",
        f"| {whole:.1f} | {empty:.1f} | {parse:.1f} | {run:.1f} | {own:.1f} |",
    ]


if __name__ == "__main__":
    print("\n".join(asyncio.run(measured())))
