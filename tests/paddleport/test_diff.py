import json

import pytest

import bundles
from paddleport import cli, diff_command
from paddleport.errors import ArtifactError


def difference(before, after):
    return diff_command.run(diff_command.parse([str(before), str(after)]))


def test_a_bundle_differs_in_nothing_from_itself(published):
    found = difference(published, published)
    assert found.changes == []
    assert {(each.precision, each.actions) for each in found.agreement} == {("float32", 1.0), ("int8", 1.0)}
    assert set(found.agreement[0].worst_output.values()) == {0.0}


def test_a_policy_that_acts_the_other_way_agrees_where_neither_leans(bundle):
    other = bundles.publish_discrete(bundle.parent.parent, flip=True)
    found = difference(bundle, other)
    changed = {change.what: (change.before, change.after) for change in found.changes}
    assert changed["version"] == ("1", "2")
    assert "precisions.float32.sha256" in changed
    exact = next(each for each in found.agreement if each.precision == "float32")
    assert exact.observations == 128
    assert exact.actions < 0.1  # only an observation of zeros gets the same action of both
    assert exact.worst_output["logits"] > 0.1
    assert exact.worst_output["value"] == 0.0


def test_a_precision_that_was_left_out_is_a_change(bundle):
    other = bundles.publish_discrete(bundle.parent.parent, int8=False)
    found = difference(bundle, other)
    assert {change.what: change.after for change in found.changes}["precisions.int8.bytes"] is None
    assert [each.precision for each in found.agreement] == ["float32"]


def test_policies_of_other_spaces_are_told_apart_without_asking_them(published, published_box):
    found = difference(published, published_box)
    assert found.not_compared
    assert found.agreement == []
    assert "action.type" in {change.what for change in found.changes}


def test_box_actions_are_compared_over_their_range(published_box):
    assert difference(published_box, published_box).agreement[0].actions == 1.0


def test_the_command_prints_tables_and_json(bundle, capfd):
    other = bundles.publish_discrete(bundle.parent.parent, flip=True)
    assert cli.main(["diff", str(bundle), str(other)]) == 0
    said = capfd.readouterr().out
    assert "version" in said
    assert "actions agree" in said
    assert cli.main(["diff", str(bundle), str(other), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["agreement"][0]["observations"] == 128


def test_a_damaged_bundle_is_refused(bundle, published):
    (bundle / "policy.onnx").write_bytes(b"")
    with pytest.raises(ArtifactError, match="damaged"):
        difference(published, bundle)


def test_bounds_are_written_as_people_write_them(published, published_box):
    changed = {change.what: (change.before, change.after) for change in difference(published, published_box).changes}
    assert changed["action.low"] == (None, "[-2, 0]")
    found = diff_command._flat({"low": (-4.800000190734863, None), "high": None}, "observation")
    assert found == {"observation.low": "[-4.8, -∞]", "observation.high": "∞"}


def test_names_are_whole_on_a_narrow_terminal(bundle, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    other = bundles.publish_discrete(bundle.parent.parent, flip=True)
    assert cli.main(["diff", str(bundle), str(other)]) == 0
    said = capfd.readouterr().out
    assert "precisions.float32.sha256 " in said
    assert "…" not in said
