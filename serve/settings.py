"""Everything that decides how the server starts, from flags or from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import msgspec

from paddleport.errors import UsageError
from paddleport.manifest import PRECISIONS, Precision, check_name
from paddleport.options import Flag
from serve.runtime.guard import Guard

PREFIX = "PADDLEPORT_"
_AT_LEAST_ONE = ("max_body_bytes", "max_batch", "max_connections", "max_queue", "workers")
_ABOVE_ZERO = ("deadline", "header_timeout", "body_timeout", "idle_timeout", "watch_seconds", "stop_timeout")


@dataclass(frozen=True)
class Settings:
    """What to serve, to whom, and within which limits.

    Every one of them is read from the environment too, as PADDLEPORT_ and its name in capitals; a flag wins.
    """

    models: Path = Path("models")
    """The models folder: policies as NAME/VERSION, as paddleport export publishes them."""
    host: str = "127.0.0.1"
    """Address to listen at. One that other machines reach needs --auth-token-file, or --insecure."""
    port: int = 8000
    """Port to listen at; 0 takes a free one and says which."""
    precision: Precision = "float32"
    """Which file of each bundle runs."""
    policy: tuple[str, ...] = ()
    """Policies that have to be ready, such as cartpole, or pinned to a version, such as cartpole=2."""
    model_control: Literal["watch", "explicit"] = "watch"
    """watch: a version is served as soon as it is published.
    explicit: only what --policy names, and what is loaded through the API."""
    watch_seconds: float = 1.0
    """How often the models folder is looked at."""
    workers: int = 1
    """Processes that answer requests, each with its own copy of the policies."""
    threads: int = 0
    """Threads within one operator, for policies that take long.
    0: as many as the processors that this process may use, divided by the workers."""
    provider: Literal["auto", "tensorrt", "cuda", "cpu"] = "auto"
    """What runs the policies. auto: the first of TensorRT, CUDA and CPU that is there."""
    allow_fallback: Flag = False
    """Start on the CPU too where the --provider that was asked for is not there."""
    cache: Path = Path("~/.cache/paddleport")
    """Where TensorRT keeps its engines."""
    batching: Literal["auto", "on", "off"] = "auto"
    """Run requests that arrive together as one batch.
    auto: for policies that take longer than a millisecond, and on a GPU, those that arrive while a batch runs; for
    others those that are there at the same moment."""
    max_batch_delay_us: int = 0
    """How long a batch waits for more requests, in microseconds. One that finds the policy busy waits for it anyway."""
    max_batch: int = 4096
    """Most observations in one request, and in one batch."""
    max_body_bytes: int = 16 * 2**20
    """Largest body of a request, before and after decompression."""
    max_connections: int = 1000
    """Open connections of one worker; more are answered 503."""
    max_queue: int = 256
    """Requests that may wait in one worker; more are answered 503."""
    deadline: float = 10.0
    """Seconds until a request that waits or runs is answered 504."""
    header_timeout: float = 10.0
    """Seconds until a request's head has to be whole."""
    body_timeout: float = 30.0
    """Seconds until its body has to be whole."""
    idle_timeout: float = 75.0
    """Seconds that a connection may be silent between two requests."""
    stop_timeout: float = 5.0
    """Seconds for what is in flight when the server is stopped."""
    auth_token_file: Path | None = None
    """Who may ask: hashes of bearer tokens with their roles, as paddleport token writes it."""
    insecure: Flag = False
    """Allow a --host that other machines reach without tokens: anybody who reaches it may do everything."""
    metrics_auth: Flag = False
    """Ask for a token at /metrics too."""
    rate_limit: float = 0.0
    """Requests a second of one worker that each token may make, or each address without tokens; 0: any number."""
    tls_certificate: Path | None = None
    """Serve HTTPS with this certificate (PEM)."""
    tls_key: Path | None = None
    """Its private key (PEM)."""
    tls_client_ca: Path | None = None
    """Accept only clients with a certificate of this authority (PEM)."""
    ood: str = "measure"
    """Observations far from those of the training: measure counts them.
    reject:Z answers 422 to those more than Z standard deviations away."""
    guard: str = "error"
    """What answers where a policy's action is not finite or out of bounds.
    error: 500. last: the caller's previous action.
    Or an action as JSON, such as 0 or [0.0, 0.5]."""
    access_log: Flag = False
    """Write one line of JSON for every request to stdout."""
    traces: Flag = False
    """Send a span of OpenTelemetry for every request, to where OTEL_EXPORTER_OTLP_ENDPOINT says."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.precision not in PRECISIONS:
            raise UsageError("Unknown precision", expected=f"one of {', '.join(PRECISIONS)}", got=self.precision)
        for name in _AT_LEAST_ONE:
            _check(name, getattr(self, name), 1)
        for name in ("threads", "max_batch_delay_us", "rate_limit"):
            _check(name, getattr(self, name), 0)
        for name in _ABOVE_ZERO:
            _check(name, getattr(self, name), 0.01)
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise UsageError(
                "HTTPS needs a certificate and its key", expected="--tls-certificate and --tls-key, or neither"
            )
        if self.tls_client_ca and not self.tls_certificate:
            raise UsageError("--tls-client-ca needs HTTPS", todo="Give --tls-certificate and --tls-key too")
        self.pins()
        self.ood_limit()
        Guard(self.guard)

    def pins(self) -> dict[str, int | None]:
        """The policies that have to be ready, with the version that is pinned, or None for the newest.

        Raises:
            UsageError: `--policy` names none.
        """
        found: dict[str, int | None] = {}
        for text in self.policy:
            name, given, version = text.partition("=")
            if given and not (version.isascii() and version.isdigit() and 0 < len(version) < 10 and int(version)):
                raise UsageError("--policy names no version", expected="such as cartpole=2", got=repr(text))
            found[check_name(name)] = int(version) if given else None
        return found

    def ood_limit(self) -> float | None:
        """Standard deviations beyond which an observation is refused, or None.

        Raises:
            UsageError: `--ood` is neither `measure` nor `reject:Z`.
        """
        if self.ood == "measure":
            return None
        kind, _, number = self.ood.partition(":")
        try:
            limit = float(number)
        except ValueError:
            limit = 0.0
        if kind != "reject" or not 0 < limit < float("inf"):
            raise UsageError("--ood cannot be meant", expected="measure, or such as reject:6", got=repr(self.ood))
        return limit

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Settings from `PADDLEPORT_MODELS`, `PADDLEPORT_MAX_BATCH` and so on; lists are separated by commas.

        Raises:
            UsageError: a variable holds what its setting cannot be.
        """
        environment = os.environ if environment is None else environment
        given: dict[str, Any] = {}
        for field in fields(cls):
            text = environment.get(PREFIX + field.name.upper())
            if text is not None:
                given[field.name] = _read(field.name, str(field.type), text)
        return cls(**given)


_TYPES: dict[str, Any] = {"str": str, "int": int, "float": float, "Flag": bool, "Precision": Precision}


def _read(name: str, kind: str, text: str) -> Any:  # noqa: ANN401 - a field's value
    """One environment variable as its field's value."""
    if kind.startswith("Path"):
        return Path(text)
    if kind.startswith("tuple"):
        return tuple(part for part in text.split(",") if part)
    if kind.startswith("Literal"):
        wanted: Any = Literal[tuple(word.strip(" \"'") for word in kind[8:-1].split(","))]
    else:
        wanted = _TYPES[kind]
    try:
        return msgspec.convert(text.lower() if wanted is bool else text, wanted, strict=False)
    except msgspec.ValidationError as error:
        expected = "true or false" if wanted is bool else str(error)
        raise UsageError(f"{PREFIX}{name.upper()} cannot be meant", expected=expected, got=repr(text)) from error


def _check(name: str, value: float, least: float) -> None:
    if not least <= value < float("inf"):
        flag = "--" + name.replace("_", "-")
        raise UsageError(f"{flag} is too small", expected=f"{least:g} or more", got=value)
