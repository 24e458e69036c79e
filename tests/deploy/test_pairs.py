"""The version pairs stand in paddleport/pairs.py; Dockerfile, extras and doctor go by them."""

import re
import tomllib
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from paddleport import doctor_command
from paddleport.doctor_command import Options
from paddleport.errors import UsageError
from paddleport.pairs import CUDA_OF_TRAINING, EXTRAS, NEEDED, PAIRS

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements_of(extras):
    """Package → specifier, with what the extras name of each other."""
    found = {}
    for extra in extras:
        for text in PROJECT["optional-dependencies"][extra]:
            requirement = Requirement(text)
            if requirement.name == "paddleport":
                found |= requirements_of(sorted(requirement.extras))
            else:
                found.setdefault(requirement.name, requirement.specifier)
    return found


@pytest.mark.parametrize("target", EXTRAS)
def test_the_extras_of_a_target_ask_for_the_versions_of_its_pairs(target):
    asked = requirements_of(EXTRAS[target])
    for pair in PAIRS:
        if target not in pair.targets:
            continue
        for package, specifier in pair.versions.items():
            assert str(asked[package]) == str(Requirement(f"x{specifier}").specifier), (target, package)


@pytest.mark.parametrize("target", EXTRAS)
def test_the_dockerfile_installs_the_extras_of_a_target_and_judges_it(target):
    stage = re.search(rf"FROM \S+ AS build-{target}\n(.*?)(?=\nFROM )", DOCKERFILE, re.DOTALL).group(1)
    installed = re.search(r'"\.\[(.*)\]"', stage).group(1)
    assert tuple(installed.split(",")) == EXTRAS[target]
    last = re.search(rf"FROM \S+ AS {target}\n(.*?)(?=\nFROM |\Z)", DOCKERFILE, re.DOTALL).group(1)
    assert f'"doctor", "--target", "{target}"' in last
    assert "USER 10001" in last
    assert f"--from=build-{target} " in last


def test_the_dockerfile_names_no_version_of_a_package_but_the_cuda_of_the_pairs():
    assert set(re.findall(r"cu\d+", DOCKERFILE)) == {CUDA_OF_TRAINING}
    packages = {package for pair in PAIRS for package in pair.versions}
    for package in packages:
        assert not re.search(rf"{re.escape(package)}\S*[=<>]=", DOCKERFILE), package


def test_every_target_is_known_to_doctor_and_every_package_is_asked():
    kinds = get_args(get_args(get_type_hints(Options)["target"])[0])
    assert set(kinds) == set(EXTRAS) == set(NEEDED)
    assert {package for pair in PAIRS for package in pair.versions} <= set(doctor_command._PACKAGES)
    assert {package for packages in NEEDED.values() for package in packages} <= set(doctor_command._PACKAGES)


def test_what_the_gpu_extras_hold_beside_their_libraries_is_what_the_cpu_extras_hold():
    gpu, cpu = requirements_of(["train-gpu"]), requirements_of(EXTRAS["train-cpu"])
    assert gpu.pop("paddlepaddle-gpu") == cpu.pop("paddlepaddle")
    assert gpu == cpu
    gpu, cpu = requirements_of(["serve-gpu"]), requirements_of(["serve"])
    del gpu["onnxruntime-gpu"], gpu["tensorrt-cu13"], cpu["onnxruntime"]
    assert gpu == cpu


@pytest.fixture
def installed(monkeypatch):
    def pretend(**versions):
        known = {name.replace("_", "-"): number for name, number in versions.items()}
        monkeypatch.setattr(doctor_command, "_version", known.get)

    monkeypatch.setattr(doctor_command, "_ask", lambda *_: ([], doctor_command.Check("import", "ok", "")))
    return pretend


def test_doctor_accepts_a_target_whose_pairs_hold(installed):
    installed(onnxruntime_gpu="1.28.0", tensorrt_cu13="10.14.1")
    doctor_command.run(Options(target="serve-gpu"))


@pytest.mark.parametrize(
    ("target", "versions", "message"),
    [
        ("serve-gpu", {"onnxruntime_gpu": "1.28.0", "tensorrt_cu13": "11.0"}, "TensorRT for CUDA 13: wrong"),
        ("serve-gpu", {"onnxruntime_gpu": "1.28.0"}, "tensorrt-cu13 is not installed"),
        ("serve-cpu", {}, "onnxruntime is not installed"),
        ("serve-cpu", {"onnxruntime": "1.32.0", "onnxruntime_gpu": "1.32.0"}, "one ONNX Runtime only: wrong"),
    ],
)
def test_doctor_refuses_a_target_that_is_none(installed, target, versions, message):
    installed(**versions)
    with pytest.raises(UsageError, match=re.escape(message)):
        doctor_command.run(Options(target=target))


def test_every_dependency_and_what_it_brings_is_in_the_constraints():
    """Nothing comes in by itself: what the dev extra resolves to, with all that it needs, has a version of ours."""
    from importlib.metadata import PackageNotFoundError, distribution

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    open_ones = [Requirement(text) for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]]
    seen, missing = set(), set()
    while open_ones:
        requirement = open_ones.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        if key[0] == "paddleport":
            for extra in requirement.extras:
                open_ones += [Requirement(text) for text in PROJECT["optional-dependencies"][extra]]
            continue
        if key[0] not in pinned:
            missing.add(key[0])
        try:
            needs = distribution(requirement.name).requires or []
        except PackageNotFoundError:
            continue
        for text in needs:
            need = Requirement(text)
            markers = [{"extra": extra} for extra in ("", *requirement.extras)]
            if need.marker is None or any(need.marker.evaluate(marker) for marker in markers):
                open_ones.append(need)
    # pip comes with Python's own venv.
    assert missing <= {"pip"}
