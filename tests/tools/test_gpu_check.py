import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from train.runtime import load_paddle

SCRIPT = Path(__file__).parents[2] / "tools/gpu_check.py"
ALL = ("float32", "O1 float16", "O2 float16", "O2 bfloat16", "float32, recompute", "float32, compiled")


def gpu_check(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(load_paddle().is_compiled_with_cuda(), reason="says what a CPU build says")
def test_without_a_gpu_it_says_that_nothing_was_checked():
    done = gpu_check("--json")
    assert done.returncode == 1
    assert done.stderr == "gpu-check: this Paddle is built for the CPU only, so nothing was checked.\n"
    assert done.stdout == ""


def check_on_the_cpu(settings):
    only = ["--problem", "PPO, CartPole, MLP 256×256"]
    only += [word for setting in settings for word in ("--only", setting)]
    done = gpu_check("--device", "cpu", "--steps", "300", "--json", *only)
    assert done.returncode == 0, done.stderr
    assert "no GPU check" in done.stderr
    assert "This ran on the CPU: it checks the script and no GPU." in done.stderr
    report = json.loads(done.stdout)
    assert report["gpu_checked"] is False
    assert report["failed"] == {}
    assert [row["setting"] for row in report["rows"]] == list(settings)
    for row in report["rows"]:
        assert (row["device"], row["peak_mib"], row["parity"], row["skipped"]) == ("cpu", None, 0.0, 0)
        assert row["mean_return"] > 0
        assert row["steps_per_second"] > 0
    return report["rows"]


def test_on_the_cpu_it_runs_and_says_that_it_is_no_gpu_check():
    check_on_the_cpu(["O1 float16"])


@pytest.mark.slow
def test_on_the_cpu_every_setting_runs_and_comes_to_the_same():
    returns = [row["mean_return"] for row in check_on_the_cpu(ALL)]
    assert returns == [pytest.approx(returns[0])] * len(ALL)


def test_a_training_that_fails_is_named_and_fails_the_check(monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_check", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PROBLEMS", (module.Problem("unknown to the child", (), 1),))
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--device", "cpu", "--only", "float32"])
    assert module.main() == 1
    assert "failed: unknown to the child: float32: exit 1: StopIteration" in capsys.readouterr().out
