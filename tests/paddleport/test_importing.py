import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(sys.executable).with_name("paddleport")
_TRAP = "raise SystemExit('a module of the user was imported')\n"


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory):
    """A user's project, whose modules have the names of ours and of what we need."""
    folder = tmp_path_factory.mktemp("own")
    for name in ("train.py", "export/__init__.py", "serve/__init__.py", "serve/app.py", "quantize.py", "evaluate.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(_TRAP)
    for name in ("numpy", "msgspec", "tyro", "rich", "onnxruntime", "onnx", "paddle", "gymnasium", "packaging"):
        (folder / f"{name}.py").write_text(_TRAP)
    (folder / "mine.py").write_text("NAME = 'mine'\n")
    return folder


@pytest.fixture(params=[None, ".", "{folder}"], ids=["without PYTHONPATH", "PYTHONPATH=.", "PYTHONPATH=folder"])
def environment(request, own_folder):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if request.param:
        environment["PYTHONPATH"] = request.param.format(folder=own_folder)
    return environment


def _output(folder, environment, *command):
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_inspect_works_in_a_folder_of_namesakes(own_folder, environment, published):
    command = (_SCRIPT, "inspect", str(published), "--json")
    assert json.loads(_output(own_folder, environment, *command))["name"] == "cartpole"


def test_the_module_works_in_a_folder_of_namesakes(own_folder, environment, published):
    command = (sys.executable, "-m", "paddleport", "inspect", str(published), "--json")
    assert json.loads(_output(own_folder, environment, *command))["name"] == "cartpole"


@pytest.mark.parametrize("path", ["", "."])
def test_doctor_works_in_a_folder_of_namesakes(own_folder, path):
    command = (sys.executable, "-m", "paddleport", "doctor", "--json")
    diagnosis = json.loads(_output(own_folder, {**os.environ, "PYTHONPATH": path}, *command))
    assert {check["verdict"] for check in diagnosis["checks"]} <= {"ok", "absent"}
    assert "CPUExecutionProvider" in diagnosis["providers"]


@pytest.mark.parametrize("name", ["train", "evaluate", "serve", "quantize", "export"])
def test_every_stage_is_ours_in_a_folder_of_namesakes(own_folder, name):
    assert f"usage: paddleport {name}" in _output(own_folder, None, sys.executable, "-m", "paddleport", name, "--help")


def test_a_child_process_finds_what_its_parent_does(own_folder):
    code = """
import subprocess
from paddleport.importing import child_command, child_environment, put_current_folder_last
put_current_folder_last()
subprocess.run(child_command("paddleport", "inspect", "--help"), env=child_environment(), check=True)
"""
    assert "usage: paddleport inspect" in _output(own_folder, None, sys.executable, "-c", code)


def test_the_user_s_own_modules_are_still_found(own_folder, environment):
    code = """
import sys
from paddleport.importing import put_current_folder_last
put_current_folder_last()
put_current_folder_last()
import mine, train
print(mine.NAME, train.__file__, sys.path.count(sys.path[-1]))
"""
    name, file, count = _output(own_folder, environment, sys.executable, "-c", code).split()
    assert (name, count) == ("mine", "1")
    assert own_folder not in Path(file).parents


def test_importing_the_contract_brings_no_stage_and_no_engine():
    code = """
import sys
import paddleport, paddleport.bundle, paddleport.checkpoint, paddleport.cli, paddleport.policy
print(*{name.partition(".")[0] for name in sys.modules})
"""
    loaded = set(_output(None, None, sys.executable, "-c", code).split())
    heavy = {"paddle", "paddleslim", "paddle2onnx", "gymnasium", "gym", "flask", "uvloop", "onnx", "onnxruntime"}
    assert not loaded & (heavy | {"train", "quantize", "export", "serve", "safetensors"})


def test_importing_the_package_alone_is_cheap():
    code = "import paddleport, sys; print(*sys.modules)"
    loaded = set(_output(None, None, sys.executable, "-c", code).split())
    assert not loaded & {"numpy", "msgspec", "tyro", "rich", "urllib3"}


def test_a_name_that_the_package_does_not_have_is_an_attribute_error():
    import paddleport

    with pytest.raises(AttributeError, match="no attribute 'Polciy'"):
        paddleport.Polciy  # noqa: B018
    assert all(hasattr(paddleport, name) for name in paddleport.__all__)
