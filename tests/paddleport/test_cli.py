import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import paddleport
from paddleport import cli
from paddleport.errors import GateError, UsageError

_SCRIPT = Path(sys.executable).with_name("paddleport")


class Result(msgspec.Struct):
    mean: float


def _run(argv):
    return Result(475.0)


@pytest.fixture(autouse=True)
def _own_path(own_path):
    pass


@pytest.fixture
def command(monkeypatch):
    """Put a command of the test's own in the place of `inspect`."""

    def install(run=_run, parse=list, show=lambda result: print("mean", result.mean), extra=""):
        monkeypatch.setitem(cli.COMMANDS, "inspect", cli.Command("stand_in", "stands in", extra))
        monkeypatch.setitem(sys.modules, "stand_in", SimpleNamespace(parse=parse, run=run, show=show))

    return install


def _raising(error):
    def run(_):
        raise error

    return run


def _script(*arguments, **options):
    options = {"capture_output": True, "timeout": 60, **options}
    return subprocess.run([_SCRIPT, *arguments], **options)


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(capfd, argv):
    assert cli.main(argv) == 0
    out, err = capfd.readouterr()
    assert err == ""
    for name, known in cli.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(known.summary)}$", out, re.MULTILINE)


def test_no_command_shows_the_help_and_exits_with_2(capfd):
    assert cli.main([]) == 2
    assert "usage: paddleport COMMAND" in capfd.readouterr().out


@pytest.mark.parametrize("argv", [["--version"], ["-V"]])
def test_the_version_is_that_of_the_package(capfd, argv):
    assert cli.main(argv) == 0
    assert capfd.readouterr().out == f"paddleport {paddleport.__version__}\n"


@pytest.mark.parametrize(("typed", "meant"), [("inspekt", "inspect"), ("evalute", "evaluate"), ("trian", "train")])
def test_an_unknown_command_gets_a_suggestion(capfd, typed, meant):
    assert cli.main([typed]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err == (
        f"paddleport: Unknown command: expected one of {', '.join(cli.COMMANDS)}, got {typed!r}. "
        f"Did you mean {meant!r}? See: paddleport --help.\n"
    )


def test_a_command_like_no_other_gets_no_suggestion(capfd):
    assert cli.main(["xyzzy"]) == 2
    assert "Did you mean" not in capfd.readouterr().err


def test_a_result_is_shown_for_a_person(capfd, command):
    command()
    assert cli.main(["inspect"]) == 0
    assert capfd.readouterr().out == "mean 475.0\n"


def test_json_is_alone_on_stdout_whatever_else_is_printed(capfd, command):
    def run(_):
        print("by Python")
        os.write(1, b"by a library below Python\n")
        subprocess.run(["echo", "by a child"], check=True)
        return Result(475.0)

    command(run)
    assert cli.main(["inspect", "--json"]) == 0
    out, err = capfd.readouterr()
    assert out == '{"mean":475.0}\n'
    assert sorted(err.splitlines()) == ["by Python", "by a child", "by a library below Python"]
    print("stdout is itself again")
    assert capfd.readouterr().out == "stdout is itself again\n"


def test_a_large_json_comes_whole(capfd, command):
    command(lambda _: ["x" * 1_000_000])
    assert cli.main(["inspect", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == ["x" * 1_000_000]


def test_a_command_that_reports_nothing_shows_nothing(capfd, command):
    command(lambda _: None, show=_raising(AssertionError))
    assert cli.main(["inspect"]) == 0
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("Wrong", expected=1, got=2, todo="Say 1"), 2, "Wrong: expected 1, got 2. Say 1."),
        (GateError("Refused"), 1, "Refused."),
        (PermissionError(13, "Permission denied", "models/x"), 1, "Permission denied: got models/x."),
        (OSError("no errno"), 1, "no errno."),
        (FileNotFoundError(2, "No such file or directory"), 1, "No such file or directory."),
        (KeyboardInterrupt(), 130, "Interrupted."),
        (ModuleNotFoundError("No module", name="paddle.nn"), 1, "This needs the package 'paddle.nn', .*"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_is_one_line_and_an_exit_code(capfd, command, error, code, message, as_json):
    command(_raising(error), extra="quantize")
    assert cli.main(["inspect", *["--json"] * as_json]) == code
    out, err = capfd.readouterr()
    assert re.fullmatch(f"paddleport: {message}\n", err)
    if not as_json:
        assert out == ""
        return
    assert re.fullmatch(message, json.loads(out)["error"])


def test_a_package_that_is_not_installed_names_the_extra(capfd, command):
    command(_raising(ModuleNotFoundError("No module named 'paddleslim'", name="paddleslim")), extra="quantize")
    assert cli.main(["inspect"]) == 1
    assert "pip install '.[quantize]'" in capfd.readouterr().err


@pytest.mark.parametrize("error", [ZeroDivisionError(), ModuleNotFoundError("ours", name="train.missing")])
def test_a_defect_of_ours_is_not_hidden(command, error):
    command(_raising(error))
    with pytest.raises(type(error)):
        cli.main(["inspect"])


def test_an_unknown_option_exits_with_2_and_suggests(capfd):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["doctor", "--jsn"])
    out, err = capfd.readouterr()
    assert stopped.value.code == 2
    assert out == ""
    assert "--json" in err


@pytest.mark.parametrize(
    "argv", [["doctor", "--nope", "--json"], ["inspect", "--json"], ["inspect", "a", "b", "--json"]]
)
def test_wrong_options_say_so_in_json_too(capfd, argv):
    with pytest.raises(SystemExit) as stopped:
        cli.main(argv)
    out, err = capfd.readouterr()
    assert stopped.value.code == 2
    assert "stderr" in json.loads(out)["error"]
    assert err


def test_an_unknown_command_says_so_in_json_too(capfd):
    assert cli.main(["inspekt", "--json"]) == 2
    assert "Did you mean 'inspect'" in json.loads(capfd.readouterr().out)["error"]


@pytest.mark.parametrize(
    "options", [["--help"], ["doctor", "--help"], ["inspect", "BUNDLE"], ["inspect", "BUNDLE", "--json"]]
)
def test_a_reader_that_goes_away_is_no_error_message(published, options):
    arguments = [str(published) if option == "BUNDLE" else option for option in options]
    process = subprocess.Popen([_SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert err == b""
    assert process.returncode in (0, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("options", [["--help"], ["inspect", "BUNDLE"], ["inspect", "BUNDLE", "--json"]])
def test_a_full_disk_is_one_line(published, options):
    arguments = [str(published) if option == "BUNDLE" else option for option in options]
    with Path("/dev/full").open("wb") as full:
        done = _script(*arguments, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"paddleport: No space left on device.\n"


def test_a_terminal_without_the_letters_shows_others(published):
    done = _script("inspect", str(published), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"500.0 ? 0.0" in done.stdout


def test_a_path_that_is_no_text_is_one_line():
    done = _script("inspect", b"\xff", "--json")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert "is no bundle" in json.loads(done.stdout)["error"]


def test_a_folder_that_was_deleted_is_a_place_to_work_from(tmp_path, published):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); from paddleport.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "inspect", str(published), "--json"]
    done = subprocess.run(command, cwd=gone, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["name"] == "cartpole"


def test_a_closed_stdout_is_no_traceback():
    done = subprocess.run(["sh", "-c", f"{_SCRIPT} --version >&-"], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_standard_stream_changes_no_exit_code(published, closed):
    shell = f"exec {sys.executable} -m paddleport inspect {published} --json {closed}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_sigterm_before_a_command_could_take_it_is_one_line(tmp_path):
    program = "import os, signal, sys; from paddleport import cli; cli._run = lambda *_: os.kill(os.getpid(), 15); "
    done = subprocess.run(
        [sys.executable, "-c", program + "sys.exit(cli.main(['doctor']))"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (143, "paddleport: Terminated.\n")


@pytest.mark.parametrize(("set_by_command", "left"), [(None, signal.SIG_DFL), (signal.SIG_IGN, signal.SIG_IGN)])
def test_how_a_command_wants_to_take_sigterm_outlives_it(set_by_command, left):
    """A second SIGTERM while a stopped server's process ends must not make its exit code that of a kill."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with cli._termination_raises():
            if set_by_command is not None:
                signal.signal(signal.SIGTERM, set_by_command)
        assert signal.getsignal(signal.SIGTERM) == left
    finally:
        signal.signal(signal.SIGTERM, before)
