"""Starting: what is refused and how, how long it takes, what is loaded, and from where."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from serve import address
from serve.address import AddressError

FORBIDDEN = ("paddle", "paddleslim", "paddle2onnx", "gymnasium", "gym", "onnx", "train", "quantize", "export")


def test_port_in_use_is_one_message_and_exit_1(models, run_serve):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = run_serve("--models", str(models), "--port", port)
    assert code == 1
    assert said.count("\n") == 1
    assert f"Port {port} of 127.0.0.1 is in use" in said
    assert "--port" in said


def test_port_of_another_server_of_ours_is_in_use_too(server, models, run_serve):
    code, said = run_serve("--models", str(models), "--port", str(server.address[1]))
    assert (code, said.count("\n")) == (1, 1)
    assert "is in use" in said


def test_of_two_servers_started_at_once_on_one_port_one_serves(models, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "paddleport", "serve", "--models", str(models), "--port", port],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        said = {process.stderr.readline(): process for process in both}
        lines = sorted(said)
        assert f"Port {port} of 127.0.0.1 is in use" in lines[0]
        assert said[lines[0]].wait(timeout=20) == 1
        assert "serving" in lines[1]
    finally:
        for process in both:
            process.terminate()
            process.wait(timeout=20)
            process.stderr.close()


def test_port_is_nobody_elses_from_the_first_moment():
    with address.listening(address.resolve("127.0.0.1", 0, insecure=False)) as (place, _):
        for _ in range(2):
            with pytest.raises(AddressError, match="is in use"), address.listening(place):
                pass
    with address.listening(place):
        pass


@pytest.mark.parametrize(("make", "word"), [(False, "no such folder"), (True, "nothing to serve")])
def test_missing_or_empty_models_folder_is_exit_1(tmp_path, run_serve, make, word):
    if make:
        (tmp_path / "models").mkdir()
    code, said = run_serve("--models", str(tmp_path / "models"), "--port", "0")
    assert (code, said.count("\n")) == (1, 1)
    assert word in said
    assert sorted(tmp_path.iterdir()) == ([tmp_path / "models"] if make else [])


def test_only_damaged_policies_is_exit_1_with_the_reason(models, tmp_path, run_serve):
    shutil.copytree(models / "reacher", tmp_path / "models" / "reacher")
    (tmp_path / "models" / "reacher" / "1" / "golden.npz").unlink()
    code, said = run_serve("--models", str(tmp_path / "models"), "--port", "0")
    assert (code, said.count("\n")) == (1, 1)
    assert "golden.npz" in said


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (["--host", "0.0.0.0"], 2, "--insecure"),  # noqa: S104
        (["--host", "no.such.host.invalid"], 2, "cannot be resolved"),
        (["--port", "70000"], 2, "0 to 65535"),
        (["--workers", "0"], 2, "--workers"),
        (["--threads", "-1"], 2, "threads"),
        (["--precision", "int4"], 2, "int4"),
        (["--host", "192.0.2.1", "--insecure", "--port", "0"], 1, "no address of this machine"),
    ],
)
def test_options_that_cannot_be_meant(models, run_serve, options, code, word):
    answered, said = run_serve("--models", str(models), *options)
    assert answered == code
    assert word in said


def test_ready_line_names_what_serves_and_where(server):
    assert [line.strip() for line in server.lines] == [
        "paddleport: serving cartpole (version 2, float32, CPUExecutionProvider), "
        f"reacher (version 1, float32, CPUExecutionProvider) at {server.url}"
    ]


def test_ready_within_three_seconds_of_the_processors_time(start_server, models):
    # Of the processor's time, not the clock's: what else runs on the machine does not count.
    server = psutil.Process(start_server(models).process.pid)
    spent = [process.cpu_times() for process in (server, *server.children(recursive=True))]
    assert sum(times.user + times.system for times in spent) < 3.0


def test_damaged_newest_version_is_said_and_the_older_serves(start_server, models, tmp_path):
    copied = Path(shutil.copytree(models, tmp_path / "models"))
    newest = copied / "cartpole" / "2" / "policy.onnx"
    newest.write_bytes(newest.read_bytes()[:-1])
    server = start_server(copied)
    assert "cartpole version 2 is refused" in server.lines[0]
    assert "cartpole (version 1" in server.lines[1]
    assert server.act("cartpole", {"observation": [0, 0, 1, 0]}) == (
        200,
        {"action": 0, "policy": "cartpole", "version": 1, "precision": "float32"},
    )
    index = server.request("POST", "/v2/repository/index")[2]
    entry = next(entry for entry in index if (entry["name"], entry["version"]) == ("cartpole", "2"))
    assert entry["state"] == "UNAVAILABLE"
    assert "damaged" in entry["reason"]
    assert server.act("cartpole", {"observation": [0, 0, 1, 0]}, version=2)[0] == 503
    assert server.request("GET", "/v2/models/cartpole/versions/2/ready")[0] == 503
    assert server.request("GET", "/v2/models/cartpole/ready")[0] == 200


def test_int8_is_chosen_by_precision(start_server, models):
    server = start_server(models, "--precision", "int8", "--workers", "2")
    assert "(version 2, int8, CPUExecutionProvider)" in server.lines[0]
    assert server.act("cartpole", {"observation": [0, 0, 1, 0]})[1]["precision"] == "int8"


def test_folder_of_the_users_own_shadows_nothing(start_server, models, tmp_path):
    for name in ("serve", "export", "quantize"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('shadowed')")
    (tmp_path / "serve" / "app.py").write_text("raise RuntimeError('shadowed')")
    for name in ("train", "flask", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('shadowed')")
    console_script = [str(Path(sys.executable).parent / "paddleport")]
    for command in (None, console_script):
        server = start_server(models, "--workers", "2", cwd=tmp_path, command=command)
        assert server.act("cartpole", {"observation": [0, 0, 1, 0]})[0] == 200
        assert server.stop() == 0


def test_application_loads_no_training_library(models):
    program = (
        "import sys\n"
        "from serve.app import create_app\n"
        "app = create_app()\n"
        "answer = app.test_client().post('/v1/policies/cartpole/act', json={'observation': [0, 0, 1, 0]})\n"
        "assert answer.status_code == 200, answer.data\n"
        "print(*{name.split('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PADDLEPORT_MODELS": str(models), "PATH": ""},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert {"flask", "onnxruntime", "paddleport"} <= loaded
    assert not loaded & set(FORBIDDEN)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_processes_of_the_server_map_no_paddle_library(server):
    workers = server.workers()
    assert workers
    for pid in (server.process.pid, *workers):
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "site-packages" in maps
        assert "site-packages/paddle/" not in maps
        assert "gymnasium" not in maps
    assert "onnxruntime" not in Path(f"/proc/{server.process.pid}/maps").read_text()


def test_settings_come_from_the_environment(models):
    from paddleport.errors import UsageError
    from serve.settings import Settings

    chosen = Settings.from_environment({"PADDLEPORT_MODELS": "/m", "PADDLEPORT_PRECISION": "int8"})
    assert (chosen.models, chosen.precision, chosen.threads) == (Path("/m"), "int8", 0)
    for wrong in ({"PADDLEPORT_PRECISION": "int4"}, {"PADDLEPORT_THREADS": "many"}, {"PADDLEPORT_MAX_BODY_BYTES": "0"}):
        with pytest.raises(UsageError):
            Settings.from_environment(wrong)
