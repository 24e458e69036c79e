import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddleport import files
from paddleport.errors import ArtifactError

_KILLED_IN_THE_MIDDLE = """
import os, signal, sys
from pathlib import Path
from paddleport import files

os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
target = Path(sys.argv[1])
if sys.argv[2] == "file":
    files.write_atomic(target, b"new" * 1000)
else:
    with files.publish_directory(target, replace=True) as folder:
        (folder / "a").write_bytes(b"new")
"""


def _no_leftovers(folder: Path) -> bool:
    return not [entry for entry in folder.iterdir() if entry.name.startswith(".")]


def test_write_atomic_replaces_the_old_bytes(tmp_path):
    target = tmp_path / "pointer"
    files.write_atomic(target, b"old")
    files.write_atomic(target, b"new")
    assert target.read_bytes() == b"new"
    assert _no_leftovers(tmp_path)


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_write_atomic_keeps_the_old_bytes_when_it_fails(tmp_path, monkeypatch, step):
    target = tmp_path / "pointer"
    target.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match="No space"):
        files.write_atomic(target, b"new")
    assert target.read_bytes() == b"old"
    assert _no_leftovers(tmp_path)


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_kill_in_the_middle_leaves_what_was_there(tmp_path, kind):
    target = tmp_path / "target"
    if kind == "file":
        target.write_bytes(b"old")
    else:
        target.mkdir()
        (target / "a").write_bytes(b"old")
    killed = subprocess.run([sys.executable, "-c", _KILLED_IN_THE_MIDDLE, target, kind], timeout=60)
    assert killed.returncode == -9
    assert (target if kind == "file" else target / "a").read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir() if not entry.name.startswith(".")] == ["target"]


def test_a_reader_never_sees_a_part_of_a_file(tmp_path):
    target = tmp_path / "pointer"
    versions = [bytes([letter]) * 200_000 for letter in b"ab"]
    files.write_atomic(target, versions[0])
    done = threading.Event()

    def write():
        for turn in range(40):
            files.write_atomic(target, versions[turn % 2])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(files.read_bytes(target, 2**20))
    writer.join()
    assert seen <= set(versions)


def test_a_directory_appears_whole(tmp_path):
    target = tmp_path / "models" / "cartpole" / "1"
    with files.publish_directory(target) as folder:
        (folder / "figures").mkdir()
        (folder / "figures" / "return.svg").write_bytes(b"<svg/>")
        (folder / "manifest.json").write_bytes(b"{}")
        assert not target.exists()
        assert folder.parent == target.parent
        assert folder.name.startswith(".")
    assert (target / "figures" / "return.svg").read_bytes() == b"<svg/>"
    assert (target / "manifest.json").read_bytes() == b"{}"
    assert _no_leftovers(target.parent)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("replace", [False, True])
def test_a_directory_does_not_appear_when_the_block_raises(tmp_path, error, replace):
    target = tmp_path / "1"
    with pytest.raises(error), files.publish_directory(target, replace=replace) as folder:
        (folder / "a").write_bytes(b"new")
        raise error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("replace", [False, True])
def test_an_existing_directory_survives_a_block_that_raises(tmp_path, replace):
    target = tmp_path / "1"
    target.mkdir()
    (target / "a").write_bytes(b"old")
    with pytest.raises(ValueError, match="half"), files.publish_directory(target, replace=replace) as folder:
        (folder / "a").write_bytes(b"new")
        raise ValueError("half way")
    assert (target / "a").read_bytes() == b"old"
    assert _no_leftovers(tmp_path)


def test_publishing_over_an_existing_directory_is_refused(tmp_path):
    target = tmp_path / "1"
    target.mkdir()
    (target / "a").write_bytes(b"old")
    with pytest.raises(OSError, match="not empty"), files.publish_directory(target) as folder:
        (folder / "b").write_bytes(b"new")
    assert [entry.name for entry in target.iterdir()] == ["a"]
    assert _no_leftovers(tmp_path)


def test_replacing_swaps_the_whole_directory(tmp_path):
    target = tmp_path / "1"
    target.mkdir()
    (target / "a").write_bytes(b"old")
    with files.publish_directory(target, replace=True) as folder:
        (folder / "b").write_bytes(b"new")
    assert [entry.name for entry in target.iterdir()] == ["b"]
    assert _no_leftovers(tmp_path)


def test_replacing_puts_the_old_directory_back_when_the_rename_fails(tmp_path, monkeypatch):
    target = tmp_path / "1"
    target.mkdir()
    (target / "a").write_bytes(b"old")
    rename = Path.rename

    def fail_once(self, to):
        if to == target and (self / "b").exists():
            raise OSError(5, "Input/output error")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(OSError, match="Input/output"), files.publish_directory(target, replace=True) as folder:
        (folder / "b").write_bytes(b"new")
    assert (target / "a").read_bytes() == b"old"
    assert _no_leftovers(tmp_path)


def test_of_many_publishers_one_wins(tmp_path):
    target = tmp_path / "1"
    together = threading.Barrier(8)

    def publish(number):
        try:
            with files.publish_directory(target) as folder:
                (folder / "who").write_text(str(number))
                (folder / "too").write_text(str(number))
                together.wait(10)
        except OSError:
            return None
        return str(number)

    with ThreadPoolExecutor(8) as pool:
        winners = [name for name in pool.map(publish, range(8)) if name]
    assert len(winners) == 1
    assert (target / "who").read_text() == (target / "too").read_text() == winners[0]
    assert _no_leftovers(tmp_path)


def test_a_file_of_exactly_the_limit_is_read(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert files.read_bytes(tmp_path / "a", 5) == b"12345"


def test_a_file_over_the_limit_is_refused_unread(tmp_path, monkeypatch):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ArtifactError, match="expected at most 5 bytes, got 1099511627776 bytes"):
        files.read_bytes(tmp_path / "a", 5)


def test_what_is_no_regular_file_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"secret")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    came = {
        "link": "a link",
        "dangling": "a link",
        "folder": "a folder",
        "pipe": "a device or a pipe",
        "missing": "nothing there",
    }
    for name, word in came.items():
        with pytest.raises(ArtifactError, match=rf"Cannot read .*{name}: expected a regular file, got {word}\. \w+"):
            files.read_bytes(tmp_path / name, 100)


def test_a_path_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="File name too long"):
        files.read_bytes(tmp_path / ("x" * 5000), 100)


def test_what_a_killed_process_left_is_swept_and_nothing_else(tmp_path):
    left = [tmp_path / ".step-000000100.0123456789ab", tmp_path / ".last.0123456789ab"]
    left[0].mkdir()
    (left[0] / "state.json").write_bytes(b"{")
    left[1].write_bytes(b"step")
    kept = [tmp_path / ".lock", tmp_path / "step-000000100", tmp_path / ".hidden.name"]
    for path in kept:
        path.write_bytes(b"")
    files.sweep(tmp_path, older_than=3600)
    assert all(path.exists() for path in left)
    files.sweep(tmp_path, older_than=-1)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in kept)
    files.sweep(tmp_path / "nothing", older_than=0)
