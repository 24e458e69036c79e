"""Environments in processes of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState, _async_worker

from paddleport.errors import PaddleportError, TrainingError
from train.environments.guarded import what_was_raised

_SECONDS_TO_CLOSE = 5.0
_SECONDS_AFTER_A_FAULT = 1.0
_CONTEXT = "forkserver"
"""A forked child would hold our locks and pipes open, and share Paddle's threads and memory; these start clean."""


class Workers(AsyncVectorEnv):
    """Gymnasium's asynchronous vector environment, with faults as messages and no process left behind.

    Args:
        makers: make one environment each, in its process (and the first one here as well, to see its spaces).
    """

    def __init__(self, makers: Sequence[Callable[[], gymnasium.Env[Any, Any]]]) -> None:
        self._broken = False
        self.parent_pipes, self.processes = [], []
        multiprocessing.get_context(_CONTEXT).set_forkserver_preload(["gymnasium"])
        try:
            with _interrupts_held_back():
                super().__init__(makers, context=_CONTEXT, worker=work, autoreset_mode=AutoresetMode.NEXT_STEP)
        except BaseException:
            self._broken = True
            self.close()
            raise

    def stuck(self) -> int | None:
        """Number of the first environment that has not answered."""
        waiting = [pipe is not None and not pipe.closed and not pipe.poll(0) for pipe in self.parent_pipes]
        return waiting.index(True) if any(waiting) else None

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End every process: by asking, then by SIGKILL."""
        idle = getattr(self, "_state", None) is AsyncState.DEFAULT
        patience = _SECONDS_AFTER_A_FAULT if terminate or self._broken or not idle else timeout or _SECONDS_TO_CLOSE
        for pipe in self.parent_pipes:
            with contextlib.suppress(OSError, AttributeError):  # a process that is gone, or a pipe that is None
                pipe.send(("close", None))
        _join(self.processes, patience)
        for process in self.processes:
            if process.is_alive():
                process.kill()
        _join(self.processes, _SECONDS_TO_CLOSE)
        for pipe in self.parent_pipes:
            if pipe is not None:
                pipe.close()

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Raise what the first worker that failed raised, as it is; Gymnasium prints its traceback."""
        if all(successes):
            return
        self._broken = True
        try:
            _, _, error, _ = self.error_queue.get(timeout=_SECONDS_TO_CLOSE)
        except queue.Empty:
            error = TrainingError("A worker process failed and did not say why")
        raise error


def work(
    index: int,
    maker: Callable[[], Any],
    pipe: Connection,
    parent_pipe: Connection,
    memory: Any,  # noqa: ANN401 - Gymnasium's own
    errors: Any,  # noqa: ANN401
    *rest: Any,  # noqa: ANN401
) -> None:
    """What a worker process does: Gymnasium's loop, and a message for what ends it.

    Ctrl-C goes to every process of the terminal, and a service manager's SIGTERM to every one of the service: the
    trainer decides what they mean, so the workers ignore them.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        _async_worker(index, maker, pipe, parent_pipe, memory, errors, *rest)
    except (OSError, EOFError):
        errors.cancel_join_thread()  # the trainer is gone, and nobody reads
    except Exception as error:  # noqa: BLE001 - the environment could not be made here
        known = isinstance(error, PaddleportError)
        said = error if known else TrainingError(f"Environment number {index} failed", got=what_was_raised(error))
        errors.put((index, type(said), said, ""))
        with contextlib.suppress(OSError):
            pipe.send((None, False))


def _join(processes: Iterable[Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Within the block SIGINT waits, here and for good in the processes that start: they begin with it blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
