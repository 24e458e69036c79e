import errno
import io
import re
import sys

import pytest
from PIL import Image
from rich.console import Console

from train import reporting
from train.command import parse
from train.command import run as train
from train.reporting import LEARNING_CURVE, Reporter

SHARED = {"episode_return", "episode_length", "loss", "learning_rate", "updates", "steps_per_second"}
ON_POLICY = {"policy_loss", "value_loss", "entropy", "explained_variance"}
QUICK = ("--total-steps", "700", "--evaluation-episodes", "2")


def tags_in(run):
    """The tags of the VisualDL log, as VisualDL's own reader finds them."""
    from visualdl import LogReader

    (log,) = (run / "logs").iterdir()
    return {name.rpartition(f"{log.name}/")[2].replace("%", "/") for name in LogReader(file_path=str(log)).tags()}


@pytest.mark.parametrize(
    ("options", "own"),
    [
        (("--algo", "ppo", "--epochs", "2"), ON_POLICY | {"approx_kl", "clip_fraction"}),
        (("--algo", "a2c"), ON_POLICY),
        (
            ("--algo", "dqn", "--learning-starts", "100"),
            {"mean_q", "td_error", "epsilon", "replay_size"},
        ),
    ],
)
def test_a_training_leaves_its_scalars_and_its_picture(tmp_path, options, own):
    run = tmp_path / "run"
    train(parse([*options, *QUICK, "--run-dir", str(run)]))
    with Image.open(run / LEARNING_CURVE) as picture:
        picture.load()
        assert (picture.format, picture.size) == ("PNG", (960, 540))
        assert len(picture.convert("RGB").getcolors(2**20)) > 20  # something is drawn
    assert {f"train/{name}" for name in SHARED | own} | {"evaluation/mean", "evaluation/std"} <= tags_in(run)
    assert not [path for path in run.iterdir() if path.name.startswith(".learning_curve")]


def reported(tmp_path, capfd, rows=1):
    """A reporter that is asked for its picture; returns what it said."""
    with Reporter(tmp_path, 0, 1000, "ppo CartPole-v1") as report:
        for row in range(rows):
            report.iteration(100 * (row + 1), {"episode_return": 20.0})
        report.learning_curve("ppo on CartPole-v1, seed 0")
    return capfd.readouterr().err


def test_a_missing_matplotlib_is_said_and_stops_nothing(tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "There is no learning_curve.png: the package matplotlib.figure is not installed." in reported(
        tmp_path, capfd
    )
    assert not (tmp_path / LEARNING_CURVE).exists()


def test_a_full_disk_at_the_picture_is_said_and_stops_nothing(tmp_path, capfd, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(reporting, "write_atomic", full)
    assert "There is no learning_curve.png: " in reported(tmp_path, capfd)


def test_there_is_no_picture_of_nothing(tmp_path, capfd):
    assert reported(tmp_path, capfd, rows=0) == ""
    assert not (tmp_path / LEARNING_CURVE).exists()


@pytest.mark.parametrize("label", ["ppo CartPole-v1", "ppo examples/thermostat.py:AVeryLongName[bold]"])
@pytest.mark.parametrize("note", ["return -12345.6, 12345 steps/s, 10:00:00 left", "no episode yet, 0 steps/s"])
def test_the_bar_stays_on_one_line_of_80_columns(label, note):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    bar = reporting._live_bar(console)
    bar.add_task(label, total=100, completed=40, note=note)
    console.print(bar)
    (line,) = console.file.getvalue().splitlines()
    assert len(line) <= 80
    assert "40%" in line
    assert note in line
    assert label[:15] in line


def test_where_there_is_no_terminal_lines_say_how_it_goes(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(reporting, "_PLAIN_INTERVAL", -1.0)
    (line,) = reported(tmp_path, capfd).splitlines()
    assert re.fullmatch(r"ppo CartPole-v1: 100/1000 steps, return 20\.0, \d+ steps/s, 0:00:\d\d left", line)


def test_a_notebooks_process_prints_lines_too(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(reporting, "_PLAIN_INTERVAL", -1.0)
    assert len(reported(tmp_path, capfd).splitlines()) == 1


def test_the_time_left_is_said_in_hours_minutes_and_seconds():
    assert reporting._clock(3725.4) == "1:02:05"
    assert reporting._clock(-3) == "0:00:00"
