"""The Flask application: every route, and a JSON answer to every error.

Any WSGI server can run it: `gunicorn 'serve.app:create_app()'`, with `PADDLEPORT_MODELS` and the other
variables of `serve.settings` in the environment.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import flask
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from serve.fast import FastRoutes
from serve.handlers import Handlers, from_defect, guard
from serve.protocol import describe
from serve.protocol.messages import Response, error_response, json_response
from serve.runtime.repository import Repository
from serve.settings import Settings

_LOG = logging.getLogger(__name__)


def create_app(settings: Settings | None = None, repository: Repository | None = None) -> flask.Flask:
    """Make the application.

    Args:
        settings: how to serve; by default what the environment says.
        repository: policies that are open already; by default those of `settings.models` are opened.

    Raises:
        ArtifactError: there is nothing to serve.
        UsageError: an environment variable holds what its setting cannot be.
    """
    settings = settings or Settings.from_environment()
    if repository is None:
        repository = Repository.open(settings.models, settings.precision, settings.threads)
        for state in repository.states():
            if not state.ready:
                _LOG.warning("%s version %d is refused: %s", state.name, state.version, state.reason)
    handlers = Handlers(repository, settings)
    # Given, lest Flask look them up by the package's name, which a folder of the user's may bear too.
    here = str(Path(__file__).parent)
    app = flask.Flask("serve", static_folder=None, template_folder=None, root_path=here, instance_path=here)
    # Merging would answer // with a redirect, in HTML.
    app.url_map.merge_slashes = False
    _add_routes(app, handlers)
    _add_error_handlers(app)
    app.wsgi_app = FastRoutes(app.wsgi_app, handlers)  # type: ignore[method-assign]
    return app


def _add_routes(app: flask.Flask, handlers: Handlers) -> None:
    model, policy = "/v2/models/<name>", "/v1/policies/<name>"
    in_version = "/versions/<version>"
    plain = {
        ("GET", "/v2"): lambda: json_response(describe.server_metadata()),
        ("GET", "/v2/health/live"): lambda: json_response({"live": True}),
        ("GET", "/v2/health/ready"): lambda: json_response({"ready": True}),
        ("POST", "/v2/repository/index"): handlers.index,
        ("GET", "/v1/policies"): handlers.policies,
    }
    for (method, path), handler in plain.items():
        _add(app, method, path, handler)
    for version in ("", in_version):
        _add(app, "GET", model + version, handlers.model_metadata)
        _add(app, "GET", model + version + "/ready", handlers.model_ready)
        _add(app, "GET", policy + version, handlers.policy)
        _add(app, "POST", model + version + "/infer", handlers.infer, with_environ=True)
        _add(app, "POST", policy + version + "/act", handlers.act, with_environ=True)


def _add(app: flask.Flask, method: str, path: str, handler: Any, *, with_environ: bool = False) -> None:  # noqa: ANN401
    def view(**arguments: str) -> flask.Response:
        given = (flask.request.environ,) if with_environ else ()
        return _to_flask(guard(handler, *given, **arguments))

    endpoint = f"{method} {path}"
    # Flask's own answer to OPTIONS is no JSON.
    app.add_url_rule(path, endpoint, view, methods=[method], provide_automatic_options=False)


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
        allowed = " or ".join(sorted({"GET", "POST"} & set(error.valid_methods or ())))
        return f"This route does not take {request.method}: expected {allowed}, got {request.method}."
    return f"{error.name}: {error.description}"


def _to_flask(response: Response) -> flask.Response:
    return flask.Response(response.body, response.status, response.headers)
