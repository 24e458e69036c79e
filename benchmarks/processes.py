"""Commands of the product as child processes, which are asked to stop when the benchmark is."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from paddleport.errors import PaddleportError


class Children:
    """The commands that are running, which a stop is passed on to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._stopping = False

    def run(self, arguments: Sequence[str], log: Path, seconds: float | None = None) -> tuple[bytes, float]:
        """Run a command of the product.

        Args:
            arguments: what comes after `paddleport`.
            log: what it says on stderr is appended to this file.
            seconds: after these it is asked to stop; it may take its time for that.

        Returns:
            What it printed on stdout, and the CPU seconds that it took.

        Raises:
            PaddleportError: it failed, or was stopped before it came to a result.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "paddleport", *arguments, "--json"]
        with log.open("ab") as stderr:
            child = self._start(command, stderr)
        timer = threading.Timer(seconds, self._terminate, [child.pid]) if seconds is not None else None
        if timer:
            timer.start()
        out = child.stdout.read() if child.stdout else b""
        usage = self._reap(child)
        if timer:
            timer.cancel()
        if child.returncode:
            got, todo = f"exit code {child.returncode}", f"See the end of {log}"
            raise PaddleportError(f"paddleport {' '.join(arguments)} failed", got=got, todo=todo)
        return out, usage.ru_utime + usage.ru_stime

    def stop(self) -> None:
        """Ask every command to stop, and let none start any more."""
        with self._lock:
            self._stopping = True
            running = list(self._running)
        for pid in running:
            self._terminate(pid)

    def _start(self, command: Sequence[str], stderr: BinaryIO) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopping:
                raise PaddleportError("Stopped")
            # In a session of its own, so that Ctrl-C reaches it once, by `stop`.
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True)
            self._running.add(child.pid)
            return child

    def _reap(self, child: subprocess.Popen[bytes]) -> resource.struct_rusage:
        """Wait for a command's end; what it used."""
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:  # from here on its pid may be another's
            self._running.discard(child.pid)
            _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        return usage

    def _terminate(self, pid: int) -> None:
        with self._lock:
            if pid in self._running:
                os.kill(pid, signal.SIGTERM)
