"""Where the server listens: a checked host and a port that nobody else has."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import time
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
        AddressError: the port is taken, or cannot be had on this machine.
    """
    if not 0 <= port <= 65535:
        raise UsageError("This is no port", expected="0 to 65535", got=port)
    family, ip = _look_up(host)
    if not (insecure or ipaddress.ip_address(ip).is_loopback):
        raise UsageError(
            f"--host {host} is reached by other machines, and this server asks nobody who they are",
            expected="a loopback address such as 127.0.0.1",
            got=ip,
            todo="Put a proxy that authenticates in front of it, or allow everybody with --insecure",
        )
    return Address(ip, _claim(family, ip, port))


def _look_up(host: str) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            "This host cannot be resolved", expected="an address of this machine, such as 127.0.0.1", got=repr(host)
        ) from error
    family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, str(place[0])


def _claim(family: socket.AddressFamily, ip: str, port: int) -> int:
    """The port, after a trial that finds a listener; granian itself would share the port with it in silence."""
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((ip, port))
        except OSError as error:
            raise _refused(ip, port, error) from error
        return int(trial.getsockname()[1])


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
