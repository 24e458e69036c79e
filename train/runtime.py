"""Settings that Paddle reads once, when it is first imported."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from threadpoolctl import threadpool_limits

_ENDING = (signal.SIGINT, signal.SIGTERM)


def load_paddle(threads: int = 1) -> ModuleType:
    """Import Paddle with the settings that make small networks fast; call it before anything else imports Paddle.

    Values that the user's own environment sets are kept. Called again, or too late, it changes nothing.

    Args:
        threads: threads within one operator on the CPU. One is the fastest up to about 128 units wide.
    """
    count = str(threads)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, count)
    # Freeing each temporary after its last use costs a static program four fifths of its time on one core.
    os.environ.setdefault("FLAGS_eager_delete_tensor_gb", "-1")
    os.environ.setdefault("GLOG_minloglevel", "2")  # errors only: its notes say nothing to our users
    # Small operations are run faster one after another than handed to the executor's threads.
    os.environ.setdefault("FLAGS_enable_pir_in_executor_trace_run", "1")
    _limit_numpy(os.environ["OPENBLAS_NUM_THREADS"])
    if _is_amd():
        # MKL takes its slow generic kernels on AMD unless told which Intel processor to take it for.
        os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")
    if "paddle" in sys.modules:
        return sys.modules["paddle"]
    with _signals_held(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a hint to install ccache, which is only for building extensions
        paddle = importlib.import_module("paddle")
        # It takes SIGTERM for a crash and prints its stack from within the handler, where it can lock itself up.
        paddle.disable_signal_handler()
    return paddle


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end: in the middle of an extension's start they become its ImportError.

    However the block leaves their handlers, they are as before afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set by Python
        if came:
            os.kill(os.getpid(), came[0])


def _limit_numpy(threads: str) -> None:
    """Hold NumPy's matrix products to as many threads: it was imported before, and reads its settings only then.

    Their last bits depend on the number, and so would a resumed run's weights.
    """
    if threads.isdecimal() and int(threads) > 0:  # else it is nothing that OpenBLAS itself would go by
        threadpool_limits(limits=int(threads), user_api="blas")


def _is_amd() -> bool:
    info = Path("/proc/cpuinfo")
    return info.is_file() and "AuthenticAMD" in info.read_text(encoding="utf-8", errors="replace")
