"""Where the server listens: a checked host and a port that nobody else has."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator
from typing import NamedTuple

from paddleport.errors import PaddleportError, UsageError

_BACKLOG = 1024


class AddressError(PaddleportError):
    """The server cannot listen at this address."""


class Address(NamedTuple):
    """An IP address and a port."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """The server's URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def resolve(host: str, port: int, *, insecure: bool, secure: bool = False) -> Address:
    """The address to listen at.

    Args:
        host: a name or an IP address.
        port: 0 takes a free one.
        insecure: whether it may be an address that other machines reach.
        secure: whether HTTPS is spoken there.

    Raises:
        UsageError: the host cannot be resolved, or other machines reach it and that was not allowed.
    """
    if not 0 <= port <= 65535:
        raise UsageError("This is no port", expected="0 to 65535", got=port)
    ip = _look_up(host)
    if not (insecure or ipaddress.ip_address(ip).is_loopback):
        raise UsageError(
            f"--host {host} is reached by other machines, and this server asks nobody who they are",
            expected="a loopback address such as 127.0.0.1",
            got=ip,
            todo="Say who may ask with --auth-token-file, or allow everybody with --insecure",
        )
    return Address(ip, port, "https" if secure else "http")


@contextlib.contextmanager
def listening(place: Address) -> Iterator[tuple[Address, socket.socket]]:
    """A socket that listens there, and where that is once a port is chosen.

    Nobody else, not even another server of ours, can listen there meanwhile. Who connects before the first worker
    accepts waits in the socket's queue.

    Raises:
        AddressError: the port is taken, or cannot be had on this machine.
    """
    with socket.socket(_family(place.host), socket.SOCK_STREAM) as sock:
        with _explained(place):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a server before may linger
            sock.bind((place.host, place.port))
            sock.listen(_BACKLOG)
        yield place._replace(port=int(sock.getsockname()[1])), sock


def _look_up(host: str) -> str:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            "This host cannot be resolved", expected="an address of this machine, such as 127.0.0.1", got=repr(host)
        ) from error
    *_, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(place[0])


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


@contextlib.contextmanager
def _explained(place: Address) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _refused(place.host, place.port, error) from error


def _refused(ip: str, port: int, error: OSError) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        return AddressError(
            f"Port {port} of {ip} is in use",
            expected="a free port",
            got="another program listening there",
            todo="Stop that program, or choose another port with --port (0 takes a free one)",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return AddressError(f"{ip} is no address of this machine", todo="Choose another with --host")
    return AddressError(f"Cannot listen at {ip} port {port}", got=error.strerror or error)
