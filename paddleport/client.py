"""Asking a policy server for actions."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import io
import socket
import time
import urllib.parse
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, LocationValueError, NewConnectionError, ProtocolError, TimeoutError

from paddleport.errors import ObservationError, ServerError, UsageError
from paddleport.observation import is_finite
from paddleport.spaces import Array

_BACKOFF_SECONDS = 0.1
_UNAVAILABLE = 503
_CONNECTIONS = 16
_LARGEST_ANSWER = 64 * 2**20
_SHORTEST_SECONDS = 0.001  # urllib3 takes no 0
_NUMBERS = {int, float}
_DEEPEST = 32

T = TypeVar("T")


class _Action(msgspec.Struct):
    action: int | float | list[Any]


class _Actions(msgspec.Struct):
    actions: list[Any]


class _Policies(msgspec.Struct):
    policies: list[dict[str, Any]]


class _Failure(msgspec.Struct):
    error: str


class Client:
    """A policy server, over connections that are kept and shared; it may be used from several threads.

    A request is repeated, after a growing pause, where the connection is lost or the server answers 503: to act
    changes nothing on the server, so an observation may be sent twice. A time-out is not repeated.

    Args:
        url: the server's, such as `http://127.0.0.1:8000`.
        timeout: seconds until a request is given up, whatever has arrived by then.
        retries: how often a request is repeated.
        token: what `paddleport token` printed, where the server asks for one.

    Example:
        >>> with Client("http://127.0.0.1:8000") as client:
        ...     client.act("cartpole", env.reset())
        1
    """

    def __init__(self, url: str, *, timeout: float = 10.0, retries: int = 3, token: str | None = None) -> None:
        self._prefix, self._pool = _connect(url, token)
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._retries = retries

    def act(
        self,
        name: str,
        obs: Any,  # noqa: ANN401 - array or list in; int or array out
        version: int | None = None,
        *,
        deterministic: bool = True,
        seed: int | None = None,
    ) -> Any:  # noqa: ANN401
        """The action for one observation: an int for Discrete, an array for other spaces.

        Args:
            name: the policy.
            obs: the raw observation: an array, a list, a dict of these where the space is one, or what `env.reset()`
                returned.
            version: of the policy; by default the newest that is ready.
            deterministic: the policy's best action; else one that is drawn from its distribution.
            seed: of the draw: the same seed, the same action.

        Raises:
            ObservationError: the observation does not belong to the policy's space.
            UsageError: no policy can have this name.
            ServerError: the server cannot be reached, or refuses the request for another reason.
        """
        content = {"observation": _plain(obs), **_drawing(deterministic, seed)}
        action = self._ask("POST", _act_path(name, version), _Action, content).action
        return action if isinstance(action, int) else self._array(action)

    def act_batch(
        self,
        name: str,
        obs: Any,  # noqa: ANN401
        version: int | None = None,
        *,
        deterministic: bool = True,
        seed: int | None = None,
    ) -> Array:
        """The actions for observations [batch, …], as `act`: [batch] for Discrete, [batch, …] for other spaces.

        Raises:
            ObservationError: an observation does not belong to the policy's space.
            UsageError: no policy can have this name.
            ServerError: the server cannot be reached, or refuses the request for another reason.
        """
        content = {"observations": _plain(obs), **_drawing(deterministic, seed)}
        answer = self._ask("POST", _act_path(name, version), _Actions, content)
        return self._array(answer.actions)

    def policies(self) -> list[dict[str, Any]]:
        """What acts under each name: spaces, version, precision, provider, measured return.

        Raises:
            ServerError: the server cannot be reached.
        """
        return self._ask("GET", "/v1/policies", _Policies).policies

    def ready(self) -> bool:
        """Whether the server answers and can act; asks once, without repeating."""
        try:
            return self._try("GET", "/v2/health/ready", None, time.monotonic() + self._timeout).status == 200
        except (HTTPError, ServerError):
            return False

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, path: str, form: type[T], content: dict[str, Any] | None = None) -> T:
        answer = self._send(method, path, msgspec.json.encode(content) if content else None)
        try:
            if answer.status == 200:
                return msgspec.json.decode(answer.body, type=form)
            error = msgspec.json.decode(answer.body, type=_Failure).error
        except (msgspec.ValidationError, RecursionError) as wrong:
            raise self._strange(answer.status, f"in another form ({wrong})") from wrong
        except msgspec.DecodeError as wrong:
            raise self._strange(answer.status, "without JSON") from wrong
        if answer.status == 400 and answer.kind == ObservationError.__name__:
            raise ObservationError(error.removesuffix("."))
        raise ServerError(error.removesuffix("."), status=answer.status)

    def _send(self, method: str, path: str, body: bytes | None) -> _Answer:
        """The server's answer, whatever it is, after as many tries as it takes, are allowed and have time."""
        end = time.monotonic() + self._timeout
        try:
            for attempt in range(self._retries):
                with contextlib.suppress(NewConnectionError, ProtocolError):
                    answer = self._try(method, path, body, end)
                    if answer.status != _UNAVAILABLE:
                        return answer
                pause = _BACKOFF_SECONDS * 2**attempt
                if time.monotonic() + pause > end:
                    break
                time.sleep(pause)
            return self._try(method, path, body, end)
        except HTTPError as error:
            raise self._unreachable(error) from error

    def _try(self, method: str, path: str, body: bytes | None, end: float) -> _Answer:
        timeout = urllib3.Timeout(total=max(end - time.monotonic(), _SHORTEST_SECONDS))
        response = self._pool.request(
            method, self._prefix + path, body=body, timeout=timeout, preload_content=False, redirect=False
        )
        # Compressed answers, which nobody asked for, stay as they are, and are no JSON.
        content = response.read(_LARGEST_ANSWER + 1, decode_content=False)
        if len(content) > _LARGEST_ANSWER:
            response.close()
            raise self._strange(response.status, f"more than {_LARGEST_ANSWER} bytes")
        return _Answer(response.status, response.headers.get("Paddleport-Error"), content)

    def _array(self, numbers: Any) -> Array:  # noqa: ANN401
        """Actions as the environment takes them: float32, which Gymnasium accepts for float64 too, or int64."""
        try:
            array = np.asarray(numbers) if _are_numbers(numbers) else None
        except (ValueError, OverflowError, RecursionError):
            array = None
        if array is None or array.dtype.kind not in "if":
            raise self._strange(200, "with actions that are no array of numbers")
        return array.astype(np.float32) if array.dtype.kind == "f" else array

    def _strange(self, status: int, what: str) -> ServerError:
        return ServerError(
            f"{self.url} answered {status} {what}", status=status, todo="Is this the URL of a Paddleport server?"
        )

    def _unreachable(self, error: HTTPError) -> ServerError:
        if isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError):
            return ServerError(
                f"{self.url} did not answer in time", todo="Raise the client's timeout, or look at the server"
            )
        return ServerError(
            f"{self.url} cannot be reached ({error})", todo="Start the server with: paddleport serve --models models"
        )


class AsyncClient:
    """The same for asyncio: each request waits in a thread, on a connection that is kept, while the event loop goes on.

    Args:
        url: the server's.
        timeout: as `Client`'s.
        retries: as `Client`'s.
        token: as `Client`'s.
        concurrency: most requests at a time; more wait.

    Example:
        >>> async with AsyncClient("http://127.0.0.1:8000") as client:
        ...     await asyncio.gather(*(client.act("cartpole", obs) for obs in observations))
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        retries: int = 3,
        token: str | None = None,
        concurrency: int = _CONNECTIONS,
    ) -> None:
        self._client = Client(url, timeout=timeout, retries=retries, token=token)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="paddleport-client")

    async def act(self, name: str, obs: Any, version: int | None = None, **drawing: Any) -> Any:  # noqa: ANN401
        """As `Client.act`."""
        return await self._run(self._client.act, name, obs, version, **drawing)

    async def act_batch(self, name: str, obs: Any, version: int | None = None, **drawing: Any) -> Array:  # noqa: ANN401
        """As `Client.act_batch`."""
        return await self._run(self._client.act_batch, name, obs, version, **drawing)

    async def policies(self) -> list[dict[str, Any]]:
        """As `Client.policies`."""
        return await self._run(self._client.policies)

    async def ready(self) -> bool:
        """As `Client.ready`."""
        return await self._run(self._client.ready)

    def close(self) -> None:
        """Close the connections; what is on its way is waited for by its own time limit."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _run(self, ask: Callable[..., T], *arguments: Any, **named: Any) -> T:  # noqa: ANN401
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(ask, *arguments, **named))


def _drawing(deterministic: bool, seed: int | None) -> dict[str, Any]:
    """The fields that ask for a draw; a server older than they are need not know them for a deterministic action."""
    if deterministic and seed is None:
        return {}
    return {"deterministic": deterministic, **({} if seed is None else {"seed": seed})}


class _Answer(NamedTuple):
    status: int
    kind: str | None
    """The server's class of an error."""
    body: bytes


class _TimedStream(io.RawIOBase):
    """What a socket receives, for as long altogether as its timeout allows for one read."""

    def __init__(self, sock: socket.socket, stream: io.RawIOBase) -> None:
        self._socket = sock
        self._stream = stream
        seconds = sock.gettimeout()
        self._end = None if seconds is None else time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401
        if self._end is not None:
            left = self._end - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
        return self._stream.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_TimedStream(sock, self.fp.detach()))


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


def _connect(url: str, token: str | None = None) -> tuple[str, urllib3.HTTPConnectionPool]:
    """The path that the URL has, and connections to its host, none of which is open yet."""
    try:
        parsed = urllib3.util.parse_url(url.rstrip("/"))
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError("a scheme and a host are needed")
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        pool = urllib3.connection_from_url(url, maxsize=_CONNECTIONS, retries=False, headers=headers)
    except (LocationValueError, ValueError, AttributeError) as error:
        raise UsageError("This is no server's URL", expected="such as http://127.0.0.1:8000", got=repr(url)) from error
    # The pool makes its connections of this class; urllib3's own limit is for each read.
    pool.ConnectionCls = _Connection if parsed.scheme == "http" else _SecureConnection
    return parsed.path or "", pool


def _act_path(name: str, version: int | None) -> str:
    try:
        policy = "/v1/policies/" + urllib.parse.quote(name, safe="")
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError("No policy has this name", expected="such as cartpole", got=repr(name)) from error
    return f"{policy}/act" if version is None else f"{policy}/versions/{version}/act"


def _plain(obs: Any) -> Any:  # noqa: ANN401
    """An observation as nested lists and objects, once it is sure that JSON can carry it."""
    if isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict):
        obs = obs[0]  # env.reset() returns the observation and a dictionary
    return _nested(obs)


def _nested(obs: Any, depth: int = 0) -> Any:  # noqa: ANN401
    if isinstance(obs, Mapping) and depth < _DEEPEST:
        return {str(key): _nested(part, depth + 1) for key, part in obs.items()}
    try:
        array = np.asarray(obs)
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(obs, list | tuple) and depth < _DEEPEST:  # parts of different shapes
            return [_nested(part, depth + 1) for part in obs]
        raise ObservationError("This is no observation", expected="an array", got=error) from error
    if array.dtype.kind == "O" and isinstance(obs, list | tuple) and depth < _DEEPEST:
        return [_nested(part, depth + 1) for part in obs]
    if array.dtype.kind not in "biuf":
        raise ObservationError("This is no observation", expected="an array of numbers", got=f"type {array.dtype}")
    if array.dtype.kind == "f":
        array = array.astype(np.float64, copy=False)
        if not is_finite(array, array.dtype):
            raise ObservationError("This observation is not finite", expected="finite numbers", got=array.tolist())
    return array.tolist()


def _are_numbers(value: Any) -> bool:  # noqa: ANN401 - whatever JSON held
    """Whether it is a number, or lists of numbers; NumPy would take texts and null as well."""
    if not isinstance(value, list):
        return type(value) in _NUMBERS
    kinds = set(map(type, value))
    return kinds <= _NUMBERS or (kinds == {list} and all(map(_are_numbers, value)))
