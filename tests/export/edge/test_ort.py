"""The target ort: a file that ONNX Runtime loads and that acts as the bundle does, and what it asks of a build."""

import pytest

from c_policies import publish_example
from export.edge import command, ort
from paddleport.bundle import row_error
from paddleport.errors import ArtifactError
from paddleport.session import Session


@pytest.fixture(scope="module")
def bundle(examples, tmp_path_factory):
    return publish_example(tmp_path_factory.mktemp("models"), "wide", examples["discrete-from-5"])


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_ort_file_acts_as_the_onnx_file(examples, bundle, tmp_path, precision):
    out = tmp_path / "edge"
    command.run(command.parse([str(bundle.path), "--target", "ort", "--precision", precision, "--out", str(out)]))
    visited = examples["discrete-from-5"].sets.visited
    session = Session((out / "policy.ort").read_bytes())
    got, expected = (each.run(visited, ["logits", "action"]) for each in (session, bundle.session(precision)))
    assert row_error(got[0], expected[0]) <= 1e-5
    assert (got[1] == expected[1]).mean() > 0.999
    operators = (out / "required_operators.config").read_text()
    assert "ArgMax" in operators
    assert ("QGemm" in operators) == (precision == "int8")
    assert str(tmp_path.parent) not in operators
    assert "/" not in operators
    example = (out / "main.cpp").read_text()
    assert "@" not in example
    assert "std::vector<double> data_0 = {" in example  # the space's own type


def test_a_file_that_acts_otherwise_is_not_written(bundle, tmp_path, monkeypatch):
    out, int8 = tmp_path / "edge", ort._converted(bundle.onnx("int8"), tmp_path)
    monkeypatch.setattr(ort, "_converted", lambda model, folder: int8)  # as the converter of ONNX Runtime would
    with pytest.raises(ArtifactError, match="does not act as it was exported"):
        command.run(command.parse([str(bundle.path), "--target", "ort", "--out", str(out)]))
    assert not out.exists()
