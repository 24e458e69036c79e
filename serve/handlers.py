"""One function a route: a request's parts in, a response out. Knows no web framework.

Every error that a handler raises becomes its JSON answer in one place, `guard`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from paddleport.errors import ObservationError, PaddleportError
from serve.http.request import Request
from serve.jobs import CALLER, Job, Jobs, OutOfDistributionError, chosen
from serve.protocol import describe
from serve.protocol.messages import RequestError, Response, error_response, json_response
from serve.runtime.errors import NotReadyError, RefusedError, UnknownPolicyError
from serve.runtime.repository import Repository
from serve.runtime.statistics import Statistics
from serve.runtime.table import states
from serve.settings import Settings

_LOG = logging.getLogger(__name__)
_STATUS: dict[type[PaddleportError], int] = {
    ObservationError: 400,
    OutOfDistributionError: 422,
    UnknownPolicyError: 404,
    NotReadyError: 503,
    RefusedError: 409,
}


class Handlers:
    """The routes of the server over one repository.

    Args:
        repository: of this process.
        settings: limits.
        statistics: what is counted.
    """

    def __init__(self, repository: Repository, settings: Settings, statistics: Statistics | None = None) -> None:
        self.repository = repository
        self.statistics = statistics or Statistics()
        self.jobs = Jobs(settings, self.statistics)
        self.ready = True

    def begin(self, protocol: str, request: Request, name: str, version: str | None = None) -> Job:
        """Check a request to act or infer.

        Raises:
            PaddleportError: it cannot be answered.
        """
        route = self.repository.route(name)
        policy, shadow = chosen(route, version_number(version), request.headers.get(CALLER, ""))
        try:
            make = self.jobs.act if protocol == "act" else self.jobs.infer
            job = make(request, policy)
        except PaddleportError as error:
            error.policy = policy  # type: ignore[attr-defined]  # whose count it belongs to
            raise
        job.shadow = shadow
        return job

    def act(self, request: Request, name: str, version: str | None = None) -> Response:
        """`POST /v1/policies/{name}[/versions/{version}]/act`."""
        return self._at_once("act", request, name, version)

    def infer(self, request: Request, name: str, version: str | None = None) -> Response:
        """`POST /v2/models/{name}[/versions/{version}]/infer`."""
        return self._at_once("infer", request, name, version)

    def _at_once(self, protocol: str, request: Request, name: str, version: str | None) -> Response:
        job = None
        try:
            job = self.begin(protocol, request, name, version)
            return self.jobs.run(job)
        except PaddleportError as error:
            return self.failed(protocol, job, error)

    def failed(self, protocol: str, job: Job | None, error: Exception) -> Response:
        """Count what went wrong with a request to act, and say it."""
        response = from_error(error) if isinstance(error, PaddleportError) else from_defect(error)
        policy = job.policy if job else getattr(error, "policy", None)
        self.statistics.failed(policy, protocol, response.status)
        return response

    def live(self) -> Response:
        """`GET /v2/health/live`: 200 as long as there is an answer."""
        return json_response({"live": True})

    def server_ready(self) -> Response:
        """`GET /v2/health/ready`: 200 from the moment that everything required has been warmed up until the stop."""
        return json_response({"ready": True}) if self.ready else error_response(503, "The server is stopping.")

    def model_metadata(self, name: str, version: str | None = None) -> Response:
        """`GET /v2/models/{name}[/versions/{version}]`."""
        policy = self.repository.get(name, version_number(version))
        versions = self.repository.ready_versions(name)
        return json_response(describe.model_metadata(policy.manifest, versions, policy.precision, policy.provider))

    def model_ready(self, name: str, version: str | None = None) -> Response:
        """`GET /v2/models/{name}[/versions/{version}]/ready`: 200, or an error that says why not."""
        policy = self.repository.get(name, version_number(version))
        return json_response({"name": name, "version": str(policy.manifest.version), "ready": True})

    def index(self, request: Request) -> Response:
        """`POST /v2/repository/index`: every version that was looked at, and why those that do not serve do not."""
        only_ready = describe.index_filter(request.body)
        return json_response(
            [
                {
                    "name": state.name,
                    "version": str(state.version),
                    "state": "READY" if state.ready else "UNAVAILABLE",
                    "reason": state.reason,
                }
                for state in states(self.repository.table)
                if state.ready or not only_ready
            ]
        )

    def policies(self) -> Response:
        """`GET /v1/policies`: what acts under each name, and which versions were refused."""
        return json_response(
            {
                "policies": [
                    describe.policy_description(policy.manifest, policy.precision, policy.provider)
                    for policy in self.repository.acting()
                ],
                "refused": [
                    {"name": state.name, "version": state.version, "reason": state.reason}
                    for state in states(self.repository.table)
                    if not state.ready
                ],
            }
        )

    def policy(self, name: str, version: str | None = None) -> Response:
        """`GET /v1/policies/{name}[/versions/{version}]`."""
        policy = self.repository.get(name, version_number(version))
        description = describe.policy_description(policy.manifest, policy.precision, policy.provider)
        split = self.repository.route(name).split
        more = {
            "versions": self.repository.ready_versions(name),
            "split": {"kind": split.kind, "version": split.version, "share": split.share} if split else None,
            "provenance": describe.provenance(policy.manifest),
        }
        return json_response({**description, **more})


def guard(handler: Callable[..., Response], *arguments: Any, **named: Any) -> Response:  # noqa: ANN401 - passed on
    """Call a handler; whatever goes wrong in it becomes a JSON error."""
    try:
        return handler(*arguments, **named)
    except PaddleportError as error:
        return from_error(error)
    except Exception as error:  # noqa: BLE001 - the last boundary before the client
        return from_defect(error)


def from_error(error: PaddleportError) -> Response:
    """The answer that tells an error of ours."""
    status = error.status if isinstance(error, RequestError) else _STATUS.get(type(error), 500)
    if status == 500:
        _LOG.error("%s", error)
    response = error_response(status, str(error), type(error).__name__)
    if status == 503:
        response.headers.append(("Retry-After", "1"))
    return response


def from_defect(error: Exception) -> Response:
    """The answer to what should never happen; the log has the rest."""
    _LOG.error("A request failed inside the server", exc_info=error)
    return error_response(500, "The server failed on this request. Its log says why.")


def version_number(text: str | None) -> int | None:
    """A version from its path segment.

    Raises:
        UnknownPolicyError: it is no positive integer, so no version can have this name.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and text == str(int(text))):
        raise UnknownPolicyError("There is no such version", expected="a positive integer", got=repr(text))
    return int(text)
