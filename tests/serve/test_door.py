"""Tokens, roles, rates, HTTPS, and what needs none of them."""

import json
import os
import ssl
import subprocess
import sys

import pytest
import urllib3

from paddleport.errors import UsageError
from serve.door import new_token, read_tokens

ACT = json.dumps({"observation": [0, 0, 1, 0]}).encode()
PATH = "/v1/policies/cartpole/act"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """A token file, and the secrets by role."""
    file = tmp_path_factory.mktemp("door") / "tokens"
    secrets = {}
    for role in ("act", "admin"):
        command = ["token", "--file", str(file), "--role", role, "--name", f"{role}-1"]
        done = subprocess.run(
            [sys.executable, "-m", "paddleport", *command], capture_output=True, text=True, check=True
        )
        secrets[role] = done.stdout.strip()
    return file, secrets


@pytest.fixture(scope="module")
def guarded(models, tokens, launcher, tmp_path_factory):
    file, _ = tokens
    running = launcher(
        models, "--auth-token-file", str(file), "--host", "0.0.0.0", "--metrics-auth",  # noqa: S104
        cwd=tmp_path_factory.mktemp("door"),
    )  # fmt: skip
    running.wait_until_ready()
    running.url = running.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    running.pool = urllib3.connection_from_url(running.url, retries=False, timeout=10.0)
    yield running
    assert running.stop() == 0


def bearing(secret):
    return {"Authorization": f"Bearer {secret}"}


def test_the_file_holds_hashes_only_and_is_the_owners(tokens):
    file, secrets = tokens
    text = file.read_text()
    assert not any(secret in text for secret in secrets.values())
    assert text.count("sha256:") == 2
    assert file.stat().st_mode & 0o777 == 0o600


def test_without_a_known_token_nothing_is_answered_but_health_and_the_page(guarded, tokens):
    _, secrets = tokens
    for headers in (
        {},
        bearing("pp-wrong"),
        {"Authorization": "Basic eDp5"},
        bearing(""),
        bearing(secrets["act"][:-1]),
    ):
        status, answered, content = guarded.request("POST", PATH, ACT, headers)
        assert status == 401
        assert "WWW-Authenticate" in answered
        assert "error" in content
    for path in ("/v1/policies", "/v2/models/cartpole", "/v1/statistics", "/metrics", "/v2/models/cartpole/config"):
        assert guarded.request("GET", path)[0] == 401, path
    assert guarded.request("POST", "/v2/models/cartpole/infer", b"{}")[0] == 401
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/cartpole/ready"):
        assert guarded.request("GET", path)[0] == 200
    assert guarded.pool.request("GET", "/").status == 200


def test_a_large_body_without_a_token_is_refused_before_it_is_whole(guarded, tokens):
    _, secrets = tokens
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n".encode()
    announced = head + b"Content-Length: 1000000\r\n\r\n"
    pieces = head + b"Transfer-Encoding: chunked\r\n\r\n20000\r\n" + b" " * 0x20000 + b"\r\n"
    for sent in (announced, pieces):
        with guarded.connect() as connection:
            connection.sendall(sent)
            answer = connection.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"WWW-Authenticate" in answer
    body = b" " * 1_000_000 + ACT
    assert guarded.request("POST", PATH, body, bearing(secrets["act"]))[0] == 200
    # A token that comes too late, behind the body, opens nothing.
    late = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(ACT), ACT)
    with guarded.connect() as connection:
        connection.sendall(head + late + f"Authorization: Bearer {secrets['act']}\r\n\r\n".encode())
        assert connection.recv(10_000).startswith(b"HTTP/1.1 401 ")


def test_a_client_may_act_and_only_an_administrator_may_change_things(guarded, tokens):
    _, secrets = tokens
    assert guarded.request("POST", PATH, ACT, bearing(secrets["act"]))[0] == 200
    assert guarded.pool.request("GET", "/metrics", headers=bearing(secrets["act"])).status == 200
    changes = [
        ("POST", "/v2/repository/models/reacher/unload", b""),
        ("POST", "/v2/repository/models/reacher/load", b""),
        ("POST", "/v2/repository/models/re%61cher/unload", b""),
        ("POST", "/v2/repository/models%2Freacher/unload", b""),
        ("POST", "/v1/policies/cartpole/rollback", b""),
        ("PUT", "/v1/policies/cartpole/split", b'{"kind": "canary", "version": 1, "share": 0.5}'),
        ("DELETE", "/v1/policies/cartpole/split", b""),
    ]
    for method, path, body in changes:
        status, _, content = guarded.request(method, path, body, bearing(secrets["act"]))
        assert status == 403, path
        assert "role admin" in content["error"]
    assert guarded.request("POST", "/v2/repository/models/reacher/load", b"", bearing(secrets["admin"]))[0] == 200


def test_another_sites_page_may_change_nothing(server):
    for origin in ("http://evil.example", "null", "http://[", "http://[zz]/"):
        for path in ("/v2/repository/models/reacher/unload", PATH):
            assert server.request("POST", path, ACT, {"Origin": origin})[0] == 403
    own = {"Origin": server.url}
    assert server.request("POST", PATH, ACT, own)[0] == 200


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "secret\n", "root x sha256:" + "0" * 64, "act x sha256:zz", "act x " + "0" * 64]
)
def test_a_file_that_holds_no_tokens_stops_the_start(models, tmp_path, run_serve, text):
    (tmp_path / "tokens").write_text(text)
    code, said = run_serve("--models", str(models), "--port", "0", "--auth-token-file", str(tmp_path / "tokens"))
    assert code != 0
    assert "token" in said
    assert "secret" not in said.replace("tokens", "")


def test_a_token_file_that_anybody_may_write_is_refused(tmp_path):
    secret, line = new_token("act", "x")
    (tmp_path / "tokens").write_text(line)
    assert read_tokens(tmp_path / "tokens")[0].name == "x"
    assert secret not in line
    (tmp_path / "tokens").chmod(0o666)
    with pytest.raises(UsageError, match="Anybody may write"):
        read_tokens(tmp_path / "tokens")


def test_too_many_requests_are_a_429_that_says_when(start_server, models):
    server = start_server(models, "--rate-limit", "5")
    answers = [server.request("POST", PATH, ACT) for _ in range(12)]
    assert [status for status, *_ in answers[:5]] == [200] * 5
    refused = [headers for status, headers, _ in answers if status == 429]
    assert refused
    assert int(refused[0]["Retry-After"]) >= 1
    assert server.request("GET", "/v2/health/ready")[0] == 200


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, and a server's and a client's certificate of it."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        openssl(
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
            "-subj",
            f"/CN={name}",
        )
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", f"{name}.pem", "-extfile", "san", "-days", "2",
        )  # fmt: skip
    return folder


def test_https_with_a_clients_certificate(start_server, models, certificates):
    files = [str(certificates / name) for name in ("server.pem", "server.key", "ca.pem")]
    server = start_server(models, "--tls-certificate", files[0], "--tls-key", files[1], "--tls-client-ca", files[2])
    assert server.url.startswith("https://")
    known = ssl.create_default_context(cafile=certificates / "ca.pem")
    known.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    with urllib3.PoolManager(ssl_context=known, retries=False) as pool:
        assert pool.request("POST", server.url + PATH, body=ACT).json()["action"] == 1
    stranger = ssl.create_default_context(cafile=certificates / "ca.pem")
    with urllib3.PoolManager(ssl_context=stranger, retries=False) as pool, pytest.raises(urllib3.exceptions.HTTPError):
        pool.request("POST", server.url + PATH, body=ACT)


def test_https_without_a_key_is_a_usage_error(models, run_serve, certificates):
    assert run_serve("--models", str(models), "--tls-certificate", str(certificates / "server.pem"))[0] == 2
    code, said = run_serve(
        "--models", str(models), "--port", "0", "--tls-certificate", "nothing.pem", "--tls-key", "nothing.key"
    )
    assert code == 2
    assert "HTTPS" in said


def test_every_setting_has_a_variable(models, tmp_path, start_server, monkeypatch):
    from serve.settings import Settings

    chosen = Settings.from_environment(
        {
            "PADDLEPORT_POLICY": "cartpole=2,reacher",
            "PADDLEPORT_INSECURE": "true",
            "PADDLEPORT_DEADLINE": "2.5",
            "PADDLEPORT_AUTH_TOKEN_FILE": "/t",
            "PADDLEPORT_BATCHING": "on",
        }
    )
    assert chosen.pins() == {"cartpole": 2, "reacher": None}
    assert (chosen.insecure, chosen.deadline, str(chosen.auth_token_file), chosen.batching) == (True, 2.5, "/t", "on")
    monkeypatch.setitem(os.environ, "PADDLEPORT_MAX_BATCH", "2")
    server = start_server(models)
    assert server.act("cartpole", {"observations": [[0, 0, 1, 0]] * 3})[0] == 400
