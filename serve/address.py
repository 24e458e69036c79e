"""Where the server listens: a checked host and a port that nobody else has."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

from paddleport.errors import PaddleportError, UsageError


class AddressError(PaddleportError):
    """The server cannot listen at this address."""


class Address(NamedTuple):
    """An IP address and a port."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The server's URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else, not even another server of ours, can listen here meanwhile.

        Raises:
            AddressError: the port is taken, or cannot be had on this machine.
        """
        with socket.socket(_family(self.host), socket.SOCK_STREAM) as holder:
            with _explained(self.host, self.port):
                _hold(holder, self)
            yield

    def wait_until_listening(self, seconds: float) -> bool:
        """Whether something answers here within `seconds`."""
        end = time.monotonic() + seconds
        # What listens everywhere is reached at the loopback address.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection((host, self.port), timeout=1.0):
                return True
            time.sleep(0.005)
        return False


def resolve(host: str, port: int, *, insecure: bool) -> Address:
    """The address to listen at.

    Args:
        host: a name or an IP address.
        port: 0 takes a free one.
        insecure: whether it may be an address that other machines reach.

    Raises:
        UsageError: the host cannot be resolved, or other machines reach it and that was not allowed.
        AddressError: no port can be had on this machine.
    """
    if not 0 <= port <= 65535:
        raise UsageError("This is no port", expected="0 to 65535", got=port)
    ip = _look_up(host)
    if not (insecure or ipaddress.ip_address(ip).is_loopback):
        raise UsageError(
            f"--host {host} is reached by other machines, and this server asks nobody who they are",
            expected="a loopback address such as 127.0.0.1",
            got=ip,
            todo="Put a proxy that authenticates in front of it, or allow everybody with --insecure",
        )
    return Address(ip, port or _free_port(ip))


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


def _free_port(ip: str) -> int:
    with socket.socket(_family(ip), socket.SOCK_STREAM) as trial, _explained(ip, 0):
        trial.bind((ip, 0))
        return int(trial.getsockname()[1])


def _hold(holder: socket.socket, address: Address) -> None:
    """Let granian have the port, which shares it among its workers, and nobody else, from this moment on.

    Of sockets that are bound to one port, only one gets to listen, which decides among servers that start at once.
    It must not go on listening, lest it take connections; bound without SO_REUSEADDR it still stands in everybody's
    way, except that of sockets of the same user that share their port, as this one does in the end.
    """
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a server before may linger
    holder.bind(address)
    holder.listen()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    holder.shutdown(socket.SHUT_RD)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


@contextlib.contextmanager
def _explained(ip: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _refused(ip, port, error) from error


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
