"""`paddleport token`: a new bearer token for the policy server; only its hash is kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from paddleport import options
from paddleport.errors import UsageError
from paddleport.options import Flag
from serve.door import new_token, read_tokens


@dataclass(frozen=True)
class Options:
    """What the token is for, and where its hash goes."""

    file: Path
    """The token file; a line is added to it. Give it to the server with --auth-token-file, and restart the server."""
    role: Literal["act", "admin"] = "act"
    """act: ask policies and look at them. admin: load, unload, roll back, canary and shadow as well."""
    name: str = "client"
    """Who gets it; it stands in messages. One word, once in a file."""
    json: Flag = False
    """Print JSON."""


class Made(msgspec.Struct):
    """A new token."""

    token: str
    role: str
    name: str
    file: str


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(
        Options, "token", argv, "Make a bearer token for the policy server and add its hash to a file."
    )


def run(chosen: Options) -> Made:
    """Make a token.

    Raises:
        UsageError: the file is no token file, or the name is taken or none.
    """
    if chosen.file.exists() and any(token.name == chosen.name for token in read_tokens(chosen.file)):
        raise UsageError(
            f"{chosen.file} has a token named {chosen.name!r}", todo="Choose another --name, or delete that line"
        )
    if not chosen.file.absolute().parent.is_dir():
        raise UsageError(
            "The folder of --file is not there", got=chosen.file.parent, todo=f"Make it: mkdir -p {chosen.file.parent}"
        )
    secret, line = new_token(chosen.role, chosen.name)
    # Appended in one write, to a file that only its owner may read.
    handle = os.open(chosen.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    return Made(secret, chosen.role, chosen.name, str(chosen.file))


def show(made: Made) -> None:
    """Print the token, once."""
    print(made.token)
