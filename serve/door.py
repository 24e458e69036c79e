"""Who may ask, and how often: bearer tokens with roles, kept as hashes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from paddleport.errors import UsageError
from serve.http.request import Request
from serve.protocol.messages import Response, error_response
from serve.settings import Settings

Role = Literal["open", "act", "admin"]
_MOST_CALLERS = 10_000
_MOST_BYTES = 2**20
_PREFIX = "pp-"


class Token(NamedTuple):
    """One line of a token file."""

    role: str
    name: str
    digest: bytes


class Door:
    """Lets requests in, or says why not.

    Args:
        settings: the token file, and how often one may ask.

    Raises:
        UsageError: the token file cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._tokens = read_tokens(settings.auth_token_file) if settings.auth_token_file else []
        self._guarded = settings.auth_token_file is not None
        self._rates = Rates(settings.rate_limit) if settings.rate_limit else None

    def admit(self, request: Request, role: Role) -> Response | None:
        """Look at a request before anything is done for it.

        Args:
            request: as it came.
            role: that it takes; `open` takes none.

        Returns:
            The answer that turns it away (401, 403 or 429), or None.
        """
        if role == "open":
            return None
        if request.method != "GET" and (origin := request.headers.get("origin")) and not _same_site(request, origin):
            return error_response(403, f"Another site's page may not do this here: expected no Origin, got {origin!r}.")
        caller = request.peer
        if self._guarded:
            token = self._token(request.headers)
            if token is None:
                return _no_token()
            if role == "admin" and token.role != "admin":
                return error_response(
                    403, f"Token {token.name!r} may not do this: expected the role admin, got {token.role}."
                )
            caller = token.name
        if self._rates is not None and (wait := self._rates.take(caller)):
            response = error_response(429, f"Too many requests: try again in {wait:.3g} s.")
            response.headers.append(("Retry-After", str(max(1, round(wait)))))
            return response
        return None

    def stranger(self, headers: Mapping[str, str]) -> Response | None:
        """The answer for whoever needs a token and bears none, before the body is read; else None."""
        return _no_token() if self._guarded and self._token(headers) is None else None

    def _token(self, headers: Mapping[str, str]) -> Token | None:
        """The token that a request bears. All are compared, each in constant time."""
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            return None
        digest = digest_of(secret.strip())
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found


def _no_token() -> Response:
    response = error_response(401, "This needs a token: expected Authorization: Bearer TOKEN, got none that is known.")
    response.headers.append(("WWW-Authenticate", 'Bearer realm="paddleport"'))
    return response


class Rates:
    """One bucket a caller: it holds a second's worth of requests and fills at that rate.

    Args:
        rate: requests a second.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> float:
        """Take one request out of a caller's bucket; the seconds to wait where it is empty, else 0."""
        now = time.monotonic()
        left, before = self._buckets.pop(caller, (self._most, now))
        left = min(self._most, left + (now - before) * self._rate)
        allowed = left >= 1.0
        self._buckets[caller] = (left - 1.0 if allowed else left, now)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._rate


def new_token(role: str, name: str) -> tuple[str, str]:
    """A new secret, and the line of a token file that knows it.

    Args:
        role: `act` or `admin`.
        name: of whoever gets it; it stands in messages.

    Raises:
        UsageError: the name has a space in it, or is none.
    """
    if not name or any(char.isspace() for char in name) or name.startswith("#"):
        raise UsageError("This is no name for a token", expected="one word, such as robot-7", got=repr(name))
    secret = _PREFIX + secrets.token_urlsafe(32)
    return secret, f"{role} {name} sha256:{digest_of(secret).hex()}\n"


def digest_of(secret: str) -> bytes:
    """What is kept of a secret. It is 256 random bits long, so nothing slower is needed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def read_tokens(path: Path) -> list[Token]:
    """The tokens of a file: lines `ROLE NAME sha256:HEX`; empty lines and those that begin with # are passed over.

    Raises:
        UsageError: it cannot be read, holds none, or a line is no token.
    """
    try:
        if path.stat().st_mode & stat.S_IWOTH:
            raise UsageError(f"Anybody may write to {path}", todo=f"Run: chmod o-w {path}")
        text = path.read_bytes()[: _MOST_BYTES + 1].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The token file {path} cannot be read", got=error, todo="Make it with: paddleport token"
        ) from error
    found = [_parse(path, number, line) for number, line in enumerate(text.splitlines(), 1) if _says_something(line)]
    if not found:
        raise UsageError(f"The token file {path} holds no token", todo="Add one with: paddleport token")
    return found


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _parse(path: Path, number: int, line: str) -> Token:
    match line.split():
        case [("act" | "admin") as role, name, digest] if digest.startswith("sha256:") and len(digest) == 71:
            try:
                return Token(role, name, bytes.fromhex(digest.removeprefix("sha256:")))
            except ValueError:
                pass
    # What stands there is not repeated: it may be a secret.
    raise UsageError(f"Line {number} of {path} is no token", expected="ROLE NAME sha256:HEX, the role act or admin")


def _same_site(request: Request, origin: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    except ValueError:  # it is no address at all
        return False
