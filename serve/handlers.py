"""One function a route: a request's parts in, a response out. Knows no web framework.

Every error that a handler raises becomes its JSON answer in one place, `guard`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from paddleport.errors import ObservationError, PaddleportError
from serve.protocol import act, answer, describe, infer
from serve.protocol.body import read_body
from serve.protocol.messages import RequestError, Response, error_response, json_response
from serve.runtime.repository import NotReadyError, Repository, UnknownPolicyError
from serve.settings import Settings

Environ: TypeAlias = dict[str, Any]

_LOG = logging.getLogger(__name__)
_STATUS: dict[type[PaddleportError], int] = {ObservationError: 400, UnknownPolicyError: 404, NotReadyError: 503}


class Handlers:
    """The routes of the server over one repository."""

    def __init__(self, repository: Repository, settings: Settings) -> None:
        self.repository = repository
        self._limit = settings.max_body_bytes

    def act(self, environ: Environ, name: str, version: str | None = None) -> Response:
        """`POST /v1/policies/{name}[/versions/{version}]/act`."""
        policy = self.repository.get(name, version_number(version))
        body = read_body(environ, self._limit)
        request = act.decode(body, policy.manifest.observation_space)
        return act.encode(request, policy.act_checked(request.obs), policy.identity)

    def infer(self, environ: Environ, name: str, version: str | None = None) -> Response:
        """`POST /v2/models/{name}[/versions/{version}]/infer`."""
        policy = self.repository.get(name, version_number(version))
        body = read_body(environ, self._limit)
        request = infer.decode(body, environ.get("HTTP_INFERENCE_HEADER_CONTENT_LENGTH"), policy.manifest)
        results = policy.run(request.feeds, [output.name for output in request.outputs])
        return answer.encode(request, results, policy.manifest.name, policy.manifest.version)

    def model_metadata(self, name: str, version: str | None = None) -> Response:
        """`GET /v2/models/{name}[/versions/{version}]`."""
        policy = self.repository.get(name, version_number(version))
        versions = self.repository.ready_versions(name)
        return json_response(describe.model_metadata(policy.manifest, versions, policy.precision, policy.provider))

    def model_ready(self, name: str, version: str | None = None) -> Response:
        """`GET /v2/models/{name}[/versions/{version}]/ready`: 200, or an error that says why not."""
        policy = self.repository.get(name, version_number(version))
        return json_response({"name": name, "version": str(policy.manifest.version), "ready": True})

    def index(self) -> Response:
        """`POST /v2/repository/index`: every version that was looked at, and why the refused ones were."""
        return json_response(
            [
                {
                    "name": state.name,
                    "version": str(state.version),
                    "state": "READY" if state.ready else "UNAVAILABLE",
                    "reason": state.reason,
                }
                for state in self.repository.states()
            ]
        )

    def policies(self) -> Response:
        """`GET /v1/policies`: what acts under each name, and which versions were refused."""
        return json_response(
            {
                "policies": [
                    describe.policy_description(policy.manifest, policy.precision, policy.provider)
                    for policy in self.repository.newest()
                ],
                "refused": [
                    {"name": state.name, "version": state.version, "reason": state.reason}
                    for state in self.repository.states()
                    if not state.ready
                ],
            }
        )

    def policy(self, name: str, version: str | None = None) -> Response:
        """`GET /v1/policies/{name}[/versions/{version}]`."""
        policy = self.repository.get(name, version_number(version))
        description = describe.policy_description(policy.manifest, policy.precision, policy.provider)
        return json_response({**description, "versions": self.repository.ready_versions(name)})


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
    return error_response(status, str(error), type(error).__name__)


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
