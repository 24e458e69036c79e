import dataclasses
import json
import subprocess
import sys

import pytest
from PIL import Image

from paddleport.errors import ArtifactError, UsageError
from train import configuration
from train.compare_command import Options, run
from train.metrics import METRICS


@pytest.fixture
def made(tmp_path):
    """Make a run by its options and its evaluations."""

    def make(name, evaluations, algo="ppo", env="CartPole-v1", seed=0, rate=100.0, **options):
        config = configuration.preset(algo, env)
        config = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed))
        config = dataclasses.replace(config, algorithm=dataclasses.replace(config.algorithm, **options))
        folder = tmp_path / name
        folder.mkdir()
        configuration.save(config, name, folder / configuration.CONFIG)
        rows = [{"step": 5, "episode_return": 1.0, "steps_per_second": rate}]
        rows += [{"step": step, "evaluation_mean": mean, "evaluation_std": 1.0} for step, mean in evaluations]
        (folder / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(folder)

    return make


def compare(tmp_path, *runs):
    return run(Options(runs=runs, out=str(tmp_path / "out.png"))).groups


def size_of(path):
    with Image.open(path) as picture:
        picture.load()
        return picture.format, picture.size


def test_seeds_are_taken_together(made, tmp_path):
    runs = [
        made("a", [(10, 1.0), (20, 9.0), (30, 4.0)], seed=0, rate=100.0),
        made("b", [(10, 2.0), (20, 3.0), (40, 8.0)], seed=1, rate=300.0),
    ]
    (group,) = compare(tmp_path, *runs)
    assert (group.label, group.environment, group.seeds, group.runs) == ("ppo", "CartPole-v1", (0, 1), tuple(runs))
    assert group.final_mean == 6.0  # of 4 and 8
    assert group.final_std == 2.0
    assert group.best_mean == 8.5  # of 9 and 8
    assert group.step == 30
    assert group.steps_per_second == 200.0
    assert size_of(tmp_path / "out.png") == ("PNG", (960, 540))


def test_what_differs_in_more_than_the_seed_is_told_apart_by_its_options(made, tmp_path):
    runs = [
        made("a", [(10, 1.0)], seed=0),
        made("b", [(10, 1.0)], seed=0, gamma=0.5, max_grad_norm=9.0),
        made("c", [(10, 1.0)], seed=1),
        made("d", [(10, 1.0)], algo="dqn"),
    ]
    groups = compare(tmp_path, *runs)
    assert [group.label for group in groups] == [
        "ppo, gamma=0.98, max_grad_norm=0.5",
        "ppo, gamma=0.5, max_grad_norm=9.0",
        "dqn",
    ]
    assert [group.seeds for group in groups] == [(0, 1), (0,), (0,)]
    assert groups[1].final_std is None


def test_each_environment_has_a_panel_of_its_own(made, tmp_path):
    groups = compare(tmp_path, made("a", [(10, 1.0)]), made("b", [(10, -200.0)], env="Acrobot-v1"))
    assert [group.environment for group in groups] == ["CartPole-v1", "Acrobot-v1"]
    assert size_of(tmp_path / "out.png") == ("PNG", (960, 1080))


def test_a_run_that_is_named_twice_counts_once(made, tmp_path):
    path = made("a", [(10, 1.0)])
    (group,) = compare(tmp_path, path, f"{path}/../a")
    assert group.runs == (path,)


def test_what_cannot_be_compared_is_refused_and_draws_nothing(made, tmp_path):
    good, unevaluated = made("a", [(10, 1.0)]), made("b", [], seed=1)
    apart = made("c", [(20, 1.0)], seed=2)
    with pytest.raises(ArtifactError, match="is no run directory"):
        compare(tmp_path, good, str(tmp_path))
    with pytest.raises(ArtifactError, match=r"b has not been evaluated yet.*Leave it out"):
        compare(tmp_path, good, unevaluated)
    with pytest.raises(UsageError, match=r"no steps in common: got .*a at 10, .*c at 20\."):
        compare(tmp_path, good, apart)
    with pytest.raises(UsageError, match="nothing to compare"):
        compare(tmp_path)
    assert not (tmp_path / "out.png").exists()


@pytest.mark.parametrize(
    ("out", "words"), [("x.jpg", r"ends in \.png"), ("folder.png", "names a folder"), ("none/x.png", "is not there")]
)
def test_a_picture_that_cannot_be_written_is_refused_first(made, tmp_path, out, words):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UsageError, match=words):
        run(Options(runs=(made("a", [(10, 1.0)]),), out=str(tmp_path / out)))


def test_the_command_prints_a_table_and_writes_the_picture(made, tmp_path):
    runs = [made("a", [(10, 1.0), (20, 4.0)], seed=3), made("b", [(10, 2.0), (20, 8.0)], seed=4)]
    command = [sys.executable, "-m", "paddleport", "compare", *runs]
    environment = {"COLUMNS": "80", "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (row,) = [line for line in done.stdout.splitlines() if "3, 4" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["ppo", "3, 4", "6.0", "2.0", "6.0", "100"]
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert size_of(tmp_path / "compare.png")[0] == "PNG"
