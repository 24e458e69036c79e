"""The command `paddleport`: finds a stage's command by name, runs it, and reports.

A command is a module with three functions:
    parse(argv) -> options      a frozen dataclass; where it has a field `json`, `--json` is offered
    run(options) -> result      a msgspec struct, or None for a command that reports nothing
    show(result)                prints the result for a person
and perhaps a fourth, where a result can be bad news:
    exit_code(result) -> int    1 for those
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

from paddleport import __version__
from paddleport.errors import MissingExtraError, PaddleportError, UsageError
from paddleport.importing import put_current_folder_last


@dataclass(frozen=True)
class Command:
    """Where a command lives."""

    module: str
    summary: str
    extra: str
    """The install extra that brings what it needs; empty for the base."""


COMMANDS = {
    "train": Command("train.command", "train a policy; writes a run directory", "train"),
    "evaluate": Command("train.evaluate_command", "play whole episodes with a run's or a bundle's policy", "train"),
    "compare": Command("train.compare_command", "plot and tabulate several runs, with bands over seeds", "train"),
    "quantize": Command("quantize.command", "decide int8 scales for a run's policy", "quantize"),
    "export": Command("export.command", "publish a run's policy as a bundle", "export"),
    "adopt": Command("export.adopt_command", "make a bundle of an ONNX policy that another tool wrote", "export"),
    "edge": Command("export.edge.command", "write a bundle's policy for a device: C99, .ort, a web page", "edge"),
    "serve": Command("serve.command", "serve a folder of bundles over HTTP", "serve"),
    "token": Command("serve.token_command", "make a bearer token for the policy server", "serve"),
    "inspect": Command("paddleport.inspect_command", "show what a bundle says of itself", ""),
    "verify": Command("paddleport.verify_command", "check a bundle's files and compute its golden vectors anew", ""),
    "diff": Command("paddleport.diff_command", "show what changed between two bundles", ""),
    "doctor": Command("paddleport.doctor_command", "show versions, devices and providers on this machine", ""),
}
_OURS = {command.module.partition(".")[0] for command in COMMANDS.values()}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 1 failed, 2 wrongly used)."""
    arguments = sys.argv[1:] if argv is None else argv
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    put_current_folder_last()
    _prepare_streams()
    with _termination_raises():
        try:
            return _run_with_streams(name, rest)
        except KeyboardInterrupt as stop:  # before a command could take it
            return _failed(*_stopped(stop), None)


def _run_with_streams(name: str, argv: list[str]) -> int:
    from paddleport import options  # only now: what it imports could be shadowed by the user's folder

    with options.only_json_on_stdout("--json" in argv) as stream:
        try:
            code = _run(name, argv, stream)
            sys.stdout.flush()
        except PaddleportError as error:
            return _failed(str(error), error.exit_code, stream)
        except BrokenPipeError:
            _forget_stdout()
            return 1
        except OSError as error:
            return _failed(str(PaddleportError(error.strerror or str(error), got=error.filename)), 1, stream)
        except KeyboardInterrupt as stop:
            return _failed(*_stopped(stop), stream)
        return code


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Within the block SIGTERM ends a command as Ctrl-C does, cleaning up; commands that know better set their own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _terminate:  # a server that was stopped ignores it to the end
            signal.signal(signal.SIGTERM, before)


def _stopped(stop: KeyboardInterrupt) -> tuple[str, int]:
    """What to say and the exit code, after SIGINT, or after SIGTERM by `_terminate`."""
    return ("Terminated.", 128 + signal.SIGTERM) if stop.args else ("Interrupted.", 128 + signal.SIGINT)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(number)


def _run(name: str, argv: list[str], stream: io.FileIO | None) -> int:
    if name in ("", "-h", "--help", "help"):
        print(_overview())
        return 0 if name else 2
    if name in ("-V", "--version"):
        print(f"paddleport {__version__}")
        return 0
    if name not in COMMANDS:
        _refuse(name)
    try:
        module = importlib.import_module(COMMANDS[name].module)
        chosen = _parse(module, argv, stream)
        result = module.run(chosen)
    except ModuleNotFoundError as error:
        missing = error.name or "?"
        if missing.partition(".")[0] in _OURS:
            raise
        raise MissingExtraError(missing, COMMANDS[name].extra or "train") from error
    if stream:
        _write_json(result, stream)
    elif result is not None:
        module.show(result)
    code: int = module.exit_code(result) if hasattr(module, "exit_code") else 0
    return code


def _parse(module: ModuleType, argv: list[str], stream: io.FileIO | None) -> object:
    try:
        return module.parse(argv)
    except SystemExit as stop:  # the help was printed, or on stderr what is wrong with the options
        if stop.code and stream:
            _write_json({"error": "These options cannot be meant as they stand; stderr says why."}, stream)
        raise


def _failed(message: str, code: int, stream: io.FileIO | None) -> int:
    print(f"paddleport: {message}", file=sys.stderr)
    if stream:
        with contextlib.suppress(OSError):  # it may be the stream that failed
            _write_json({"error": message.encode("utf-8", "backslashreplace").decode()}, stream)
    return code


def _write_json(value: object, stream: io.FileIO) -> None:
    import msgspec

    rest = memoryview(msgspec.json.encode(value) + b"\n")
    while rest:
        rest = rest[stream.write(rest) :]


def _prepare_streams() -> None:
    """Whoever started us may have closed a standard stream, or have given us one that cannot write "±"."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it takes the lowest free number: this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _forget_stdout() -> None:
    """The reader went away: what is still buffered goes nowhere, so that nothing is said at exit either."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)


def _refuse(name: str) -> NoReturn:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    todo = f"{hint}See: paddleport --help"
    raise UsageError("Unknown command", expected=f"one of {', '.join(COMMANDS)}", got=repr(name), todo=todo)


def _overview() -> str:
    rows = [f"  {name:<10}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: paddleport COMMAND [OPTIONS]",
            "",
            "A reinforcement-learning policy from training in PaddlePaddle to the place where it acts.",
            "",
            *rows,
            "",
            "Every option of a command: paddleport COMMAND --help",
        ]
    )
