"""The short way to the routes that have to be quick: a WSGI callable in front of Flask.

Flask costs more than parsing, acting and answering together. The two hot routes are therefore recognised here
and go straight to the handlers that Flask's own views call; everything else goes on to Flask.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from serve.handlers import Environ, Handlers, guard

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


class FastRoutes:
    """WSGI middleware that answers act and infer itself.

    Args:
        application: what answers everything else.
        handlers: the routes.
    """

    def __init__(self, application: WSGIApplication, handlers: Handlers) -> None:
        self._application = application
        self._handlers = handlers

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if environ["REQUEST_METHOD"] != "POST":
            return self._application(environ, start_response)
        match environ["PATH_INFO"].split("/"):
            case ["", "v1", "policies", name, "act"]:
                response = guard(self._handlers.act, environ, name)
            case ["", "v2", "models", name, "infer"]:
                response = guard(self._handlers.infer, environ, name)
            case ["", "v1", "policies", name, "versions", version, "act"]:
                response = guard(self._handlers.act, environ, name, version)
            case ["", "v2", "models", name, "versions", version, "infer"]:
                response = guard(self._handlers.infer, environ, name, version)
            case _:
                return self._application(environ, start_response)
        start_response(response.status_line, response.headers)
        return [response.body]
