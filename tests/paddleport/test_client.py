"""The HTTP client against a real server, and against one that misbehaves."""

import asyncio
import contextlib
import http.server
import json
import re
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import bundles
from paddleport import AsyncClient, Client
from paddleport.errors import ObservationError, ServerError, UsageError

OBS = [0.1, -0.2, 0.05, 0.3]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    models = tmp_path_factory.mktemp("client") / "models"
    bundles.publish_discrete(models, flip=True)
    bundles.publish_discrete(models)
    bundles.publish_box(models)
    process = subprocess.Popen(
        [sys.executable, "-m", "paddleport", "serve", "--models", str(models), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        yield found[0]
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0
        process.stderr.close()


@pytest.fixture
def client(url):
    with Client(url) as one:
        yield one


@pytest.fixture
def unreliable():
    """A server that answers from a script: a status and a body, or None to drop the connection."""
    script, seen = [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            seen.append(self.rfile.read(int(self.headers["Content-Length"])))
            step = script.pop(0)
            if step is None:
                self.close_connection = True
                return
            status, body = step
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", script, seen
    server.shutdown()
    server.server_close()


GOOD = (200, json.dumps({"action": 1, "policy": "p", "version": 1, "precision": "float32"}).encode())
BUSY = (503, b'{"error": "busy"}')


@pytest.mark.parametrize("obs", [OBS, tuple(OBS), np.float32(OBS), np.float64(OBS), (np.float32(OBS), {"info": 1})])
def test_discrete_action_is_an_int(client, obs):
    action = client.act("cartpole", obs)
    assert action == bundles.discrete_action(OBS)
    assert type(action) is int


def test_box_action_is_a_float32_array(client):
    action = client.act("reacher", OBS)
    assert action.dtype == np.float32
    assert action.shape == (2,)
    np.testing.assert_allclose(action, bundles.box_action(OBS), atol=1e-6)


def test_batches(client):
    rows = np.random.default_rng(5).normal(size=(20, 4)).astype(np.float32)
    actions = client.act_batch("cartpole", rows)
    np.testing.assert_array_equal(actions, [bundles.discrete_action(row) for row in rows])
    assert actions.dtype == np.int64
    assert client.act_batch("reacher", list(rows)).shape == (20, 2)


def test_version_can_be_named(client):
    assert client.act("cartpole", OBS, version=1) == bundles.discrete_action(OBS, flip=True)
    assert client.act_batch("cartpole", [OBS], version=1)[0] == bundles.discrete_action(OBS, flip=True)


def test_policies_and_ready(client):
    assert client.ready()
    assert [policy["name"] for policy in client.policies()] == ["cartpole", "reacher"]


@pytest.mark.parametrize("obs", [[1, 2, 3], [[1, 2, 3, 4]], ["a", "b", "c", "d"], 1.0, [1, 2, 3, None]])
def test_observation_of_the_wrong_form_is_an_observation_error(client, obs):
    with pytest.raises(ObservationError, match="expected"):
        client.act("cartpole", obs)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_observation_that_is_not_finite_is_an_observation_error(client, number):
    with pytest.raises(ObservationError, match="finite"):
        client.act("cartpole", [0, 0, 0, number])


def test_unknown_policy_and_version_are_server_errors_with_their_status(client):
    with pytest.raises(ServerError, match="cartpole, reacher") as caught:
        client.act("nothing", OBS)
    assert caught.value.status == 404
    with pytest.raises(ServerError, match="1, 2") as caught:
        client.act("cartpole", OBS, version=9)
    assert caught.value.status == 404
    with pytest.raises(ServerError):
        client.act("../../v2", OBS)


def test_many_threads_share_a_client(client):
    rows = np.random.default_rng(6).normal(size=(8, 20, 4)).astype(np.float32)
    wrong = []

    def play(part):
        wrong.extend(row for row in part if client.act("cartpole", row) != bundles.discrete_action(row))

    threads = [threading.Thread(target=play, args=(part,)) for part in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_draws_are_asked_for_and_refused_where_there_is_nothing_to_draw_from(client):
    rows = [[0, 0, 0, 0]] * 50
    first, again = (client.act_batch("cartpole", rows, deterministic=False, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert set(first) == {0, 1}
    assert client.act("cartpole", OBS, deterministic=False, seed=1) in (0, 1)
    with pytest.raises(ServerError, match="no distribution"):
        client.act("reacher", OBS, deterministic=False)


def test_many_requests_of_one_event_loop_are_on_their_way_at_once(url):
    async def ask():
        async with AsyncClient(url, concurrency=8) as client:
            assert await client.ready()
            assert [one["name"] for one in await client.policies()] == ["cartpole", "reacher"]
            rows = [[0, 0, (index - 50) / 10, 0.3] for index in range(100)]
            actions = await asyncio.gather(*(client.act("cartpole", row) for row in rows))
            assert actions == [bundles.discrete_action(row) for row in rows]
            np.testing.assert_array_equal(await client.act_batch("cartpole", rows), actions)
            with pytest.raises(ObservationError):
                await client.act("cartpole", [1])

    asyncio.run(ask())


def test_the_token_goes_with_every_request():
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        Client(f"http://127.0.0.1:{listening.getsockname()[1]}", token="pp-abc", timeout=0.5, retries=0) as client,  # noqa: S106
    ):
        thread = threading.Thread(target=client.ready)
        thread.start()
        with listening.accept()[0] as connection:
            assert b"Authorization: Bearer pp-abc\r\n" in connection.recv(10_000)
        thread.join()


def test_lost_connection_and_503_are_tried_again(unreliable):
    url, script, seen = unreliable
    script += [None, BUSY, GOOD]
    with Client(url) as client:
        assert client.act("p", OBS) == 1
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_retries_end(unreliable):
    url, script, seen = unreliable
    script += [BUSY] * 9
    with Client(url, retries=1) as client, pytest.raises(ServerError, match="busy") as caught:
        client.act("p", OBS)
    assert caught.value.status == 503
    assert len(seen) == 2
    script[:] = [None] * 9
    with Client(url, retries=0) as client, pytest.raises(ServerError, match="cannot be reached") as caught:
        client.act("p", OBS)
    assert caught.value.status is None


def test_answer_that_is_not_ours_is_a_server_error(unreliable):
    url, script, _ = unreliable
    script += [(200, b"<html>"), (500, b"<html>")]
    with Client(url) as client:
        for status in (200, 500):
            with pytest.raises(ServerError, match="without JSON") as caught:
                client.act("p", OBS)
            assert caught.value.status == status


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b"null",
        b"5",
        b'{"action": null, "actions": null}',
        b'{"action": "x", "actions": "x"}',
        b'{"action": true, "actions": true}',
        b'{"action": [null], "actions": [null]}',
        b'{"action": ["1"], "actions": ["1"]}',
        b'{"action": [[1], [2, 3]], "actions": [[1], [2, 3]]}',
        b'{"action": [99999999999999999999], "actions": [99999999999999999999]}',
        b"[" * 200_000,
        b'{"action": ' + b"[" * 200_000,
        b'{"actions": ' + b"[" * 200_000,
        b'{"policies": 5}',
    ],
)
def test_answer_of_another_form_is_a_server_error(unreliable, body):
    url, script, _ = unreliable
    script += [(200, body), (200, body), (500, body)]
    with Client(url) as client:
        for ask in (client.act, client.act_batch, client.act):
            with pytest.raises(ServerError, match=r"Is this the URL|without JSON") as caught:
                ask("p", OBS)
            assert caught.value.status in (200, 500)


def test_answer_without_end_is_a_server_error(unreliable, monkeypatch):
    monkeypatch.setattr("paddleport.client._LARGEST_ANSWER", 1000)
    url, script, _ = unreliable
    script += [(200, b" " * 1001)]
    with Client(url) as client, pytest.raises(ServerError, match="more than 1000 bytes"):
        client.act("p", OBS)


def test_no_server_is_a_server_error_that_says_how_to_start_one(unreliable):
    with Client("http://127.0.0.1:9", retries=1) as client:
        assert not client.ready()
        with pytest.raises(ServerError, match="paddleport serve"):
            client.act("cartpole", OBS)


def test_slow_server_is_a_server_error_after_the_timeout():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)
        began = time.monotonic()
        with client, pytest.raises(ServerError, match="in time"):
            client.act("cartpole", OBS)
        assert time.monotonic() - began < 2.0


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_dripping_server_is_given_up_after_the_timeout(sent):
    def drip():
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(sent or b"HTTP/1.1 200 OK\r\nX: ")
            while True:
                connection.sendall(b"1")
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        with (
            Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.6) as client,
            pytest.raises(ServerError, match="in time"),
        ):
            client.act("cartpole", OBS)
        assert 0.5 < time.monotonic() - began < 2.0


def test_tries_again_end_with_the_timeout(unreliable):
    url, script, seen = unreliable
    script += [BUSY] * 99
    began = time.monotonic()
    with Client(url, timeout=0.5, retries=50) as client, pytest.raises(ServerError, match="busy"):
        client.act("p", OBS)
    assert time.monotonic() - began < 2.0
    assert len(seen) < 6


@pytest.mark.parametrize("obs", [complex(1, 2), object(), ["a"], [10**30], {"a": "b"}])
def test_what_is_no_numbers_is_an_observation_error_before_it_is_sent(obs):
    with Client("http://127.0.0.1:9") as client, pytest.raises(ObservationError, match="numbers"):
        client.act("x", obs)


@pytest.mark.parametrize("name", ["\ud800", None, 5])
def test_name_that_no_policy_has_is_a_usage_error(name):
    with Client("http://127.0.0.1:9") as client, pytest.raises(UsageError, match="No policy"):
        client.act(name, OBS)


@pytest.mark.parametrize("url", [None, "", "localhost", "ftp://host", "http://", "http://host:port"])
def test_url_that_is_none_is_a_usage_error(url):
    with pytest.raises(UsageError, match="http://127"):
        Client(url)
