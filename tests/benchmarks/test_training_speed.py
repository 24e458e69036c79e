"""The comparison of training speeds: what is computed from measurements, and our own side for real; without peers."""

import json
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "peers")]

import meter  # noqa: E402
import speed_report  # noqa: E402
import training_speed  # noqa: E402
from peers.sides import OURS, REFERENCE, SIDES  # noqa: E402
from peers.tasks import TASKS  # noqa: E402


def line(side, repeat, rate, task="ppo-cartpole", goal=None, others=0.0):
    """A measurement of 1000 steps behind a first phase of 256 that took 5 s."""
    return {
        "side": side,
        "task": task,
        "repeat": repeat,
        "steps": 1256,
        "first_learnt": {"steps": 256, "cpu_seconds": 5.0, "wall_seconds": 6.0},
        "last": {"steps": 1256, "cpu_seconds": 5.0 + 1000 / rate, "wall_seconds": 9.0},
        "goal": {"steps": 900, "cpu_seconds": 1.0, "wall_seconds": goal} if goal else None,
        "start_up_cpu_seconds": 2.0,
        "others_share": others,
        "versions": {side: "1.0"},
    }


MEASURED = [
    *(line(OURS, repeat, rate, goal=20.0 + repeat) for repeat, rate in enumerate((4000, 5000, 4500))),
    *(line(REFERENCE, repeat, rate) for repeat, rate in enumerate((1000, 1000, 1500))),
    *(line("sbx-rl", repeat, rate, others=0.4) for repeat, rate in enumerate((2000, 2500, 2250))),
    *(line("cleanrl", repeat, 900) for repeat in range(3)),
]


def test_the_rate_leaves_out_what_comes_before_the_first_update():
    assert speed_report.rate(line("x", 0, 1234.0)) == pytest.approx(1234.0)


def test_ratios_are_taken_repeat_by_repeat():
    spread = speed_report.ratios({0: 4000, 1: 5000, 2: 4500}, {0: 1000, 1: 1000, 2: 1500})
    assert (spread.median, spread.low, spread.high) == (4.0, 3.0, 5.0)
    assert speed_report.ratios({0: 1.0}, {1: 1.0}) is None


def test_rows_hold_the_ratios_to_stable_baselines3_and_to_each_other():
    rows = {row.side: row for row in speed_report.rows_of(MEASURED)}
    assert rows[OURS].times_reference.median == pytest.approx(4.0)
    assert rows[REFERENCE].times_reference.high == pytest.approx(1.0)
    assert rows["sbx-rl"].ours_over_it.median == pytest.approx(2.0)
    assert (rows[OURS].goal_seconds, rows[OURS].goal_reached) == (21.0, 3)
    assert (rows["sbx-rl"].goal_seconds, rows["sbx-rl"].goal_reached) == (None, 0)
    assert rows["cleanrl"].start_up == 7.0


def test_the_fastest_other_peer_is_neither_ours_nor_the_reference():
    rows = speed_report.rows_of(MEASURED)
    assert speed_report.fastest_other(rows, "ppo-cartpole").side == "sbx-rl"
    assert speed_report.fastest_other(rows, "a2c-cartpole") is None


def test_what_misses_its_aim_is_said():
    rows = speed_report.rows_of(MEASURED)
    assert speed_report.shortfalls(rows) == [
        "PPO CartPole-v1, 64×64: 4.00 (3.00…5.00) times stable-baselines3, and the aim is 4.5."
    ]
    slow = [*MEASURED[3:], *(line(OURS, repeat, 2000) for repeat in range(3))]
    assert len(speed_report.shortfalls(speed_report.rows_of(slow))) == 2


def test_a_side_without_the_others_has_no_ratio_and_no_aim():
    rows = speed_report.rows_of([line(OURS, 0, 100)])
    assert rows[0].times_reference is None
    assert speed_report.shortfalls(rows) == []


def test_tables_fit_a_terminal_of_80_columns_with_every_number_whole():
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    for table in speed_report.tables(speed_report.rows_of(MEASURED)):
        console.print(table)
    text = console.export_text()
    assert "PPO CartPole-v1, 64×64" in text
    sbx = next(shown for shown in text.splitlines() if "sbx-rl" in shown)
    assert " ".join(sbx.split()) == "sbx-rl 2,250 (2,000…2,500)! 2.00 (2.00…2.00) never (0/3) 7"
    assert "stable-baselines3" in text


def test_the_document_has_every_row_and_what_falls_short():
    rows = speed_report.rows_of(MEASURED)
    text = speed_report.document(rows, {"Machine": "one"}, {side.name: side.note for side in SIDES})
    assert text.count("| PPO CartPole-v1, 64×64 |") == 4
    assert "- Machine: one" in text
    assert "and the aim is 4.5." in text
    assert all(f"**{side.name}**" in text for side in SIDES)


def test_the_figure_is_the_same_from_the_same_numbers(tmp_path):
    rows = speed_report.rows_of(MEASURED)
    for name in ("one.svg", "two.svg"):
        speed_report.figure(rows, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert b"PPO CartPole" in (tmp_path / "one.svg").read_bytes() or (tmp_path / "one.svg").stat().st_size > 5000


def test_measurements_are_kept_at_once_and_a_line_that_was_cut_is_left_out(tmp_path):
    path = tmp_path / "kept.jsonl"
    training_speed.append(path, MEASURED[0])
    training_speed.append(path, MEASURED[1])
    path.write_bytes(path.read_bytes()[:-20])
    assert training_speed.read(path) == [MEASURED[0]]
    training_speed.append(path, MEASURED[1])
    assert training_speed.read(path) == MEASURED[:2]


def test_a_run_that_was_stopped_measures_only_what_is_missing(tmp_path, monkeypatch, capsys):
    path, asked = tmp_path / "kept.jsonl", []

    def measured(side, task, repeat, steps):
        asked.append((side.name, repeat))
        return {**line(side.name, repeat, 1000, task), "steps": steps}

    monkeypatch.setattr(training_speed, "measure", measured)
    arguments = ["training_speed.py", "--only", "a2c-cartpole", "--repeats", "2", "--measurements", str(path), "--json"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert training_speed.main() == 0
    assert asked == [(OURS, 0), (REFERENCE, 0), (REFERENCE, 1), (OURS, 1)]
    first = json.loads(capsys.readouterr().out)
    path.write_text("\n".join(path.read_text().splitlines()[:3]) + "\n")
    assert training_speed.main() == 0
    assert asked[4:] == [(OURS, 1)]
    assert json.loads(capsys.readouterr().out) == first


def test_a_peer_that_is_not_installed_is_said_and_ends_in_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training_speed, "ROOT", tmp_path)
    peer = next(side for side in SIDES if side.name == "sbx-rl")
    assert training_speed.measure(peer, "ppo-cartpole", 0, 1000) == (
        "its environment is not there: make bench-train makes it"
    )


def test_the_goal_is_a_full_window_of_episodes():
    measured = meter.Meter("x", "ppo-cartpole", 1000, 0, 0)
    measured.start()
    measured.phase(100, learnt=False, returns=[500.0] * (meter.GOAL_EPISODES - 1))
    assert measured.goal is None
    measured.phase(200, learnt=True, returns=[500.0])
    assert measured.goal.steps == 200
    measured.phase(300, learnt=True, returns=[0.0])
    assert (measured.goal.steps, measured.first_learnt.steps, measured.last.steps) == (200, 200, 300)


def test_a_training_without_a_second_learning_phase_is_refused(capsys):
    measured = meter.Meter("x", "ppo-cartpole", 100, 0, 0)
    measured.start()
    measured.phase(100, learnt=True)
    with pytest.raises(SystemExit, match="too few"):
        measured.finish({})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_a_configuration_that_paddleport_takes(name):
    from train import configuration

    task = TASKS[name]
    options = {"algo": task.algo, "env": task.env, "total_steps": task.steps, "run_dir": "x"}
    configuration.check(configuration.of_run({**options, **task.settings}, name))


def test_our_own_side_is_measured_by_its_script():
    ours = next(side for side in SIDES if side.name == OURS)
    measured = training_speed.measure(ours, "ppo-cartpole", 3, 600)
    assert isinstance(measured, dict), measured
    assert (measured["side"], measured["task"], measured["seed"], measured["steps"]) == (OURS, "ppo-cartpole", 3, 600)
    assert measured["first_learnt"]["steps"] <= 256
    assert 600 <= measured["last"]["steps"] < 900
    assert 0 < measured["first_learnt"]["cpu_seconds"] < measured["last"]["cpu_seconds"]
    assert measured["final_return"] > 5
    assert 0 <= measured["others_share"] <= 1
