import json

import numpy as np

from train.curves import band_of, curve_of, moving_mean
from train.metrics import METRICS, MetricsFile, read_metrics

ROWS = [
    {"step": 10, "episode_return": None, "steps_per_second": 50.0},
    {"step": 20, "episode_return": 3.0, "steps_per_second": 60.0},
    {"step": 30, "episode_return": 5.0, "steps_per_second": 70.0},
    {"step": 30, "evaluation_mean": 8.0, "evaluation_std": 2.0},
    {"step": 40, "evaluation_mean": 9.0, "evaluation_std": 0.0},
]


def evaluated(*points):
    return curve_of({"step": step, "evaluation_mean": mean, "evaluation_std": 0.0} for step, mean in points)


def test_a_curve_is_what_the_rows_say():
    curve = curve_of(ROWS)
    assert curve.steps.tolist() == [20, 30]
    assert curve.returns.tolist() == [3.0, 5.0]
    assert curve.evaluated_at.tolist() == [30, 40]
    assert curve.means.tolist() == [8.0, 9.0]
    assert curve.stds.tolist() == [2.0, 0.0]
    assert curve.steps_per_second == 70.0


def test_a_curve_of_nothing_is_empty():
    curve = curve_of([])
    assert [len(array) for array in (curve.steps, curve.returns, curve.evaluated_at, curve.means, curve.stds)] == [
        0
    ] * 5
    assert curve.steps_per_second is None


def test_a_moving_mean_begins_with_what_there_is():
    assert moving_mean(np.array([2.0, 4.0, 9.0, 2.0]), 3).tolist() == [2.0, 3.0, 5.0, 5.0]
    assert moving_mean(np.array([2.0, 4.0]), 1).tolist() == [2.0, 4.0]
    assert moving_mean(np.array([]), 5).tolist() == []


def test_a_band_is_interpolated_where_every_seed_was_evaluated():
    first = evaluated((0, 0.0), (10, 10.0), (20, 30.0))
    second = evaluated((5, 1.0), (15, 3.0))
    band = band_of([first, second])
    assert band.steps.tolist() == [5, 10, 15]
    assert band.low.tolist() == [1.0, 2.0, 3.0]
    assert band.high.tolist() == [5.0, 10.0, 20.0]
    assert band.mean.tolist() == [3.0, 6.0, 11.5]


def test_one_seed_is_its_own_band():
    band = band_of([evaluated((5, 1.0), (15, 3.0))])
    assert band.steps.tolist() == [5, 15]
    assert band.low.tolist() == band.mean.tolist() == band.high.tolist() == [1.0, 3.0]


def test_seeds_without_steps_in_common_have_no_band():
    assert len(band_of([evaluated((5, 1.0)), evaluated((6, 1.0))]).steps) == 0


def test_metrics_are_read_up_to_a_line_that_a_kill_cut_short(tmp_path):
    lines = [*(json.dumps(row) for row in ROWS[:3]), "[]", '{"step": "x"}', "{", '{"step": 50, "episode_ret']
    (tmp_path / METRICS).write_text("\n".join(lines))
    assert read_metrics(tmp_path) == ROWS[:3]
    MetricsFile(tmp_path / METRICS, keep_until=20).close()
    assert read_metrics(tmp_path) == ROWS[:2]
    assert read_metrics(tmp_path / "none") == []
