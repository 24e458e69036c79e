"""The command `paddleport`: finds a stage's command by name, runs it, and reports.

A command is a module with three functions:
    parse(argv) -> options      a frozen dataclass; where it has a field `json`, `--json` is offered
    run(options) -> result      a msgspec struct, or None for a command that reports nothing
    show(result)                prints the result for a person
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import msgspec

from paddleport import __version__, options
from paddleport.errors import MissingExtraError, PaddleportError
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
    "quantize": Command("quantize.command", "decide int8 scales for a run's policy", "quantize"),
    "export": Command("export.command", "publish a run's policy as a bundle", "export"),
    "serve": Command("serve.command", "serve a folder of bundles over HTTP", "serve"),
    "inspect": Command("paddleport.inspect_command", "show what a bundle says of itself", ""),
    "doctor": Command("paddleport.doctor_command", "show versions, devices and providers on this machine", ""),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 1 failed, 2 wrongly used)."""
    arguments = sys.argv[1:] if argv is None else argv
    put_current_folder_last()
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"paddleport {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        print(f"paddleport: {_unknown(name)}", file=sys.stderr)
        return 2
    with options.only_json_on_stdout("--json" in rest) as stdout:
        return _run(COMMANDS[name], rest, stdout)


def _run(command: Command, argv: list[str], stdout: Any) -> int:  # noqa: ANN401 - a text stream
    as_json = "--json" in argv
    try:
        module = _load(command)
        result = module.run(module.parse(argv))
        if as_json:
            print(msgspec.json.encode(result).decode(), file=stdout, flush=True)
        elif result is not None:
            module.show(result)
    except PaddleportError as error:
        return _failed(str(error), error.exit_code, stdout if as_json else None)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader went away; say nothing at exit either
        return 1
    except OSError as error:
        return _failed(f"{error.strerror or error}: {error.filename or ''}", 1, stdout if as_json else None)
    except KeyboardInterrupt:
        return _failed("Interrupted.", 128 + signal.SIGINT, None)
    return 0


def _load(command: Command) -> ModuleType:
    try:
        return importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        missing = error.name or "?"
        if missing.split(".")[0] == command.module.split(".")[0]:
            raise
        raise MissingExtraError(missing, command.extra or "train") from error


def _failed(message: str, code: int, stdout: Any) -> int:  # noqa: ANN401
    print(f"paddleport: {message}", file=sys.stderr)
    if stdout is not None:
        print(msgspec.json.encode({"error": message}).decode(), file=stdout, flush=True)
    return code


def _unknown(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return f"Unknown command: expected one of {', '.join(COMMANDS)}, got {name!r}. {hint}See: paddleport --help"


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
