"""A user's folder may hold modules with the names of ours; the commands and their children find the right ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import runs

_OURS = ("train.py", "quantize.py", "export/__init__.py", "export/convert.py", "serve/app.py", "onnx.py", "paddle.py")


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in _OURS:
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"raise SystemExit('this is the user's own {name}')\n".replace("user's", "user"))
    runs.untrained_run(tmp_path / "mine" / "run", hidden_sizes=(16,))
    return tmp_path / "mine"


def paddleport(folder: Path, *arguments: str) -> dict:
    done = subprocess.run(
        [Path(sys.executable).with_name("paddleport"), *arguments, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def test_quantize_and_export_work_in_it(folder):
    quantized = paddleport(folder, "quantize", "run", "--episodes", "3", "--calibration-episodes", "3")
    assert (folder / quantized["path"]).is_dir()
    exported = paddleport(folder, "export", "run", "--name", "mine", "--models", "models", "--episodes", "3")
    assert exported["bundle"] == "models/mine/1"
    assert set(exported["precisions"]) == {"float32", "int8", "int8-trt"}
    assert (folder / exported["bundle"] / "manifest.json").is_file()
