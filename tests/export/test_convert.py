"""The converter's child process may abort, exit or hang: there is a message, and nothing is left behind."""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest

import runs
from export.convert import converting
from paddleport.errors import GateError

_BROKEN_MODEL = """
import sys
from pathlib import Path
from export import paddle_child
folder = Path(sys.argv[1])
(folder / "model.json").write_text("broken")
(folder / "model.pdiparams").write_bytes(b"")
paddle_child.to_onnx(folder, 13)
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return runs.untrained_run(tmp_path_factory.mktemp("runs") / "run", hidden_sizes=(4,))


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert list(tmp_path.iterdir()) == []


def failure(checkpoint: Path, **options) -> str:
    with pytest.raises(GateError) as caught, converting(checkpoint, **options) as conversion:
        conversion.result()
    assert "nothing was published" in str(caught.value)
    return str(caught.value)


def test_an_abort_of_paddle2onnx_becomes_a_message(checkpoint):
    said = failure(checkpoint, opset=25)  # paddle2onnx aborts the process from opset 22 on
    assert "SIGABRT" in said
    assert "Opset Version must be between" in said


def test_a_model_that_it_cannot_read_becomes_a_message(checkpoint):
    said = failure(checkpoint, command=[sys.executable, "-c", _BROKEN_MODEL])
    assert "exit code" in said
    assert "parse error" in said


def test_a_hang_is_ended(checkpoint):
    script = "import os, sys, time; print(os.getpid(), file=sys.stderr, flush=True); time.sleep(600)"
    began = time.monotonic()
    said = failure(checkpoint, command=[sys.executable, "-c", script], limit_s=0.5)
    assert time.monotonic() - began < 10
    assert "nothing after 2.5 s" in said
    assert "--conversion-limit" in said


def test_a_child_that_computes_without_end_is_ended(checkpoint):
    said = failure(checkpoint, command=[sys.executable, "-c", "while True: pass"], limit_s=1.0)
    assert "nothing after 1 s of processor time" in said
    assert "--conversion-limit" in said


def test_what_a_killed_export_left_behind_is_removed_and_a_living_ones_is_not(checkpoint, tmp_path):
    abandoned, living = tmp_path / "paddleport-export-abandoned", tmp_path / "paddleport-export-living"
    for folder in (abandoned, living):
        folder.mkdir()
        (folder / "model.onnx").write_bytes(b"half")
    os.utime(abandoned, (0, 0))
    with converting(checkpoint, command=[sys.executable, "-c", ""]):
        assert not abandoned.exists()
    assert living.exists()
    shutil.rmtree(living)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("raise SystemExit('the layer is unknown')", "exit code 1; it said: the layer is unknown"),
        ("raise SystemExit(0)", "an exit without an error, and no model"),
        ("import os; os.abort()", "an abort by SIGABRT"),
        ("import sys; open(sys.argv[1] + '/model.onnx', 'wb').write(b'half')", "and no model"),
        ("import sys; open(sys.argv[1] + '/names.json', 'w').write('{')", "and no model"),
    ],
)
def test_every_other_end_becomes_a_message(checkpoint, script, expected):
    assert expected in failure(checkpoint, command=[sys.executable, "-c", script])


def test_the_child_ends_with_the_block(checkpoint):
    script = "import time; time.sleep(600)"
    with pytest.raises(KeyboardInterrupt), converting(checkpoint, command=[sys.executable, "-c", script]) as conversion:
        pid = conversion._process.pid
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_converts_while_the_caller_works(checkpoint):
    with converting(checkpoint) as conversion:
        converted = conversion.result()
    assert "policy_trunk.layers.0.weight" in converted.names.values()
    assert len(converted.model) > 500
