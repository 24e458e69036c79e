"""What the parent and its workers say to each other, over socket pairs: msgpack, each with its length in front."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

import msgspec

from serve.runtime.statistics import Counts
from serve.runtime.table import Split, Table

_LENGTH = struct.Struct("<I")
_MOST_BYTES = 64 * 2**20


class Open(msgspec.Struct, tag=True):
    """To a worker: open a version. Answer: `Done`, with the reason where it is refused."""

    name: str
    version: int


class Commit(msgspec.Struct, tag=True):
    """To a worker: serve this from now on. Answer: `Done`."""

    table: Table


class Report(msgspec.Struct, tag=True):
    """To a worker: what have you counted? Answer: `Counts`."""


class Drain(msgspec.Struct, tag=True):
    """To a worker: finish what is in flight and end. No answer."""


class Done(msgspec.Struct, tag=True):
    """From a worker; `reason` says why not."""

    reason: str = ""
    serving: tuple[str, ...] = ()
    """After a commit: what acts, in words."""


class Load(msgspec.Struct, tag=True):
    """To the parent: load a policy, or look for its new versions."""

    name: str


class Unload(msgspec.Struct, tag=True):
    """To the parent: serve a policy no longer."""

    name: str


class RollBack(msgspec.Struct, tag=True):
    """To the parent: let an older version act."""

    name: str
    version: int | None


class SetSplit(msgspec.Struct, tag=True):
    """To the parent: begin, change or (None) end a canary or shadow."""

    name: str
    split: Split | None


class Gather(msgspec.Struct, tag=True):
    """To the parent: what have all workers counted?"""


class Granted(msgspec.Struct, tag=True):
    """From the parent: done, in every worker."""

    version: int | None = None


class Denied(msgspec.Struct, tag=True):
    """From the parent: nothing was changed, or not everything could be."""

    status: int
    message: str


class Gathered(msgspec.Struct, tag=True):
    """From the parent: the sum over all workers, and what only the parent knows."""

    counts: Counts
    reloads: dict[str, int]
    workers: int
    replaced: int


Order = Open | Commit | Report | Drain
Wish = Load | Unload | RollBack | SetSplit | Gather
Reply = Granted | Denied | Gathered

T = TypeVar("T")


class Channel:
    """One end of a socket pair.

    Args:
        sock: the socket; a time-out on it bounds sending and receiving.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def send(self, message: msgspec.Struct) -> None:
        """Send a message.

        Raises:
            OSError: nobody takes it.
        """
        data = msgspec.msgpack.encode(message)
        self.socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self, kind: type[T]) -> T:
        """Wait for a message.

        Raises:
            EOFError: the other end is closed.
            OSError: nothing comes in time.
        """
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > _MOST_BYTES:
            raise EOFError("a message of impossible size")
        return msgspec.msgpack.decode(self._read(length), type=kind)

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self.socket.recv(min(size, 2**20))
            if not part:
                raise EOFError("the other end is closed")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
