import dataclasses
import threading
import time

import pytest

from benchmarks import learning
from benchmarks.learning_report import Point, Result, document, read_results, thinned, verdict, write_result
from benchmarks.learning_rows import ROWS, Published, Row, Target
from benchmarks.learning_seeds import Seed, complete
from benchmarks.processes import Children
from paddleport.checkpoint import Run
from paddleport.errors import ArtifactError, PaddleportError, UsageError

SHORT = (
    *("--total-steps", "4000", "--num-envs", "2", "--n-steps", "25", "--batch-size", "50", "--epochs", "1"),
    *("--checkpoint-every", "400", "--evaluation-episodes", "2"),
)
ROW = Row("CartPole-v1", "ppo", 3, Published(500, 100_000), Target(475, seeds=2), options=SHORT)
ACROBOT = Row("Acrobot-v1", "a2c", 2, Published(-83.4, 500_000), Target(-85))


def result(row, seed, mean, **changed):
    values = {
        "environment": row.environment,
        "algorithm": row.algorithm,
        "seed": seed,
        "mean": mean,
        "std": 1.5,
        "min": mean - 9,
        "max": mean + 9,
        "episodes": 100,
        "evaluation_seed": 7,
        "best_step": 800,
        "steps": 1000,
        "finished": True,
        "wall_seconds": 12.0,
        "cpu_seconds": 11.0,
        "attempts": 1,
        "curve": (Point(500, mean - 50, 4.0), Point(1000, mean, 2.0)),
        "config": Seed(row, seed).planned(),
        "commands": (f"paddleport train --seed {seed}", "paddleport evaluate"),
        "commit": "0123456789",
        "versions": {},
        "machine": "2 cores",
        "created": "2026-11-30T00:00:00Z",
    }
    return Result(**(values | changed))


def text_of(row, results):
    return document([row], {row: results}, {row: Seed(row, 0).planned()}, {row.environment: "learning/picture.png"})


@pytest.mark.parametrize(
    ("target", "means", "met"),
    [
        (Target(475, seeds=2), [475.0, 474.9, 500.0], True),
        (Target(475, seeds=2), [474.9, 474.9, 500.0], False),
        (Target(475, seeds=2), [500.0, 500.0], None),
        (Target(-85), [-80.0, -90.0, -85.0], True),
        (Target(-85), [-80.0, -90.0, -85.1], False),
    ],
)
def test_a_target_is_met_by_so_many_seeds_or_by_their_mean_and_open_until_all_have_run(target, means, met):
    assert target.met(means, 3) is met


def test_every_declared_row_is_one_that_can_be_trained():
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        planned = Seed(row, 0).planned()
        assert (planned["env"], planned["algo"]) == (row.environment, row.algorithm)
        assert row.target is None or row.target.seeds <= row.seeds


def test_the_table_shows_every_seed_and_what_is_not_met():
    text = text_of(ROW, [result(ROW, 0, 499.9), result(ROW, 1, 12.3), result(ROW, 2, 470.0)])
    line = next(line for line in text.splitlines() if line.startswith("| CartPole-v1 | ppo"))
    assert "| 327.4 | 499.9, 12.3, 470.0 | ≥ 475, 2 of 3 seeds | **not met** |" in line
    assert "500 (100,000), rl-baselines3-zoo | `make bench-learning ONLY=CartPole-v1-ppo` |" in line
    assert "paddleport train --seed 0" in text
    assert "learning/picture.png" in text
    assert "older preset" not in text


def test_a_result_of_other_options_than_today_is_told_apart():
    of_old = result(ROW, 1, 500.0, config={**Seed(ROW, 1).planned(), "learning_rate": 0.5})
    assert "Of an older preset than today's: seed 1." in text_of(ROW, [result(ROW, 0, 500.0), of_old])


def test_a_row_that_has_not_run_to_its_end_is_neither_met_nor_not():
    assert verdict(ACROBOT, [result(ACROBOT, 0, -80.0)]) == "1 of 2 ran so far"
    assert verdict(ACROBOT, [result(ACROBOT, seed, -80.0) for seed in (0, 1)]) == "met"


def test_a_long_curve_is_thinned_and_keeps_its_end():
    curve = [Point(step, 1.0, 0.0) for step in range(1000)]
    kept = thinned(curve)
    assert len(kept) == 60
    assert (kept[0], kept[-1]) == (curve[0], curve[-1])
    assert thinned(curve[:5]) == tuple(curve[:5])


def test_results_come_back_as_written_and_a_damaged_one_is_said(tmp_path):
    written = result(ROW, 1, 499.0)
    write_result(written, tmp_path / "CartPole-v1-ppo-1.json")
    assert read_results(tmp_path, ROW) == [written]
    (tmp_path / "CartPole-v1-ppo-1.json").write_text('{"mean": 1')
    with pytest.raises(ArtifactError, match="is damaged"):
        read_results(tmp_path, ROW)


def test_write_makes_the_documents_from_the_results_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    row = next(row for row in ROWS if row.name == "Acrobot-v1-a2c")
    for seed in range(row.seeds):
        write_result(result(row, seed, -80.0 - seed), learning.DETAILS / f"Acrobot-v1-a2c-{seed}.json")
    assert learning.main(["--write"]) == 0
    text = (tmp_path / "benchmarks/results/learning.md").read_text(encoding="utf-8")
    assert "-80.0, -81.0, -82.0 | ≥ -85, mean of 3 seeds | met |" in text
    assert (tmp_path / "benchmarks/results/learning/Acrobot-v1.png").read_bytes().startswith(b"\x89PNG")
    assert learning.main(["--list", "--only", "Acrobot-v1-a2c"]) == 0
    assert capsys.readouterr().out == "Acrobot-v1-a2c: target ≥ -85, mean of 3 seeds; met\n"


def test_a_stopped_run_goes_on_where_it_was_and_a_finished_one_is_not_repeated(tmp_path):
    seed = Seed(ROW, 1, runs=tmp_path / "runs", episodes=4)
    children = Children()
    stopper = threading.Thread(target=stop_after_a_checkpoint, args=(children, seed))
    stopper.start()
    with pytest.raises(PaddleportError, match="was stopped"):
        complete(seed, children, tmp_path)
    stopper.join()
    stopped_at = Run(seed.folder).steps()[-1]
    assert stopped_at < 4000
    assert not list(tmp_path.glob("*.json"))

    # With a time limit that has passed, that is all there will be of it.
    limited = dataclasses.replace(seed, row=dataclasses.replace(ROW, minutes=0.01))
    assert limited.spent.wall_seconds > 0.6
    cut = complete(limited, Children(), tmp_path)
    assert (cut.finished, cut.steps, cut.attempts) == (False, stopped_at, 1)

    first = complete(seed, Children(), tmp_path)
    assert f"continues from step {stopped_at}" in seed.log.read_text(encoding="utf-8")
    assert (first.attempts, first.finished, first.episodes, first.seed) == (2, True, 4, 1)
    assert first.steps >= 4000
    assert first.cpu_seconds > 0.5
    assert [point.step for point in first.curve] == sorted({point.step for point in first.curve})
    assert first.best_step in {point.step for point in first.curve}
    assert read_results(tmp_path, ROW) == [first]

    again = complete(seed, Children(), tmp_path)
    assert (again.attempts, again.mean, again.wall_seconds) == (2, first.mean, first.wall_seconds)

    other = dataclasses.replace(seed, row=dataclasses.replace(ROW, options=(*SHORT, "--gamma", "0.5")))
    with pytest.raises(UsageError, match=r"gamma .* → 0\.5"):
        complete(other, Children(), tmp_path)


def stop_after_a_checkpoint(children, seed):
    until = time.monotonic() + 60
    while not (seed.folder / "checkpoints/last").exists() and time.monotonic() < until:
        time.sleep(0.02)
    children.stop()


def test_a_command_that_fails_names_its_log(tmp_path):
    with pytest.raises(PaddleportError, match=r"exit code 2.*seed\.log"):
        Children().run(["train", "--algo", "nothing"], tmp_path / "seed.log")
    assert "Unknown algorithm" in (tmp_path / "seed.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_training_is_asked_to_stop_when_its_time_is_over(tmp_path):
    endless = ("--total-steps", "100000000", *SHORT[2:])
    row = dataclasses.replace(ROW, seeds=1, target=None, options=endless, minutes=0.5)
    found = complete(Seed(row, 0, runs=tmp_path), Children(), tmp_path)
    assert not found.finished
    assert 30 <= found.wall_seconds < 90
    assert found.steps == found.curve[-1].step
