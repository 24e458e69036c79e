"""Runs in processes of their own that are killed, and what is left of them."""

import hashlib
import json
import random
import subprocess
import sys
import time

from paddleport.checkpoint import Run
from paddleport.importing import child_environment

LAUNCH = [sys.executable, "-m", "paddleport"]


def steps_logged(folder):
    metrics = folder / "metrics.jsonl"
    if not metrics.is_file():
        return 0
    lines = [line for line in metrics.read_bytes().splitlines() if line.endswith(b"}")]
    return json.loads(lines[-1])["step"] if lines else 0


def kill_when_logged(command, folder, step, number):
    """Start a training, and send a signal once the run has logged `step`; returns the finished process."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=child_environment())
    while process.poll() is None and steps_logged(folder) < step:
        time.sleep(0.002)
    time.sleep(random.uniform(0, 0.1))
    process.send_signal(number)
    process.stderr_text = process.communicate(timeout=120)[1]
    return process


def final_bytes(folder):
    """Hashes of the last checkpoint's files, and what it says of the replay's rows, their hashes among it.

    Of the bytes themselves pytest would explain the difference for many minutes.
    """
    checkpoint = Run(folder).checkpoint("last")
    checkpoint.check_replay()
    files = {name: hashlib.sha256((checkpoint.path / name).read_bytes()).hexdigest() for name in checkpoint.state.files}
    return files | checkpoint.state.replay_files
