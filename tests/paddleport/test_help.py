import importlib
import re

import pytest

from paddleport import cli

_FLAG = re.compile(r"^(-h, )?--[a-z][a-z0-9-]*")


@pytest.fixture(autouse=True)
def _own_path(own_path):
    pass


def _entries(text):
    """What the help says of each argument: its flags, then the words beside or below them."""
    entries = {}
    name = None
    for line in text.splitlines():
        if line.startswith("╭"):
            name = None
        if not line.startswith("│"):
            continue
        content = line.strip("│ ").strip()
        starts = _FLAG.match(content) or re.match(r"^[A-Z-]+( {2,}|$)", content)
        if starts and not line.startswith("│     "):
            name, _, content = content.partition("  ")
            entries[name] = ""
        if name:
            entries[name] = f"{entries[name]} {content}".strip()
    return entries


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_of_a_command_explains_every_option(capfd, monkeypatch, name):
    pytest.importorskip(cli.COMMANDS[name].module)
    monkeypatch.setenv("COLUMNS", "250")
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    out, err = capfd.readouterr()
    assert stopped.value.code == 0
    assert err == ""
    assert out.startswith(f"usage: paddleport {name} ")
    entries = _entries(out)
    assert len(entries) >= 2
    for option, words in entries.items():
        explanation = re.sub(r"\((default: .*|required|optional)\)", "", words)
        assert explanation.strip(), f"paddleport {name} does not explain {option}"


@pytest.mark.parametrize("name", [name for name in cli.COMMANDS if name != "serve"])
def test_every_command_that_reports_offers_json(capfd, monkeypatch, name):
    pytest.importorskip(cli.COMMANDS[name].module)
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    assert "--json" in capfd.readouterr().out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_command_is_what_the_dispatcher_takes_it_for(name):
    module = pytest.importorskip(cli.COMMANDS[name].module)
    assert all(callable(getattr(module, part)) for part in ("parse", "run", "show"))
    assert importlib.import_module(cli.COMMANDS[name].module) is module
