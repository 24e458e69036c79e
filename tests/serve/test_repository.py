"""Which versions serve, and what becomes of the others."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import bundles
from paddleport.errors import ArtifactError
from serve.runtime.errors import NotReadyError, UnknownPolicyError
from serve.runtime.local import open_repository
from serve.runtime.table import KEPT_VERSIONS, states
from serve.settings import Settings

OBS = np.array([[0.1, -0.2, 0.05, 0.3]], dtype=np.float32)
FILES = ["manifest.json", "policy.onnx", "policy.int8.onnx", "golden.npz", "README.md"]


def opened(models: Path, precision: str = "float32"):
    return open_repository(Settings(models=models, precision=precision))[0]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.fixture
def two_versions(models, tmp_path) -> Path:
    return Path(shutil.copytree(models, tmp_path / "models"))


@pytest.mark.parametrize("harm", [flip, cut, empty, Path.unlink, replace_by_folder])
@pytest.mark.parametrize("name", FILES)
def test_damaged_newest_version_is_refused_and_the_older_one_serves(two_versions, name, harm):
    harm(two_versions / "cartpole" / "2" / name)
    repository = opened(two_versions)
    assert repository.get("cartpole").manifest.version == 1
    assert repository.get("cartpole").act_checked({"obs": OBS}) == [bundles.discrete_action(OBS[0], flip=True)]
    refused = [state for state in states(repository.table) if not state.ready]
    assert [(state.name, state.version) for state in refused] == [("cartpole", 2)]
    assert str(two_versions / "cartpole" / "2") in refused[0].reason
    with pytest.raises(NotReadyError, match="version 2 is not ready"):
        repository.get("cartpole", 2)


def test_policy_without_a_good_version_is_not_ready_and_the_others_serve(two_versions):
    for version in ("1", "2"):
        flip(two_versions / "cartpole" / version / "policy.onnx")
    repository = opened(two_versions)
    with pytest.raises(NotReadyError, match="damaged"):
        repository.get("cartpole")
    assert [policy.manifest.name for policy in repository.acting()] == ["reacher"]


def test_stranger_file_in_a_bundle_is_refused(two_versions):
    (two_versions / "cartpole" / "2" / "notes.txt").write_text("hello")
    assert opened(two_versions).get("cartpole").manifest.version == 1


def test_nothing_good_is_an_error_with_every_reason(models, tmp_path):
    shutil.copytree(models / "cartpole", tmp_path / "models" / "cartpole")
    for version in ("1", "2"):
        flip(tmp_path / "models" / "cartpole" / version / "policy.onnx")
    with pytest.raises(ArtifactError, match=r"cartpole version 1: .*damaged.*cartpole version 2: .*damaged"):
        opened(tmp_path / "models")


def test_precision_that_a_policy_lacks_is_refused_with_the_reason(tmp_path):
    bundles.publish_discrete(tmp_path, int8=True)
    bundles.publish_discrete(tmp_path, int8=False)
    bundles.publish_box(tmp_path, int8=False)
    repository = opened(tmp_path, "int8")
    assert repository.get("cartpole").identity == {"policy": "cartpole", "version": 1, "precision": "int8"}
    with pytest.raises(NotReadyError, match="has no int8 policy"):
        repository.get("reacher")


def test_bundle_under_another_name_is_refused(models, tmp_path):
    shutil.copytree(models / "cartpole" / "2", tmp_path / "models" / "other" / "7")
    with pytest.raises(ArtifactError, match="expected other version 7, got cartpole version 2"):
        opened(tmp_path / "models")


def test_only_the_newest_versions_are_opened(tmp_path):
    for _ in range(KEPT_VERSIONS + 2):
        bundles.publish_discrete(tmp_path)
    flip(tmp_path / "cartpole" / "6" / "policy.onnx")
    repository = opened(tmp_path)
    assert repository.ready_versions("cartpole") == [2, 3, 4, 5, 7]
    with pytest.raises(UnknownPolicyError, match="expected one of 2, 3, 4, 5, 7"):
        repository.get("cartpole", 1)


def test_stray_files_and_hidden_folders_are_passed_over(two_versions):
    (two_versions / "README.txt").write_text("hello")
    (two_versions / ".cartpole.tmp").mkdir()
    (two_versions / "empty").mkdir()
    (two_versions / "cartpole" / "drafts").mkdir()
    (two_versions / "cartpole" / ".3.abc").mkdir()
    repository = opened(two_versions)
    assert {state.name for state in states(repository.table)} == {"cartpole", "reacher"}
    assert repository.get("cartpole").manifest.version == 2


@pytest.mark.parametrize(("make", "message"), [(None, "no such folder"), ("folder", "nothing to serve")])
def test_missing_or_empty_folder_is_an_error(tmp_path, make, message):
    if make:
        (tmp_path / "models").mkdir()
    with pytest.raises(ArtifactError, match=message):
        opened(tmp_path / "models")


def test_policy_folder_in_place_of_the_models_folder_is_explained(models):
    with pytest.raises(ArtifactError, match=f"--models {models}"):
        opened(models / "cartpole")
