import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import time

import pytest

from paddleport.checkpoint import OPTIMIZER, POLICY, REPLAY_ROWS, STATE, Run, step_name
from paddleport.errors import ArtifactError
from resuming import LAUNCH, final_bytes, kill_when_logged, steps_logged
from train.command import parse
from train.command import run as train

TOTAL = 3000
TRAIN = [
    *LAUNCH,
    *("train", "--env", "CartPole-v1", "--seed", "5"),
    *("--total-steps", str(TOTAL), "--checkpoint-every", "500", "--evaluation-episodes", "1"),
]
DQN = ("--algo", "dqn", "--learning-starts", "200", "--train-every", "8", "--gradient-steps", "2", "--num-envs", "2")
SETTINGS = {
    "ppo": ("--algo", "ppo", "--epochs", "4"),
    "a2c": ("--algo", "a2c"),
    "dqn": (*DQN, "--n-steps", "3", "--dueling"),
    "dqn, prioritised, past the ring's wrap": (*DQN, "--prioritized", "--replay-capacity", "900"),
}


def command(folder, engine, *more):
    return [*TRAIN, "--engine", engine, "--run-dir", str(folder), *more]


def run_through(folder, engine, *more):
    return train(parse(command(folder, engine, *more)[len(LAUNCH) + 1 :]))


def kill_at(folder, engine, step, number=signal.SIGKILL, *more):
    """Start or resume, and send a signal once the run has logged `step`; returns the finished process."""
    return kill_when_logged(command(folder, engine, "--resume", *more), folder, step, number)


def rows(folder):
    """What metrics.jsonl says, times apart."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in line.items() if key != "steps_per_second"} for line in lines]


def half_written(folder):
    """Temporary siblings of checkpoints and of their files."""
    return [path for path in (folder / "checkpoints").rglob(".*") if path.name.count(".") > 1]


@contextlib.contextmanager
def small_disk(folder, size):
    """A disk of its own, mounted at `folder`."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("only root, outside a strict container, can mount a disk; the test with a limit on files runs")
    try:
        yield lambda larger: subprocess.run(["mount", "-o", f"remount,size={larger}", folder], check=True)
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="module", params=["compiled", "eager"])
def uninterrupted(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("through") / "run"
    run_through(folder, request.param, *SETTINGS["ppo"])
    return request.param, folder


@pytest.mark.parametrize("engine", ["compiled", "eager"])
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_a_run_killed_at_random_moments_ends_with_the_same_weights_bit_for_bit(algorithm, engine, tmp_path):
    through, folder, settings = tmp_path / "through", tmp_path / "run", SETTINGS[algorithm]
    run_through(through, engine, *settings)
    moments = sorted(random.randrange(1, TOTAL) for _ in range(2))
    for moment in moments:
        kill_at(folder, engine, moment, signal.SIGKILL, *settings)
    run_through(folder, engine, "--resume", *settings)
    assert final_bytes(folder) == final_bytes(through), f"killed at {moments}"
    assert Run(folder).steps() == Run(through).steps()


def test_metrics_of_a_resumed_run_are_those_of_one_that_ran_through(uninterrupted, tmp_path):
    engine, through = uninterrupted
    folder = tmp_path / "run"
    kill_at(folder, engine, 1200, signal.SIGKILL, *SETTINGS["ppo"])
    run_through(folder, engine, "--resume")
    assert rows(folder) == rows(through)


def test_sigterm_far_from_a_barrier_says_how_many_steps_will_be_redone(tmp_path):
    folder = tmp_path / "run"
    far = ("--total-steps", "10000000", "--checkpoint-every", "5000000")
    stopped = kill_at(folder, "compiled", 600, signal.SIGTERM, *far)
    assert stopped.returncode == 0
    assert "Stopped. --resume continues from step 0 and takes" in stopped.stderr_text
    assert Run(folder).steps() == []
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_sigterm_near_a_barrier_goes_on_to_it(tmp_path):
    folder = tmp_path / "run"
    near = ("--total-steps", "10000000", "--checkpoint-every", "1000")
    stopped = kill_at(folder, "compiled", 1100, signal.SIGTERM, *near)
    assert stopped.returncode == 0
    steps = Run(folder).steps()
    assert f"--resume continues from step {steps[-1]}.\n" in stopped.stderr_text


def check_stopped_by_the_disk(stopped, folder):
    """One line that says how to go on, and a run directory that is whole up to its last checkpoint."""
    assert stopped.returncode == 1, stopped.stderr
    assert "Traceback" not in stopped.stderr
    said = [line for line in stopped.stderr.splitlines() if line.startswith("paddleport: ")]
    assert len(said) == 1
    assert "Cannot write to" in said[0]
    assert f"continue with: paddleport train --run-dir {folder} --resume." in said[0]
    last = Run(folder).checkpoint("last")
    last.check_replay()
    assert last.state.step == max(Run(folder).steps())
    assert half_written(folder) == []


def test_a_full_disk_during_a_checkpoint_loses_nothing(tmp_path):
    settings, through = SETTINGS["dqn"], tmp_path / "through"
    run_through(through, "compiled", *settings)
    with small_disk(tmp_path / "disk", "3m") as enlarge:
        folder = tmp_path / "disk" / "run"
        stopped = subprocess.run(command(folder, "compiled", *settings), capture_output=True, text=True)
        check_stopped_by_the_disk(stopped, folder)
        assert "No space left on device" in stopped.stderr
        enlarge("64m")
        run_through(folder, "compiled", "--resume")
        assert final_bytes(folder) == final_bytes(through)
        assert rows(folder) == rows(through)


def test_a_disk_that_fills_up_between_checkpoints_stops_the_run_with_the_same_message(tmp_path):
    settings = ("--algo", "a2c", "--total-steps", "20000", "--checkpoint-every", "4000")
    through = tmp_path / "through"
    run_through(through, "compiled", *settings)
    with small_disk(tmp_path / "disk", "6m"):
        folder, ballast = tmp_path / "disk" / "run", tmp_path / "disk" / "ballast"
        process = subprocess.Popen(command(folder, "compiled", *settings), stderr=subprocess.PIPE, text=True)
        while process.poll() is None and steps_logged(folder) < 4800:  # an iteration past the checkpoint
            time.sleep(0.002)
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(1000)):
                pass
        process.stderr_text = process.communicate(timeout=120)[1]
        stopped = subprocess.CompletedProcess(process.args, process.returncode, "", process.stderr_text)
        check_stopped_by_the_disk(stopped, folder)
        ballast.unlink()
        run_through(folder, "compiled", "--resume", *settings)
        assert final_bytes(folder) == final_bytes(through)
        assert rows(folder) == rows(through)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before_it(uninterrupted, tmp_path):
    """A limit on the size of files, as a quota has it, stands for a full disk where none can be mounted."""
    engine, through = uninterrupted
    folder = tmp_path / "run"
    kill_at(folder, engine, 1200, signal.SIGKILL, *SETTINGS["ppo"])
    before = Run(folder).steps()
    stopped = subprocess.run(
        command(folder, engine, "--resume", *SETTINGS["ppo"]),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)),
    )
    check_stopped_by_the_disk(stopped, folder)
    assert "File too large" in stopped.stderr
    assert Run(folder).steps() == before
    run_through(folder, engine, "--resume")
    assert final_bytes(folder) == final_bytes(through)


def test_a_run_killed_while_it_saves_or_prunes_ends_with_the_same_weights(tmp_path):
    through, folder = tmp_path / "through", tmp_path / "run"
    settings = (*SETTINGS["dqn, prioritised, past the ring's wrap"], "--keep-checkpoints", "2")
    run_through(through, "compiled", *settings)
    for _ in range(2):
        process = subprocess.Popen(command(folder, "compiled", "--resume", *settings), stderr=subprocess.DEVNULL)
        left = random.randrange(1, 5)
        while process.poll() is None and left:
            left -= bool(half_written(folder))
        process.kill()
        process.wait()
    run_through(folder, "compiled", "--resume", *settings)
    assert final_bytes(folder) == final_bytes(through)
    for what in ("*", f"{REPLAY_ROWS}/*"):
        left, expected = ({path.name for path in (run / "checkpoints").glob(what)} for run in (folder, through))
        assert left == expected


@pytest.mark.parametrize("name", [STATE, POLICY, OPTIMIZER])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before_it(uninterrupted, tmp_path, capfd, name, damage):
    engine, through = uninterrupted
    folder = tmp_path / "run"
    subprocess.run(["cp", "-r", through, folder], check=True)
    newest = Run(folder).steps()[-1]
    target = folder / "checkpoints" / step_name(newest) / name
    data = bytearray(target.read_bytes())
    data[len(data) // 2] ^= 1
    target.unlink()
    if damage != "remove":
        target.write_bytes(bytes(data) if damage == "flip" else bytes(data[: len(data) // 2]))
    run_through(folder, engine, "--resume")
    assert "Going back to the checkpoint before it" in capfd.readouterr().err
    assert final_bytes(folder) == final_bytes(through)


def test_damaged_replay_rows_give_way_to_the_checkpoint_before_them(tmp_path, capfd):
    folder = tmp_path / "run"
    run_through(folder, "compiled", *SETTINGS["dqn"])
    whole = final_bytes(folder)
    newest = list(Run(folder).checkpoint("last").state.replay_files)[-1]
    (folder / "checkpoints" / REPLAY_ROWS / newest).write_bytes(b"")
    run_through(folder, "compiled", "--resume")
    said = capfd.readouterr().err
    assert f"{newest} is damaged" in said
    assert "Going back to the checkpoint before it" in said
    assert final_bytes(folder) == whole


def test_another_number_of_checkpoints_to_keep_can_be_asked_for_when_a_run_is_resumed(uninterrupted, tmp_path):
    engine, through = uninterrupted
    folder = tmp_path / "run"
    subprocess.run(["cp", "-r", through, folder], check=True)
    last = folder / "checkpoints" / step_name(Run(folder).steps()[-1])
    subprocess.run(["rm", "-r", last], check=True)
    run_through(folder, engine, "--resume", "--keep-checkpoints", "2")
    assert final_bytes(folder) == final_bytes(through)
    best = Run(folder).checkpoint("best").state.step
    assert Run(folder).steps() == sorted({best, *Run(through).steps()[-2:]})


def test_a_second_training_in_the_same_folder_is_refused(tmp_path):
    folder = tmp_path / "run"
    first = subprocess.Popen(command(folder, "compiled", "--total-steps", "10000000"), stderr=subprocess.DEVNULL)
    try:
        while steps_logged(folder) == 0:
            assert first.poll() is None
            time.sleep(0.05)
        second = subprocess.run(
            command(folder, "compiled", "--total-steps", "10000000", "--resume"), capture_output=True, text=True
        )
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    assert second.returncode == 2
    assert "Another process trains in" in second.stderr


@pytest.mark.parametrize("pointer", ["last", "best"])
def test_a_kill_before_a_pointer_is_written_loses_no_best_checkpoint(uninterrupted, tmp_path, pointer):
    engine, through = uninterrupted
    folder = tmp_path / "run"
    subprocess.run(["cp", "-r", through, folder], check=True)
    (folder / "checkpoints" / pointer).unlink()
    run_through(folder, engine, "--resume")
    for name in ("last", "best"):
        assert Run(folder).checkpoint(name).path.name == Run(through).checkpoint(name).path.name


@pytest.mark.parametrize(
    ("line", "edited"), [("seed: 5", "seed: 77"), ("normalize_obs: true", "normalize_obs: false"), ("- 64", "- 32")]
)
def test_an_edited_config_is_refused_and_named(uninterrupted, tmp_path, line, edited):
    _, through = uninterrupted
    folder = tmp_path / "run"
    subprocess.run(["cp", "-r", through, folder], check=True)
    config = folder / "config.yaml"
    assert line in config.read_text()
    config.write_text(config.read_text().replace(line, edited, 1))
    with pytest.raises(ArtifactError, match=r"config\.yaml is not what .* was trained with.*→"):
        train(parse(["--run-dir", str(folder), "--resume"]))
