"""The logic of the GPU check, where there is no GPU."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def load(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


gpu_serving, gpu_report, audit = load("gpu_serving"), load("gpu_report"), load("audit")


def test_without_any_provider_nothing_is_started_and_everything_is_not_run(tmp_path):
    rows = gpu_serving.check(tmp_path, "cartpole", available=[])
    assert [(row.provider, row.precision) for row in rows] == list(gpu_serving.CASES)
    assert {row.verdict for row in rows} == {"not run"}
    assert all(row.p50_ms_1 is None and row.error is None for row in rows)


def test_a_server_that_does_not_start_fails_its_case(tmp_path):
    rows = gpu_serving.check(tmp_path, "cartpole", available=["CPUExecutionProvider"])
    assert [row.verdict for row in rows] == ["failed"] * 2 + ["not run"] * 5
    assert "did not start" in rows[0].why


@pytest.mark.parametrize(
    ("precision", "error", "agreement", "passes"),
    [
        ("float32", 1e-4, 1.0, True),
        ("float32", 1e-2, 1.0, False),
        ("fp16", 1e-2, 1.0, True),
        ("fp16", 0.1, 1.0, False),
        ("int8", 1.0, 0.97, True),
        ("int8", 1.0, 0.9, False),
    ],
)
def test_a_case_is_judged_by_its_precision(precision, error, agreement, passes):
    assert (gpu_serving.judge(precision, error, agreement) == "") is passes


def test_outputs_are_compared_relative_to_the_largest_and_actions_by_equality():
    reference = {"action": np.array([[0], [1]]), "logits": np.array([[10.0, 0.0], [0.5, 0.0]])}
    other = {"action": np.array([[0], [0]]), "logits": np.array([[9.0, 0.0], [0.5, 0.2]])}
    error, agreement = gpu_serving._apart(reference, other)
    assert (error, agreement) == (pytest.approx(0.2), 0.5)


def test_one_provider_that_did_not_run_keeps_the_whole_from_passing():
    rows = [{"verdict": "passed"}, {"verdict": "not run"}]
    assert gpu_report.serving_part(rows, "")[1] == "not run"
    assert gpu_report.serving_part([*rows, {"verdict": "failed"}], "")[1] == "failed"
    assert gpu_report.serving_part(rows[:1], "")[1] == "passed"


def test_a_training_on_the_cpu_never_passes():
    report = {"gpu_checked": False, "rows": [], "failed": {}}
    assert gpu_report.training_part(report)[1] == "not run on a GPU"
    assert gpu_report.training_part(report | {"gpu_checked": True})[1] == "passed"
    assert gpu_report.training_part(report | {"gpu_checked": True, "failed": {"O1": "exit 1"}})[1] == "failed"


def test_the_report_passes_only_where_every_part_did():
    good = ("Machine", "passed", "text")
    assert gpu_report.assemble([good])[1] == 0
    text, code = gpu_report.assemble([good, ("Serving", "not run", "")])
    assert code == 1
    assert "| Serving | not run |" in text


@pytest.mark.parametrize(
    ("code", "out", "err", "expected"),
    [
        (0, "No known vulnerabilities found", "", 0),
        (1, "flask 1.0 PYSEC-1", "Found 1 known vulnerability", 1),
        (1, "", "connection refused", 2),
        (0, "x Dependency not found and could not be audited: x", "", 2),
    ],
)
def test_an_audit_that_reached_nobody_is_no_clean_one(code, out, err, expected, capsys):
    assert audit.outcome(code, out, err) == expected
    assert ("not run" in capsys.readouterr().err) is (expected == 2)
