"""The Flask application: every route, who may use it, and a JSON answer to every error.

Any WSGI server can run it: `gunicorn 'serve.app:create_app()'`, with `PADDLEPORT_MODELS` and the other variables of
`serve.settings` in the environment. `paddleport serve` puts its own HTTP front before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flask
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from serve.admin import Admin
from serve.control import Control, NoControl
from serve.door import Door, Role
from serve.front import Hot, hot_route
from serve.handlers import Handlers, from_defect, from_error, guard
from serve.http.request import from_environ
from serve.protocol import describe
from serve.protocol.messages import RequestError, Response, error_response, json_response
from serve.runtime.local import LateRepository
from serve.runtime.repository import Repository
from serve.settings import Settings
from serve.views import Views
from serve.wsgi import FastRoutes

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


@dataclass(frozen=True)
class Parts:
    """The application before it is put together."""

    settings: Settings
    handlers: Handlers
    control: Control
    door: Door
    flask: flask.Flask

    @property
    def wsgi(self) -> WSGIApplication:
        """Flask's own WSGI application, with every route."""
        return self.flask.wsgi_app


def create_app(
    settings: Settings | None = None, repository: Repository | None = None, control: Control | None = None
) -> flask.Flask:
    """Make the application for a WSGI server.

    Args:
        settings: how to serve; by default what the environment says.
        repository: policies that are open already; by default those of `settings.models`, opened by the process that is
            asked first.
        control: who grants an administrator's wishes; by default nobody.

    Raises:
        ArtifactError: there is nothing to serve.
        UsageError: an environment variable holds what its setting cannot be.
    """
    parts = assemble(settings or Settings.from_environment(), repository, control)
    handlers, door = parts.handlers, parts.door

    def answer(hot: Hot, request: Any) -> Response:  # noqa: ANN401
        refused = door.admit(request, "act")
        if refused is not None:
            return refused
        return guard(handlers.act if hot.protocol == "act" else handlers.infer, request, hot.name, hot.version)

    parts.flask.wsgi_app = FastRoutes(  # type: ignore[method-assign]
        parts.flask.wsgi_app, hot_route, answer, from_error, parts.settings.max_body_bytes
    )
    return parts.flask


def assemble(settings: Settings, repository: Repository | None = None, control: Control | None = None) -> Parts:
    """The application's parts, around one repository.

    Raises:
        ArtifactError: there is nothing to serve.
        UsageError: a setting cannot be meant.
    """
    handlers = Handlers(repository or LateRepository(settings), settings)
    control = control or NoControl(handlers.statistics)
    # Given, lest Flask look them up by the package's name, which a folder of the user's may bear too.
    here = str(Path(__file__).parent)
    app = flask.Flask("serve", static_folder=None, template_folder=None, root_path=here, instance_path=here)
    # Merging would answer // with a redirect, in HTML.
    app.url_map.merge_slashes = False
    parts = Parts(settings, handlers, control, Door(settings), app)
    _add_routes(parts)
    _add_error_handlers(app)
    return parts


def _add_routes(parts: Parts) -> None:
    handlers, admin = parts.handlers, Admin(parts.control)
    views = Views(handlers.repository, parts.control, parts.settings.max_batch)
    model, policy = "/v2/models/<name>", "/v1/policies/<name>"
    in_version = "/versions/<version>"
    _add(parts, "GET", "/v2", lambda: json_response(describe.server_metadata()), "open")
    _add(parts, "GET", "/v2/health/live", handlers.live, "open")
    _add(parts, "GET", "/v2/health/ready", handlers.server_ready, "open")
    _add(parts, "POST", "/v2/repository/index", handlers.index, "act", with_request=True)
    _add(parts, "GET", "/v1/policies", handlers.policies, "act")
    for version in ("", in_version):
        _add(parts, "GET", model + version, handlers.model_metadata, "act")
        _add(parts, "GET", model + version + "/ready", handlers.model_ready, "open")
        _add(parts, "GET", model + version + "/stats", views.model_statistics, "act")
        _add(parts, "GET", policy + version, handlers.policy, "act")
        _add(parts, "POST", model + version + "/infer", handlers.infer, "act", with_request=True)
        _add(parts, "POST", policy + version + "/act", handlers.act, "act", with_request=True)
    _add(parts, "GET", model + "/config", views.model_config, "act")
    _add(parts, "GET", "/v2/models/stats", views.model_statistics, "act")
    _add(parts, "GET", "/v1/statistics", views.statistics, "act")
    _add(parts, "GET", "/metrics", views.metrics, "act" if parts.settings.metrics_auth else "open")
    for path in ("/openapi.json", "/docs", "/", "/page/<file>"):
        _add(parts, "GET", path, views.page if "page" in path else lambda path=path: views.page(path), "open")
    _add(parts, "POST", "/v2/repository/models/<name>/load", admin.load, "admin", with_request=True)
    _add(parts, "POST", "/v2/repository/models/<name>/unload", admin.unload, "admin", with_request=True)
    _add(parts, "POST", policy + "/rollback", admin.roll_back, "admin", with_request=True)
    _add(parts, "PUT", policy + "/split", admin.split, "admin", with_request=True)
    _add(parts, "DELETE", policy + "/split", admin.unsplit, "admin", with_request=True)


def _add(
    parts: Parts,
    method: str,
    path: str,
    handler: Any,  # noqa: ANN401 - with a route's own arguments
    role: Role,
    *,
    with_request: bool = False,
) -> None:
    def view(**arguments: str) -> flask.Response:
        try:
            request = from_environ(flask.request.environ, parts.settings.max_body_bytes)
        except RequestError as error:
            return _to_flask(from_error(error))
        refused = parts.door.admit(request, role)
        if refused is not None:
            return _to_flask(refused)
        given = (request,) if with_request else ()
        return _to_flask(guard(handler, *given, **arguments))

    # Flask's own answer to OPTIONS is no JSON.
    parts.flask.add_url_rule(path, f"{method} {path}", view, methods=[method], provide_automatic_options=False)


def _add_error_handlers(app: flask.Flask) -> None:
    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> flask.Response:
        response = _to_flask(error_response(error.code or 500, _explain(error)))
        if isinstance(error, MethodNotAllowed) and error.valid_methods:
            response.headers["Allow"] = ", ".join(error.valid_methods)
        return response

    @app.errorhandler(Exception)
    def _defect(error: Exception) -> flask.Response:
        return _to_flask(from_defect(error))


def _explain(error: HTTPException) -> str:
    request = flask.request
    if isinstance(error, NotFound):
        return (
            f"There is no such route: expected /v1/policies/NAME/act, /v2/models/NAME/infer or another of "
            f"docs/serving.md, got {request.path!r}."
        )
    if isinstance(error, MethodNotAllowed):
        allowed = " or ".join(sorted({"GET", "POST", "PUT", "DELETE"} & set(error.valid_methods or ())))
        return f"This route does not take {request.method}: expected {allowed}, got {request.method}."
    return f"{error.name}: {error.description}"


def _to_flask(response: Response) -> flask.Response:
    return flask.Response(response.body, response.status, response.headers)
