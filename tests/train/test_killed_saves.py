"""A process that is killed at every single step that saving a checkpoint takes on disk, pruning among it."""

import os
import subprocess
import sys
from pathlib import Path

from paddleport.checkpoint import REPLAY_ROWS, Run
from paddleport.files import sweep
from runs import untrained_run
from train.keeping import newest_whole

ROOT = Path(__file__).parents[2]
SAVE = """
import itertools, os, shutil, signal, sys
from pathlib import Path

import msgspec
import numpy as np

from paddleport.checkpoint import Run
from paddleport.manifest import ReturnStatistics
from train.checkpointing import write_checkpoint
from train.keeping import prune
from train.replay import Replay
from train.replay_files import write_rows

ON_DISK = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
run, killed = map(Path, sys.argv[1:])


def save(run, number):
    checkpoint = Run(run).checkpoint("last")
    memory = Replay(8, 1, {"obs": ((2,), "uint8")}, 1, 0.9)
    if checkpoint.state.replay_files:
        memory.restore(checkpoint.replay_tensors(), checkpoint.replay_rows())
    flag = np.zeros(1, bool)
    for _ in range(4):
        memory.append({"obs": np.full((1, 2), number, np.uint8)}, flag, flag, flag, flag, ~flag)
    mean = [0, 1, 2, 9, 3, 10][number]
    state = msgspec.structs.replace(
        checkpoint.state,
        step=1000 * number,
        evaluation=ReturnStatistics(mean=mean, std=0, min=mean, max=mean, episodes=1, seed=0),
        best_mean_return=max(mean, checkpoint.state.best_mean_return or mean),
        replay_files=write_rows(run, memory, checkpoint.state.replay_files),
    )
    write_checkpoint(run, state, checkpoint.policy_tensors(), checkpoint.optimizer_tensors(), memory.state())
    prune(Run(run), state.step, 2)


for number in range(1, 5):
    save(run, number)
for moment in itertools.count():
    shutil.copytree(run, killed / str(moment))
    child = os.fork()
    if not child:
        left = moment

        def count(event, arguments):
            global left
            if event in ON_DISK:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        save(killed / str(moment), 5)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert status == 0
        break
"""


def test_a_save_killed_at_any_step_leaves_a_run_to_go_on_with(tmp_path):
    untrained_run(tmp_path / "run")
    (tmp_path / "killed").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SAVE, tmp_path / "run", tmp_path / "killed"]
    subprocess.run(command, cwd=tmp_path / "killed", env=environment, check=True)
    folders = sorted((tmp_path / "killed").iterdir(), key=lambda folder: int(folder.name))
    assert len(folders) > 20
    resumed_from = []
    for folder in folders:
        run, rows = Run(folder), folder / "checkpoints" / REPLAY_ROWS
        for swept in (run.checkpoints, rows):
            sweep(swept, older_than=-1)
            assert not list(swept.glob(".*"))
        checkpoint = newest_whole(run)
        resumed_from.append(checkpoint.state.step)
        assert run.checkpoint("last").state.step == checkpoint.state.step
        assert run.checkpoint("best").state.step == {4000: 3000, 5000: 5000}[checkpoint.state.step]
        for step in run.steps():
            run.checkpoint(f"step-{step}").check_replay()
    assert resumed_from == sorted(resumed_from)  # up to some moment the old one, from there on the new one
    assert set(resumed_from) == {4000, 5000}
    assert Run(folders[-1]).steps() == [3000, 4000, 5000]  # 3000 is the best one of the fall-back
