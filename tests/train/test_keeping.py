import json
import shutil

import msgspec
import numpy as np
import pytest

from paddleport.checkpoint import POLICY, REPLAY_ROWS, STATE, Run, step_name
from paddleport.errors import ArtifactError
from paddleport.files import sha256_bytes
from paddleport.manifest import FileInfo, ReturnStatistics
from runs import untrained_run
from train.checkpointing import write_checkpoint
from train.keeping import newest_whole, prune


class Growing:
    """A run whose checkpoint k, at step 1000 k, has its own replay file and shares that of the one before."""

    def __init__(self, path):
        untrained_run(path)
        self.run, self.best, self.listed = Run(path), None, {}
        self.first = self.run.checkpoint("step-1000")
        self.replay = path / "checkpoints" / REPLAY_ROWS
        self.replay.mkdir()
        shutil.rmtree(path / "checkpoints" / step_name(1000))

    def add(self, number, mean, keep=0):
        self.best = mean if self.best is None else max(mean, self.best)
        data = np.random.default_rng(number).bytes(50)
        name = f"rows-{number:012d}-{number + 1:012d}.safetensors"
        (self.replay / name).write_bytes(data)
        self.listed = dict([*self.listed.items()][-1:])
        self.listed[name] = FileInfo(sha256=sha256_bytes(data), size=len(data))
        state = msgspec.structs.replace(
            self.first.state,
            step=1000 * number,
            evaluation=ReturnStatistics(mean=mean, std=0, min=mean, max=mean, episodes=1, seed=0),
            best_mean_return=self.best,
            replay_files=self.listed,
        )
        tensors = {"policy": np.full(3, number, np.float32)}
        write_checkpoint(self.run.path, state, tensors, tensors)
        prune(self.run, state.step, keep)

    def numbers(self):
        return [step // 1000 for step in self.run.steps()]

    def rows(self):
        return sorted(int(path.name[5:17]) for path in self.replay.iterdir())


@pytest.fixture
def growing(tmp_path):
    return Growing(tmp_path / "run")


@pytest.mark.parametrize(
    ("keep", "means", "left"),
    [
        (3, [1, 2, 3, 4, 5, 6], [4, 5, 6]),
        (3, [1, 9, 3, 4, 5, 6], [2, 4, 5, 6]),
        (3, [9, 9, 3, 4, 5, 6], [2, 4, 5, 6]),  # the newer of two that are equally good, which `best` names
        (1, [1, 2, 3, 4, 5, 6], [5, 6]),  # never the one before the last
        (2, [1, 7, 3, 4, 5, 9], [2, 5, 6]),  # nor the best one of a run that has to fall back to it
        (0, [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]),
    ],
)
def test_the_newest_the_best_and_a_whole_fall_back_stay(growing, keep, means, left):
    for number, mean in enumerate(means, 1):
        growing.add(number, mean, keep)
    assert growing.numbers() == left
    assert growing.run.checkpoint("best").state.evaluation.mean == max(means)
    assert growing.run.checkpoint("last").state.step == 6000
    for number in left:
        growing.run.checkpoint(f"step-{number}000").check_replay()
    needed = {row for number in left for row in (number - 1, number) if row}
    assert growing.rows() == sorted(needed)
    assert not [entry for entry in growing.run.checkpoints.iterdir() if entry.name.startswith(".")]


def test_a_checkpoint_that_scales_were_made_from_stays(growing):
    for number in range(1, 4):
        growing.add(number, number)
    for method, text in (("ptq", json.dumps({"step": 1000, "more": [1]})), ("qat", "damaged"), ("x", '{"step": "?"}')):
        (growing.run.path / "quantized" / method).mkdir(parents=True)
        (growing.run.path / "quantized" / method / "quantization.json").write_text(text)
    growing.add(4, 4, keep=2)
    assert growing.numbers() == [1, 3, 4]


def test_what_a_training_that_fell_back_left_behind_it_stays_and_counts_for_nothing(growing):
    for number in (1, 2, 3, 8):
        growing.add(number, number)
    (growing.run.checkpoints / step_name(8000) / POLICY).write_bytes(b"damaged")
    growing.add(4, 4, keep=2)
    assert growing.numbers() == [3, 4, 8]
    assert growing.run.checkpoint("last").state.step == 4000


def test_a_damaged_state_does_not_stop_the_pruning(growing):
    for number in (1, 2, 3):
        growing.add(number, number)
    (growing.run.checkpoints / step_name(2000) / STATE).write_bytes(b"{")
    growing.add(4, 4, keep=3)
    assert growing.numbers() == [2, 3, 4]


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_replay_gives_way_to_the_checkpoint_before_it(growing, capfd, damage):
    for number in (1, 2, 3):
        growing.add(number, number, keep=5)
    path = growing.replay / "rows-000000000003-000000000004.safetensors"
    data = path.read_bytes()
    path.unlink()
    if damage != "remove":
        path.write_bytes(data[:-1] if damage == "cut" else bytes([data[0] ^ 1]) + data[1:])
    assert newest_whole(growing.run).state.step == 2000
    said = capfd.readouterr().err
    assert f"{path}" in said
    assert "Going back to the checkpoint before it" in said
    for pointer in ("last", "best"):
        assert growing.run.checkpoint(pointer).state.step == 2000


def test_only_resuming_reads_the_replay(growing):
    growing.add(1, 1)
    shutil.rmtree(growing.replay)
    assert growing.run.checkpoint("last").policy_tensors()["policy"].tolist() == [1, 1, 1]
    with pytest.raises(ArtifactError, match=r"Every checkpoint in .* is damaged"):
        newest_whole(growing.run)


def test_a_replay_file_outside_its_folder_is_refused(growing):
    growing.listed = {"../step-000001000/state.json": FileInfo(sha256="0", size=1)}
    growing.add(1, 1)
    with pytest.raises(ArtifactError, match="lists a file outside itself"):
        growing.run.checkpoint("last").check_replay()
