"""Observations for calibration out of a file."""

import numpy as np
import pytest

import runs
from paddleport.errors import ArtifactError
from paddleport.spaces import Box, DictSpace, Discrete
from quantize import calibration, command

SPACE = Box(shape=(3,), dtype="float32", low=None, high=None)
PARTS = DictSpace(spaces={"goal": Discrete(4), "position": SPACE})


def saved(folder, **arrays):
    np.savez(folder / "seen.npz", **arrays)
    return folder / "seen.npz"


def test_arrays_are_read_in_the_types_of_the_space(tmp_path):
    rows = np.arange(12, dtype=np.float64).reshape(4, 3)
    read = calibration.read_observations(saved(tmp_path, obs=rows), SPACE)["obs"]
    assert read.dtype == np.float32
    assert np.array_equal(read, rows)
    arrays = {"obs.goal": np.array([0, 3]), "obs.position": rows[:2]}
    parts = calibration.read_observations(saved(tmp_path, **arrays), PARTS)
    assert parts["obs.goal"].tolist() == [0, 3]


def test_too_many_are_thinned_evenly():
    obs = {"obs": np.arange(1000)}
    assert calibration.thinned(obs, 5)["obs"].tolist() == [0, 250, 500, 749, 999]
    images = Box(shape=(84, 84, 4), dtype="uint8", low=0.0, high=255.0)
    assert calibration.most_rows(SPACE) == calibration.MOST_ROWS
    assert calibration.most_rows(images) == calibration.MOST_ELEMENTS // (84 * 84 * 4)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"observation": np.zeros((2, 3))}, "expected obs, got observation"),
        ({"obs": np.zeros((2, 4))}, "no observations of this policy"),
        ({"obs": np.zeros((0, 3))}, "at least one observation"),
        ({"obs": np.full((2, 3), np.nan)}, "finite"),
        ({"obs": np.array(["a"])}, "no observations of this policy"),
        ({"obs": np.array([None])}, "cannot be read"),
    ],
)
def test_what_is_no_observation_is_refused(tmp_path, arrays, said):
    with pytest.raises(ArtifactError, match=said):
        calibration.read_observations(saved(tmp_path, **arrays), SPACE)


def test_parts_of_different_lengths_are_refused(tmp_path):
    arrays = {"obs.goal": np.array([0, 3]), "obs.position": np.zeros((3, 3))}
    with pytest.raises(ArtifactError, match="not equally long"):
        calibration.read_observations(saved(tmp_path, **arrays), PARTS)


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "seen.npz").write_bytes(b"PK no archive")
    for path in (tmp_path / "seen.npz", tmp_path / "nowhere.npz", tmp_path):
        with pytest.raises(ArtifactError, match=str(path)):
            calibration.read_observations(path, SPACE)


def test_the_command_takes_a_file_and_says_so(tmp_path):
    runs.untrained_run(tmp_path / "run", "Pendulum-v1", hidden_sizes=(8,))
    rows = np.random.default_rng(0).uniform(-1, 1, (500, 3)) * [1, 1, 8]
    path = saved(tmp_path, obs=rows.astype(np.float32))
    result = command.run(command.parse([str(tmp_path / "run"), "--episodes", "2", "--calibration", str(path)]))
    assert (result.calibration_observations, result.calibration_episodes) == (500, 0)
    command.show(result)


def test_observer_auto_takes_the_one_that_agrees_best(tmp_path):
    runs.untrained_run(tmp_path / "run", "Pendulum-v1", hidden_sizes=(8,))
    few = ["--calibration-episodes", "1", "--episodes", "2", "--observer", "auto", "--max-drop", "10"]
    result = command.run(command.parse([str(tmp_path / "run"), *few]))
    assert set(result.tried) == {"absmax", "avg", "mse", "emd", "hist", "kl"}
    assert result.tried[result.observer] == max(result.tried.values()) == pytest.approx(result.agreement)
    command.show(result)
