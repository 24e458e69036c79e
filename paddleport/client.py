"""Asking a policy server for actions."""

from __future__ import annotations

import contextlib
import time
import urllib.parse
from types import TracebackType
from typing import Any

import msgspec
import numpy as np
import urllib3
from urllib3.exceptions import HTTPError, LocationValueError, NewConnectionError, ProtocolError, TimeoutError

from paddleport.errors import ObservationError, ServerError, UsageError
from paddleport.observation import is_finite
from paddleport.spaces import Array

_BACKOFF_SECONDS = 0.1
_UNAVAILABLE = 503
_CONNECTIONS = 16


class Client:
    """A policy server, over connections that are kept and shared; it may be used from several threads.

    A request is repeated, after a growing pause, where the connection is lost or the server answers 503: to act
    changes nothing on the server, so an observation may be sent twice. A time-out is not repeated.

    Args:
        url: the server's, such as `http://127.0.0.1:8000`.
        timeout: seconds until a request is given up.
        retries: how often a request is repeated.

    Example:
        >>> with Client("http://127.0.0.1:8000") as client:
        ...     client.act("cartpole", env.reset())
        1
    """

    def __init__(self, url: str, *, timeout: float = 10.0, retries: int = 3) -> None:
        self.url = url.rstrip("/")
        self._retries = retries
        self._prefix, self._pool = _connect(self.url, timeout)

    def act(self, name: str, obs: Any, version: int | None = None) -> Any:  # noqa: ANN401 - array or list in; int or array out
        """The deterministic action for one observation: an int for Discrete, an array for Box.

        Args:
            name: the policy.
            obs: the raw observation: an array, a list, or what `env.reset()` returned.
            version: of the policy; by default the newest that is ready.

        Raises:
            ObservationError: the observation does not belong to the policy's space.
            ServerError: the server cannot be reached, or refuses the request for another reason.
        """
        answer = self._post(_act_path(name, version), {"observation": _plain(obs)})
        return _action(answer["action"])

    def act_batch(self, name: str, obs: Any, version: int | None = None) -> Array:  # noqa: ANN401
        """The deterministic actions for observations [batch, …]: [batch] for Discrete, [batch, …] for Box.

        Raises:
            ObservationError: an observation does not belong to the policy's space.
            ServerError: the server cannot be reached, or refuses the request for another reason.
        """
        answer = self._post(_act_path(name, version), {"observations": _plain(obs)})
        return _array(answer["actions"])

    def policies(self) -> list[dict[str, Any]]:
        """What acts under each name: spaces, version, precision, provider, measured return.

        Raises:
            ServerError: the server cannot be reached.
        """
        listing: list[dict[str, Any]] = self._ask("GET", "/v1/policies")["policies"]
        return listing

    def ready(self) -> bool:
        """Whether the server answers and can act; asks once, without repeating."""
        try:
            return self._pool.request("GET", self._prefix + "/v2/health/ready").status == 200
        except HTTPError:
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

    def _post(self, path: str, content: dict[str, Any]) -> Any:  # noqa: ANN401 - decoded JSON
        return self._ask("POST", path, msgspec.json.encode(content))

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:  # noqa: ANN401
        response = self._send(method, path, body)
        try:
            content = msgspec.json.decode(response.data)
        except msgspec.DecodeError as error:
            raise ServerError(
                f"{self.url}{path} answered {response.status} without JSON",
                status=response.status,
                todo="Is this the URL of a Paddleport server?",
            ) from error
        if response.status == 200:
            return content
        raise self._error(response, content)

    def _send(self, method: str, path: str, body: bytes | None) -> urllib3.BaseHTTPResponse:
        """The server's answer, whatever it is, after as many tries as it takes and are allowed."""
        try:
            for attempt in range(self._retries):
                with contextlib.suppress(NewConnectionError, ProtocolError):
                    response = self._pool.request(method, self._prefix + path, body=body)
                    if response.status != _UNAVAILABLE:
                        return response
                time.sleep(_BACKOFF_SECONDS * 2**attempt)
            return self._pool.request(method, self._prefix + path, body=body)
        except HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: HTTPError) -> ServerError:
        if isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError):
            return ServerError(
                f"{self.url} did not answer in time", todo="Raise the client's timeout, or look at the server"
            )
        return ServerError(
            f"{self.url} cannot be reached ({error})", todo="Start the server with: paddleport serve --models models"
        )

    @staticmethod
    def _error(response: urllib3.BaseHTTPResponse, content: Any) -> ServerError | ObservationError:  # noqa: ANN401
        message = content.get("error") if isinstance(content, dict) else None
        text = str(message or f"The server answered {response.status}").removesuffix(".")
        if response.status == 400 and response.headers.get("Paddleport-Error") == ObservationError.__name__:
            return ObservationError(text)
        return ServerError(text, status=response.status)


def _connect(url: str, timeout: float) -> tuple[str, urllib3.HTTPConnectionPool]:
    """The path that the URL has, and connections to its host, none of which is open yet."""
    try:
        parsed = urllib3.util.parse_url(url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError("a scheme and a host are needed")
        headers = {"Content-Type": "application/json"}
        pool = urllib3.connection_from_url(url, maxsize=_CONNECTIONS, timeout=timeout, retries=False, headers=headers)
    except (LocationValueError, ValueError) as error:
        raise UsageError("This is no server's URL", expected="such as http://127.0.0.1:8000", got=repr(url)) from error
    return parsed.path or "", pool


def _act_path(name: str, version: int | None) -> str:
    policy = "/v1/policies/" + urllib.parse.quote(name, safe="")
    return f"{policy}/act" if version is None else f"{policy}/versions/{version}/act"


def _plain(obs: Any) -> Any:  # noqa: ANN401
    """An observation as nested lists, once it is sure that JSON can carry it."""
    if isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict):
        obs = obs[0]  # env.reset() returns the observation and a dictionary
    try:
        array = np.asarray(obs)
    except ValueError as error:
        raise ObservationError("This is no observation", expected="an array", got=error) from error
    if array.dtype.kind == "f" and not is_finite(array.astype(np.float64, copy=False), np.dtype(np.float64)):
        raise ObservationError("This observation is not finite", expected="finite numbers", got=array.tolist())
    return array.tolist()


def _action(action: Any) -> Any:  # noqa: ANN401
    return action if isinstance(action, int) else _array(action)


def _array(numbers: Any) -> Array:  # noqa: ANN401
    """Actions as the environment takes them: float32, which Gymnasium accepts for float64 too, or int64."""
    array = np.asarray(numbers)
    return array.astype(np.float32) if array.dtype.kind == "f" else array
