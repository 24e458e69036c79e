"""Where modules come from: the product first, the current folder last.

The stages are top-level packages named `train`, `export`, `quantize` and `serve`. A user's folder may hold a
`train.py` or a `serve/` of its own; putting the current folder last means that neither shadows the other.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_HOME = Path(__file__).resolve().parent.parent


def put_current_folder_last() -> None:
    """Reorder `sys.path` so that the current folder is searched after everything installed."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return  # a folder that was deleted holds no modules
    if here == _HOME:
        return
    others = [entry for entry in sys.path if entry and Path(entry).resolve() != here]
    if str(_HOME) not in others:
        others.insert(0, str(_HOME))
    sys.path[:] = [*others, str(here)]


def child_command(module: str, *arguments: str) -> list[str]:
    """Command line of a Python child process that runs one of our modules under `child_environment`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """Environment of a child process that finds modules in the same order as this process."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
