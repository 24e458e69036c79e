"""The target paddle-lite: an inference model that Paddle loads and that gives the golden vectors."""

from pathlib import Path

import pytest

import runs
from export import command as export_command
from export.edge import command
from export.edge.paddle_lite import run_written
from paddleport import Bundle
from paddleport.bundle import row_error
from paddleport.errors import ArtifactError, UsageError


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path]:
    """A run, and the bundle exported from it."""
    folder = tmp_path_factory.mktemp("lite")
    runs.untrained_run(folder / "run", hidden_sizes=(16,))
    runs.untrained_run(folder / "other", hidden_sizes=(16,), seed=1)
    arguments = [str(folder / "run"), "--name", "cart", "--models", str(folder / "models"), "--episodes", "2"]
    return folder / "run", Path(export_command.run(export_command.parse(arguments)).bundle)


def written(bundle: Path, out: Path, *options: str) -> Path:
    command.run(command.parse([str(bundle), "--target", "paddle-lite", "--out", str(out), *options]))
    return out


def test_paddle_loads_it_and_it_acts_as_the_bundle(made, tmp_path):
    run, path = made
    out = written(path, tmp_path / "lite", "--run-dir", str(run))
    bundle = Bundle.open(path)
    golden = bundle.golden()
    answers = run_written(out / "model", golden)
    for output, got in zip(bundle.manifest.outputs, answers, strict=True):
        expected = golden[f"float32.{output.name}"]
        assert row_error(got, expected) <= 1e-5
    said = (out / "README.md").read_text()
    assert "paddle_lite_opt --model_file=model.json" in said
    assert "@" not in said


def test_another_run_or_none_is_refused(made, tmp_path):
    run, path = made
    with pytest.raises(UsageError, match="expected --run-dir, the run untrained"):
        written(path, tmp_path / "lite")
    with pytest.raises(ArtifactError, match="not the one that the bundle was exported from"):
        written(path, tmp_path / "lite", "--run-dir", str(run.parent / "other"))
    assert not (tmp_path / "lite").exists()
