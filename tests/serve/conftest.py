"""A models folder, a server over a real socket, and the application inside this process."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import urllib3

import bundles

START_SECONDS = 30.0  # of patience with a busy machine; that a start takes less than 3 s is a test of its own


@dataclass
class RunningServer:
    process: subprocess.Popen
    lines: list[str]
    url: str = ""
    pool: urllib3.HTTPConnectionPool = field(init=False)

    def wait_until_ready(self) -> None:
        while not self.url and self.process.poll() is None and time.monotonic() < self.started + START_SECONDS:
            time.sleep(0.005)
            self.url = next((found[1] for line in self.lines if (found := re.search(r" at (https?://\S+)", line))), "")
        assert self.url, f"the server did not start: {self.lines}"
        self.pool = urllib3.connection_from_url(self.url, retries=False, timeout=10.0)

    started: float = field(default_factory=time.monotonic)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.split("://")[1].rsplit(":", 1)
        return host, int(port)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10.0)

    def request(self, method: str, path: str, body=None, headers=None):
        """Status, headers and decoded JSON of an answer; it must be JSON."""
        response = self.pool.request(method, path, body=body, headers=headers)
        return response.status, response.headers, json.loads(response.data)

    def act(self, name: str, content: object, version: int | None = None):
        middle = "" if version is None else f"/versions/{version}"
        return self.request("POST", f"/v1/policies/{name}{middle}/act", json.dumps(content).encode())[::2]

    def workers(self) -> list[int]:
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split()]

    def stop(self) -> int:
        """End it by SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=20)


def launch(models: Path, *options: str, cwd: Path | None = None, command: list[str] | None = None) -> RunningServer:
    started = time.monotonic()
    process = subprocess.Popen(
        [*(command or [sys.executable, "-m", "paddleport"]), "serve", "--models", str(models), "--port", "0", *options],
        cwd=cwd,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True).start()
    return RunningServer(process, lines, started=started)


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """`cartpole` 1 (which acts the other way) and 2, and `reacher` 1. Do not change it."""
    folder = tmp_path_factory.mktemp("serve") / "models"
    bundles.publish_discrete(folder, flip=True)
    bundles.publish_discrete(folder)
    bundles.publish_box(folder)
    return folder


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    """One server for a module's tests."""
    running = launch(models, cwd=tmp_path_factory.mktemp("elsewhere"))
    try:
        running.wait_until_ready()
        yield running
    finally:
        code = running.stop()
    assert code == 0, running.lines


@pytest.fixture(scope="session")
def launcher():
    """`launch`, for fixtures of wider scopes than a test's; they stop what they start."""
    return launch


@pytest.fixture
def start_server(tmp_path):
    """Start further servers; they end with the test."""
    running: list[RunningServer] = []

    def start(models: Path, *options: str, cwd: Path = tmp_path, command: list[str] | None = None) -> RunningServer:
        running.append(launch(models, *options, cwd=cwd, command=command))
        running[-1].wait_until_ready()
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture(scope="session")
def run_serve():
    """Run a `paddleport serve` that is expected to end by itself; gives exit code and stderr."""

    def run(*arguments: str, cwd: Path | None = None) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "paddleport", "serve", *arguments],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    return run


@pytest.fixture(scope="session")
def call(models):
    """Call the application inside this process: status, headers and body of the answer."""
    from serve.app import create_app
    from serve.settings import Settings

    return caller(create_app(Settings(models=models, max_body_bytes=100_000)))


def caller(app):
    import io

    def call(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None):
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.url_scheme": "http",
        }
        for name, value in (headers or {}).items():
            key = name.upper().replace("-", "_")
            environ[key if key.startswith("CONTENT_") and key != "CONTENT_ENCODING" else f"HTTP_{key}"] = value
        seen = {}

        def start_response(status, answer_headers, exc_info=None):
            seen.update(status=int(status.split(" ", 1)[0]), headers=dict(answer_headers))

        answer = b"".join(app(environ, start_response))
        return seen["status"], seen["headers"], answer

    return call
