import json
import re

import pytest

from paddleport import cli
from paddleport.manifest import MANIFEST, EnvironmentInfo


@pytest.fixture(autouse=True)
def _wide(own_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def _rows(out):
    return {cells[0]: cells[1:] for line in out.splitlines() if (cells := re.split(r" *│ *", line.strip("│ ").strip()))}


def test_json_is_the_manifest(capfd, published):
    assert cli.main(["inspect", str(published), "--json"]) == 0
    content = json.loads((published / MANIFEST).read_text())
    assert content.pop("digest")
    assert json.loads(capfd.readouterr().out) == content


def test_the_tables_say_what_the_policy_is(capfd, published):
    assert cli.main(["inspect", str(published)]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "cartpole version 1" in out
    rows = _rows(out)
    assert rows["algorithm"] == ["ppo"]
    assert rows["environment"] == ["HandMade-v0"]
    assert rows["observation"] == ["Box of shape [4] and type float32"]
    assert rows["action"] == ["Discrete, an integer from 0 to 1 (argmax)"]
    assert rows["outputs"] == ["action [batch], logits [batch, 2], value [batch]"]
    assert rows["opset, IR"] == ["13, 8"]
    size = str((published / "policy.onnx").stat().st_size)
    assert rows["float32"] == ["policy.onnx", size, "500.0 ± 0.0 (20)", "–"]
    assert rows["int8"][0] == "policy.int8.onnx"


def test_words_of_the_manifest_are_no_markup(capfd, bundle, describe_anew):
    describe_anew(bundle, environment=EnvironmentInfo(id="[red]My[/blue]-v0 :smile:"), algorithm="[ppo]")
    assert cli.main(["inspect", str(bundle)]) == 0
    rows = _rows(capfd.readouterr().out)
    assert rows["environment"] == ["[red]My[/blue]-v0 :smile:"]
    assert rows["algorithm"] == ["[ppo]"]


def test_the_newest_version_of_a_policy_is_shown(capfd, published):
    assert cli.main(["inspect", str(published.parent), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["version"] == 1


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("name", [MANIFEST, "policy.onnx"])
def test_a_damaged_bundle_exits_with_1(capfd, bundle, snapshot, name, as_json):
    data = bytearray((bundle / name).read_bytes())
    data[len(data) // 2] ^= 1
    (bundle / name).write_bytes(data)
    before = snapshot(bundle)
    assert cli.main(["inspect", str(bundle), *["--json"] * as_json]) == 1
    out, err = capfd.readouterr()
    assert re.fullmatch(rf"paddleport: .*{name} is damaged.*\n", err)
    assert (json.loads(out)["error"] in err) if as_json else (out == "")
    assert snapshot(bundle) == before


def test_where_there_is_no_bundle_the_exit_code_is_1(capfd, tmp_path):
    assert cli.main(["inspect", str(tmp_path / "nowhere")]) == 1
    assert "is no bundle: expected" in capfd.readouterr().err
