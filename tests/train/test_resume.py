import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from paddleport.checkpoint import OPTIMIZER, POLICY, REPLAY, STATE, Run, step_name
from paddleport.errors import ArtifactError
from train.command import parse
from train.command import run as train

TOTAL = 3000
LAUNCH = [sys.executable, "-m", "paddleport"]
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


def steps_logged(folder):
    metrics = folder / "metrics.jsonl"
    if not metrics.is_file():
        return 0
    lines = [line for line in metrics.read_bytes().splitlines() if line.endswith(b"}")]
    return json.loads(lines[-1])["step"] if lines else 0


def kill_at(folder, engine, step, number=signal.SIGKILL, *more):
    """Start or resume, and send a signal once the run has logged `step`; returns the finished process."""
    process = subprocess.Popen(command(folder, engine, "--resume", *more), stderr=subprocess.PIPE, text=True)
    while process.poll() is None and steps_logged(folder) < step:
        time.sleep(0.002)
    time.sleep(random.uniform(0, 0.1))
    process.send_signal(number)
    process.stderr_text = process.communicate(timeout=120)[1]
    return process


def final_bytes(folder):
    path = Run(folder).checkpoint("last").path
    return {name: (path / name).read_bytes() for name in (POLICY, OPTIMIZER, REPLAY) if (path / name).is_file()}


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

    def rows(run):
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        return [{key: value for key, value in line.items() if key != "steps_per_second"} for line in lines]

    assert rows(folder) == rows(through)


def test_sigterm_far_from_a_barrier_says_how_many_steps_will_be_redone(tmp_path):
    folder = tmp_path / "run"
    far = ("--total-steps", "10000000", "--checkpoint-every", "5000000")
    stopped = kill_at(folder, "compiled", 600, signal.SIGTERM, *far)
    assert stopped.returncode == 0
    assert "Stopped. --resume continues from step 0 and takes" in stopped.stderr_text
    assert Run(folder).steps() == []


def test_sigterm_near_a_barrier_goes_on_to_it(tmp_path):
    folder = tmp_path / "run"
    near = ("--total-steps", "10000000", "--checkpoint-every", "1000")
    stopped = kill_at(folder, "compiled", 1100, signal.SIGTERM, *near)
    assert stopped.returncode == 0
    steps = Run(folder).steps()
    assert f"--resume continues from step {steps[-1]} and takes 0 steps again" in stopped.stderr_text


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
