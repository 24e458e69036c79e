"""The server against its own OpenAPI document, by schemathesis, and under gunicorn."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import hypothesis
import pytest
import schemathesis
import urllib3

from serve.app import create_app
from serve.protocol import openapi
from serve.runtime.local import open_repository
from serve.settings import Settings

schemathesis_checks = pytest.importorskip("schemathesis.checks", reason="needs schemathesis")
schema = schemathesis.openapi.from_dict(openapi.document())


@pytest.fixture(scope="module")
def url(server):
    return server.url


@schema.parametrize()
@hypothesis.settings(
    max_examples=20, deadline=None, suppress_health_check=list(hypothesis.HealthCheck), derandomize=True
)
def test_answers_are_what_the_document_says(case, url):
    response = case.call(base_url=url)
    assert response.status_code < 500 or response.status_code in (501, 503, 504), response.text
    case.validate_response(
        response, checks=[schemathesis_checks.response_schema_conformance, schemathesis_checks.content_type_conformance]
    )
    documented = case.operation.definition.raw["responses"]
    assert str(response.status_code) in documented or response.status_code in (404, 405, 431)


def test_every_route_of_the_application_is_in_the_document(models):
    settings = Settings(models=models)
    app = create_app(settings, open_repository(settings)[0])
    routes = {
        (rule.rule.replace("<", "{").replace(">", "}"), method.lower())
        for rule in app.url_map.iter_rules()
        for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    documented = {(path, method) for path, item in openapi.document()["paths"].items() for method in item}
    undocumented = {path for path, _ in routes - documented}
    assert undocumented == {"/", "/docs", "/openapi.json", "/page/{file}", "/metrics"}
    assert {(path, method) for path, method in documented if method != "parameters"} <= routes


def test_gunicorn_with_a_preloaded_application_acts_in_every_worker(models, tmp_path):
    pytest.importorskip("gunicorn", reason="needs gunicorn")
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["-m", "gunicorn", "--preload", "-w", "2", "-b", f"127.0.0.1:{port}", "serve.app:create_app()"]
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=Path(__file__).parents[2],
        env={"PADDLEPORT_MODELS": str(models), "PATH": ""},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with urllib3.HTTPConnectionPool("127.0.0.1", port, retries=urllib3.Retry(20, backoff_factor=0.1)) as pool:
            for _ in range(8):
                answer = pool.request(
                    "POST", "/v1/policies/cartpole/act", body=json.dumps({"observation": [0, 0, 1, 0]}),
                    headers={"Connection": "close"},
                )  # fmt: skip
                assert answer.json()["action"] == 1
            assert pool.request("POST", "/v1/policies/cartpole/rollback").status == 501
            assert pool.request("GET", "/metrics").status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert process.wait(timeout=20) == 0
        process.stderr.close()
