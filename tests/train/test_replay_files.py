from itertools import pairwise

import numpy as np
import pytest

from paddleport.checkpoint import REPLAY_ROWS
from paddleport.files import sha256_bytes
from train import replay_files
from train.replay import Replay
from train.replay_files import write_rows


def replay(capacity=1000):
    return Replay(capacity, 2, {"obs": ((3, 4), "uint8")}, 1, 0.9, stacks={"obs": 3})


def append(memory, steps):
    rng = np.random.default_rng(memory.count)
    flag = np.zeros(2, bool)
    for _ in range(steps):
        obs = {"obs": rng.integers(256, size=(2, 3, 4), dtype=np.uint8)}
        memory.append(obs, flag, rng.random(2), flag, flag, ~flag)


def names(run):
    return sorted(path.name for path in (run / "checkpoints" / REPLAY_ROWS).iterdir())


def test_a_checkpoint_writes_only_the_rows_since_the_one_before(tmp_path):
    memory = replay()
    append(memory, 10)
    first = write_rows(tmp_path, memory, {})
    append(memory, 5)
    before = {name: (tmp_path / "checkpoints" / REPLAY_ROWS / name).stat().st_mtime_ns for name in names(tmp_path)}
    second = write_rows(tmp_path, memory, first)
    assert list(first) == ["rows-000000000000-000000000010.safetensors"]
    assert list(second) == [*first, "rows-000000000010-000000000015.safetensors"]
    for name, modified in before.items():
        assert (tmp_path / "checkpoints" / REPLAY_ROWS / name).stat().st_mtime_ns == modified
    for name, info in second.items():
        data = (tmp_path / "checkpoints" / REPLAY_ROWS / name).read_bytes()
        assert (info.sha256, info.size) == (sha256_bytes(data), len(data))


def test_nothing_is_written_where_no_row_came(tmp_path):
    memory = replay()
    append(memory, 3)
    files = write_rows(tmp_path, memory, {})
    assert write_rows(tmp_path, memory, files) == files
    assert names(tmp_path) == list(files)


def test_files_whose_rows_have_all_left_the_ring_are_listed_no_more(tmp_path):
    memory, files = replay(capacity=20), {}  # ten rows of two environments
    for _ in range(4):
        append(memory, 4)
        files = write_rows(tmp_path, memory, files)
    assert [name[5:17] for name in files] == ["000000000004", "000000000008", "000000000012"]  # rows 6 … 15
    append(memory, 25)  # more than the ring holds, and nothing written in between
    assert list(write_rows(tmp_path, memory, files)) == ["rows-000000000031-000000000041.safetensors"]


def test_files_stay_small_also_where_every_row_keeps_its_whole_stack(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_files, "_FILE_BYTES", 2000)
    memory = replay()
    append(memory, 100)
    files = write_rows(tmp_path, memory, {})
    header = 1500  # what safetensors says of its arrays
    assert len(files) > 3
    assert max(info.size for info in files.values()) < 2000 + header
    spans = [tuple(map(int, name[5:-12].split("-"))) for name in files]
    assert spans[0][0] == 0
    assert spans[-1][1] == 100
    assert all(end == first for (_, end), (first, _) in pairwise(spans))


def test_a_write_that_fails_takes_back_what_it_wrote(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_files, "_FILE_BYTES", 2000)
    memory, run = replay(), tmp_path / "run"
    append(memory, 10)
    files = write_rows(run, memory, {})
    append(memory, 90)
    new = [name for name in write_rows(tmp_path / "elsewhere", memory, files) if name not in files]
    assert len(new) > 2
    (run / "checkpoints" / REPLAY_ROWS / new[-1] / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_rows(run, memory, files)
    assert names(run) == sorted([*files, new[-1]])
