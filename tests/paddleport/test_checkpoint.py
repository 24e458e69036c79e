import dataclasses
import shutil

import msgspec
import numpy as np
import pytest

from paddleport import sealed
from paddleport.checkpoint import (
    OPTIMIZER,
    POLICY,
    SCHEMA_VERSION,
    STATE,
    Checkpoint,
    CheckpointState,
    Run,
    load_tensors,
    step_name,
)
from paddleport.errors import ArtifactError, UsageError
from paddleport.files import sha256_bytes
from paddleport.manifest import FileInfo, ReturnStatistics

_FILES = (STATE, POLICY, OPTIMIZER)


@dataclasses.dataclass
class Later:
    """Adds checkpoints to a run as training does."""

    run: Run

    def write(self, step, mean):
        from train.checkpointing import write_checkpoint

        first = self.run.checkpoint("step-1000")
        best = max(mean, *(self.run.checkpoint(f"step-{other}").state.best_mean_return or mean for other in self.steps))
        state = msgspec.structs.replace(
            first.state,
            step=step,
            evaluation=ReturnStatistics(mean=mean, std=0, min=mean, max=mean, episodes=1, seed=0),
            best_mean_return=best,
        )
        write_checkpoint(self.run.path, state, first.policy_tensors(), first.optimizer_tensors())

    @property
    def steps(self):
        return self.run.steps()


@pytest.fixture
def refused(run_dir, snapshot):
    """Assert that a checkpoint is refused with a message that helps, and that nothing on disk is changed by it."""

    def check(match, which=None):
        before = snapshot(run_dir)
        with pytest.raises(ArtifactError, match=match) as raised:
            Run(run_dir).checkpoint(which)
        assert raised.value.todo
        assert "\n" not in str(raised.value)
        assert str(run_dir) in str(raised.value)
        assert snapshot(run_dir) == before

    return check


@pytest.fixture
def folder(run_dir):
    return run_dir / "checkpoints" / step_name(1000)


@pytest.fixture
def seal_anew(folder):
    def change(**changes):
        state = sealed.unseal(folder / STATE, CheckpointState, SCHEMA_VERSION)
        (folder / STATE).write_bytes(sealed.seal(msgspec.structs.replace(state, **changes)))

    return change


def test_a_whole_checkpoint_opens(run_dir, folder, snapshot):
    before = snapshot(run_dir)
    checkpoint = Run(run_dir).checkpoint()
    assert checkpoint.path == folder
    assert checkpoint.state.step == 1000
    assert checkpoint.sha256 == sha256_bytes((folder / POLICY).read_bytes())
    assert checkpoint.policy_tensors()["obs_mean"].shape == (4,)
    assert list(checkpoint.optimizer_tensors()) == ["unused"]
    assert snapshot(run_dir) == before


def test_best_last_and_step_n_name_what_they_say(run_dir):
    run = Run(run_dir)
    assert run.checkpoint().state.step == 1000
    later = Later(run)
    for step, mean in ((2000, 300.0), (3000, 200.0)):
        later.write(step, mean)
    steps = {which: run.checkpoint(which).state.step for which in (None, "best", "last", "step-1000", "step-000003000")}
    assert steps == {None: 2000, "best": 2000, "last": 3000, "step-1000": 1000, "step-000003000": 3000}
    assert run.steps() == [1000, 2000, 3000]


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("where", [0.0, 0.3, 0.7, 1.0])
def test_a_flipped_byte_is_refused(folder, refused, name, where):
    data = bytearray((folder / name).read_bytes().rstrip() if name == STATE else (folder / name).read_bytes())
    data[round(where * (len(data) - 1))] ^= 1
    (folder / name).write_bytes(data)
    refused(f"{name} is damaged")


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_file_is_refused(folder, refused, name, share):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(share * len(data))])
    refused(f"{name} is damaged")


@pytest.mark.parametrize("name", _FILES)
def test_a_missing_file_is_refused(folder, refused, name):
    (folder / name).unlink()
    refused(f"Cannot read .*{name}: expected a regular file, got nothing there")


@pytest.mark.parametrize("name", _FILES)
def test_a_link_in_place_of_a_file_is_refused(folder, refused, tmp_path, name):
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    refused("got a link")


def test_weights_that_change_after_the_checkpoint_was_opened_are_refused(run_dir, folder):
    checkpoint = Run(run_dir).checkpoint()
    data = bytearray((folder / POLICY).read_bytes())
    data[-1] ^= 1
    (folder / POLICY).write_bytes(data)
    with pytest.raises(ArtifactError, match=f"{POLICY} is damaged"):
        checkpoint.policy_tensors()


@pytest.mark.parametrize("name", ["../../config.yaml", "/etc/passwd", ".."])
def test_a_state_that_lists_a_file_outside_is_refused(folder, refused, seal_anew, name):
    state = sealed.unseal(folder / STATE, CheckpointState, SCHEMA_VERSION)
    seal_anew(files={**state.files, name: state.files[POLICY]})
    refused("lists a file outside itself")


@pytest.mark.parametrize("name", [POLICY, OPTIMIZER])
def test_a_state_that_leaves_out_a_needed_file_is_refused(folder, refused, seal_anew, name):
    state = sealed.unseal(folder / STATE, CheckpointState, SCHEMA_VERSION)
    seal_anew(files={key: info for key, info in state.files.items() if key != name})
    refused(f"does not list {name}")


def test_a_newer_schema_is_named(refused, seal_anew):
    seal_anew(schema_version=SCHEMA_VERSION + 1)
    refused(f"newer Paddleport: expected schema version {SCHEMA_VERSION} or older, got version 2. Upgrade")


@pytest.mark.parametrize("data", [b"", b"no tensors", b"\xff" * 16, b"\x02\0\0\0\0\0\0\0{}more"])
def test_a_listed_file_that_holds_no_tensors_is_refused(run_dir, folder, seal_anew, data):
    state = sealed.unseal(folder / STATE, CheckpointState, SCHEMA_VERSION)
    (folder / POLICY).write_bytes(data)
    seal_anew(files={**state.files, POLICY: FileInfo(sha256=sha256_bytes(data), size=len(data))})
    with pytest.raises(ArtifactError, match=f"{POLICY} is damaged"):
        Run(run_dir).checkpoint().policy_tensors()


def test_tensors_load_from_a_file_of_their_own(tmp_path):
    from safetensors.numpy import save_file

    save_file({"weight": np.arange(3, dtype=np.float32)}, tmp_path / "a.safetensors")
    assert load_tensors(tmp_path / "a.safetensors")["weight"].tolist() == [0, 1, 2]


def test_the_random_state_survives_to_the_last_bit(run_dir, seal_anew):
    rng = np.random.default_rng(3).bit_generator.state
    seal_anew(rng=rng)
    assert Run(run_dir).checkpoint().state.rng == rng


@pytest.mark.parametrize(
    "content",
    [b"", b"step-", b"../step-1", b"step-1000/../x", b"last", b"\xff\xfe", b"step-1\nstep-2", b"step-" + b"9" * 99],
)
def test_a_damaged_pointer_is_refused(run_dir, refused, content):
    (run_dir / "checkpoints" / "last").write_bytes(content)
    refused("last is damaged: expected one line, step-N, got .*--checkpoint step-N", "last")


def test_an_endless_pointer_is_refused(run_dir, refused):
    (run_dir / "checkpoints" / "last").write_bytes(b"step-1000" + b" " * 1000)
    refused("last is too large", "last")


def test_a_damaged_best_is_refused_not_passed_over(run_dir, refused):
    (run_dir / "checkpoints" / "best").write_bytes(b"?")
    refused("best is damaged")


def test_a_pointer_to_nowhere_is_refused(run_dir, refused):
    (run_dir / "checkpoints" / "last").write_text("step-000009000\n")
    refused("step-000009000/state.json: expected a regular file, got nothing there", "last")


def test_a_missing_pointer_is_refused(run_dir, refused):
    (run_dir / "checkpoints" / "last").unlink()
    refused("last: expected a regular file, got nothing there")
    refused("best: expected a regular file, got nothing there", "best")


def test_a_step_that_was_never_saved_is_refused(refused):
    refused("has no checkpoint step-7: expected one of step-1000, got step-7", "step-7")


@pytest.mark.parametrize("which", ["", "newest", "1000", "step-", "step--1", "../last", "step-٣", "step-" + "9" * 5000])
def test_what_names_no_checkpoint_is_refused(run_dir, which):
    with pytest.raises(UsageError, match="Unknown checkpoint: expected best, last or step-N, got "):
        Run(run_dir).checkpoint(which)


def test_a_run_without_a_checkpoint_says_how_to_go_on(run_dir, refused):
    for entry in (run_dir / "checkpoints").iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    refused("has no checkpoint yet. Train on with: paddleport train .*--resume")
    (run_dir / "checkpoints").rmdir()
    refused("has no checkpoint yet", "step-1000")


def test_what_is_half_written_is_no_checkpoint(run_dir):
    for name in (".step-000002000.0123456789ab", "step-2000.bak", "steps"):
        (run_dir / "checkpoints" / name).mkdir()
    assert Run(run_dir).steps() == [1000]


@pytest.mark.parametrize(("name", "came"), [("nowhere", "no such folder"), ("", "a folder without one")])
def test_where_there_is_no_run_the_message_says_how_to_make_one(tmp_path, name, came):
    with pytest.raises(ArtifactError, match=rf"is no run directory: expected .*, got {came}\. Make one with: "):
        Run(tmp_path / name)


def test_a_checkpoint_folder_opens_by_itself(folder):
    assert Checkpoint.open(folder).state.step == 1000
