import json
import shutil

import pytest

import bundles
from paddleport import cli, verify_command
from paddleport.errors import ArtifactError


def verified(*arguments):
    return verify_command.run(verify_command.parse([str(each) for each in arguments]))


def test_a_whole_bundle_is_verified_with_its_figures(bundle):
    (found,) = verified(bundle).bundles
    assert (found.name, found.version, found.files, found.golden) == ("cartpole", 1, 4, 64)
    assert set(found.worst) == set(found.tolerance) == {"float32", "int8"}
    assert all(found.worst[name] <= found.tolerance[name] for name in found.worst)
    assert found.not_checked == ()


def test_all_versions_of_a_policy_are_verified(bundle):
    bundles.publish_discrete(bundle.parent.parent)
    assert [each.version for each in verified(bundle.parent, "--all").bundles] == [1, 2]
    assert [each.version for each in verified(bundle.parent).bundles] == [2]


def test_every_version_gets_a_verdict_after_a_damaged_one_too(bundle, capfd):
    for _ in range(2):
        bundles.publish_discrete(bundle.parent.parent)
    (bundle.parent / "2" / "policy.onnx").write_bytes(b"")
    arguments = ["verify", str(bundle.parent), "--all"]
    assert cli.main([*arguments, "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert [each["version"] for each in found["bundles"]] == [1, 3]
    (damaged,) = found["damaged"]
    assert damaged["bundle"] == str(bundle.parent / "2")
    assert "policy.onnx is damaged" in damaged["error"]
    assert cli.main(arguments) == 1
    said = capfd.readouterr().out
    assert said.count("files and the manifest are whole") == 2
    assert "policy.onnx is damaged" in said
    assert "1 of 3 versions do not hold" in said


def test_another_policy_under_the_same_seal_is_refused(bundle, put_file):
    other = bundles.publish_discrete(bundle.parents[2] / "other", flip=True)
    put_file(bundle, "policy.onnx", (other / "policy.onnx").read_bytes())
    with pytest.raises(ArtifactError, match="does not act as it was exported"):
        verified(bundle)


def test_the_command_prints_a_table_and_json_and_fails_in_words(bundle, capfd):
    assert cli.main(["verify", str(bundle)]) == 0
    assert "4 files and the manifest are whole" in capfd.readouterr().out
    assert cli.main(["verify", str(bundle), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["bundles"][0]["golden"] == 64
    (bundle / "policy.onnx").write_bytes(b"")
    assert cli.main(["verify", str(bundle)]) == 1
    said = capfd.readouterr()
    assert "policy.onnx is damaged" in said.err
    assert said.out == ""


def test_a_folder_without_versions_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="has no versions"):
        verified(tmp_path, "--all")
    shutil.rmtree(tmp_path)
    with pytest.raises(ArtifactError, match="is no bundle"):
        verified(tmp_path)
