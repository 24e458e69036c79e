"""Clients that are slow, greedy or broken hold up nobody else, and are told."""

import contextlib
import gzip
import json
import os
import queue
import re
import signal
import socket
import threading
import time

import pytest

import bundles

BODY = json.dumps({"observation": [0, 0, 1, 0]}).encode()
ACT = "/v1/policies/cartpole/act"
HEAD = f"POST {ACT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n".encode()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits") / "models"
    bundles.publish_discrete(folder)
    bundles.publish_unruly(folder)
    return folder


@pytest.fixture(scope="module")
def impatient(models, launcher, tmp_path_factory):
    options = ("--header-timeout", "1", "--body-timeout", "1", "--idle-timeout", "1", "--max-connections", "60")
    running = launcher(models, *options, cwd=tmp_path_factory.mktemp("limits"))
    running.wait_until_ready()
    yield running
    assert running.stop() == 0


def answer_of(connection) -> bytes:
    data = b""
    while part := connection.recv(65536):
        data += part
    return data


@pytest.mark.parametrize(("sent", "what"), [(HEAD[:30], "head"), (HEAD + b"\r\n" + BODY[:9], "body")])
def test_a_request_that_stalls_is_a_408(impatient, sent, what):
    with impatient.connect() as connection:
        connection.sendall(sent)
        began = time.monotonic()
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert what.encode() in answer
    assert 0.5 < time.monotonic() - began < 5.0


def test_a_head_that_trickles_in_is_a_408_however_steadily(impatient):
    with impatient.connect() as connection:
        connection.sendall(HEAD)
        with pytest.raises((BrokenPipeError, ConnectionResetError, AssertionError)):
            for index in range(40):
                connection.sendall(f"X-{index}: y\r\n".encode())
                time.sleep(0.1)
            assert not connection.recv(100).startswith(b"HTTP/1.1 408")


def test_a_silent_connection_is_closed(impatient):
    with impatient.connect() as connection:
        assert connection.recv(10) == b""
    with impatient.connect() as connection:
        connection.sendall(HEAD + b"\r\n" + BODY)
        assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
        assert connection.recv(10) == b""


def test_stalled_clients_hold_up_nobody(impatient):
    stalled = [impatient.connect() for _ in range(40)]
    try:
        for connection in stalled:
            connection.sendall(HEAD + b"\r\n" + BODY[:5])
        for _ in range(20):
            assert impatient.act("cartpole", {"observation": [0, 0, 1, 0]})[0] == 200
    finally:
        for connection in stalled:
            connection.close()


def test_connections_beyond_the_most_are_told_so(impatient):
    time.sleep(0.3)
    waiting = [impatient.connect() for _ in range(80)]
    try:
        time.sleep(0.2)
        answers = []
        for connection in waiting:
            connection.settimeout(0.05)
            try:
                answers.append(connection.recv(1000))
            except TimeoutError:
                continue
        told = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503 ")]
        assert told
        assert all(b"Retry-After" in answer for answer in told)
    finally:
        for connection in waiting:
            connection.close()
    time.sleep(0.5)
    assert impatient.act("cartpole", {"observation": [0, 0, 1, 0]})[0] == 200


SMUGGLED = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    "chunked and more": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "coded and chunked": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "odd chunked": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "signed length": b"Content-Length: +5\r\n\r\nhello",
    "hexadecimal length": b"Content-Length: 0x5\r\n\r\nhello",
    "space before the colon": b"Content-Length : 5\r\n\r\nhello",
    "folded header": b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "bare newline in a header": b"X-A: b\nContent-Length: 5\r\n\r\nhello",
    "null in a header": b"X-A: b\x00c\r\nContent-Length: 0\r\n\r\n",
    "bad chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("case", SMUGGLED)
def test_ambiguous_framing_is_one_refusal_and_the_end_of_the_connection(server, case):
    with server.connect() as connection:
        connection.sendall(f"POST {ACT} HTTP/1.1\r\nHost: x\r\n".encode() + SMUGGLED[case])
        connection.shutdown(socket.SHUT_WR)
        answer = answer_of(connection)
    assert len(re.findall(rb"HTTP/1\.1 \d\d\d ", answer)) == 1, answer
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert b"error" in answer


def test_a_head_beyond_all_measure_is_a_431(server):
    for lines in (b"X-A: " + b"a" * 70_000 + b"\r\n", b"".join(b"X-%d: y\r\n" % i for i in range(200))):
        with server.connect() as connection:
            connection.sendall(HEAD + lines + b"\r\n" + BODY)
            assert answer_of(connection).startswith(b"HTTP/1.1 431 ")


def request(body: bytes) -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (ACT.encode(), len(body), body)


def chunked(*parts: bytes, trailers: bytes = b"") -> bytes:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" % ACT.encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n" + trailers + b"\r\n"


def test_what_is_sent_behind_a_body_is_no_header(server):
    with server.connect() as connection:
        connection.sendall(chunked(BODY[:7], BODY[7:], trailers=b"X-Request-Id: late\r\nContent-Encoding: gzip\r\n"))
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"late" not in answer


def test_what_is_sent_behind_a_body_without_end_is_a_431(server):
    with server.connect() as connection:
        connection.sendall(chunked(BODY)[:-2] + b"X-A: ")
        for _ in range(8):
            time.sleep(0.02)
            connection.sendall(b"a" * 10_000)
        assert answer_of(connection).startswith(b"HTTP/1.1 431 ")


def test_a_body_in_thousands_of_pieces_is_read_whole(server):
    body = BODY + b" " * 20_000
    with server.connect() as connection:
        connection.sendall(chunked(*(body[index : index + 1] for index in range(len(body)))))
        assert answer_of(connection).startswith(b"HTTP/1.1 200 ")


def test_bodies_of_many_clients_together_are_bounded(start_server, models):
    server = start_server(models)
    most = 16 * 2**20
    head = f"POST {ACT} HTTP/1.1\r\nHost: x\r\nContent-Length: {most}\r\n\r\n".encode()
    clients = [server.connect() for _ in range(18)]
    answers = []
    for client in clients:
        client.settimeout(5)
        client.sendall(head)
        with contextlib.suppress(OSError):
            client.sendall(b" " * (most - 1))
    for client in clients:
        client.settimeout(0.2)
        with contextlib.suppress(OSError):
            answers.append(client.recv(1000))
    assert answers
    assert all(one.startswith(b"HTTP/1.1 503 ") and b"Retry-After" in one for one in answers)
    assert len(answers) <= 3
    for client in clients:
        client.close()
    time.sleep(0.5)
    assert server.act("cartpole", {"observation": [0, 0, 1, 0]})[0] == 200


def test_a_body_larger_than_any_batch_of_the_policy_is_a_413_before_it_is_read(server):
    batch = b'{"observations": [' + b", ".join([b"[0.123456789012, 0.0, 1.0, 0.0]"] * 4096) + b"]}"
    assert server.request("POST", ACT, batch)[0] == 200
    bomb = b'{"observations": [' + b"[0,0,0,0]," * 1_000_000 + b"[0,0,0,0]]}"
    for body, headers in ((bomb, {}), (gzip.compress(bomb), {"Content-Encoding": "gzip"})):
        status, _, answer = server.request("POST", ACT, body, headers)
        assert status == 413
        assert "Send fewer observations" in answer["error"]


def test_headers_without_end_in_one_packet_are_a_431_at_once(server):
    with server.connect() as greedy, server.connect() as other:
        began = time.monotonic()
        greedy.sendall(HEAD + b"a:b\r\n" * 50_000)
        other.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer_of(other).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - began < 0.5
        assert greedy.recv(1000).startswith(b"HTTP/1.1 431 ")


def test_what_came_before_a_head_does_not_count_as_its_bytes(server):
    large, small = request(BODY + b" " * 40_000), request(BODY)
    with server.connect() as connection:
        connection.sendall(large + small[:20])
        time.sleep(0.1)
        connection.sendall(small[20:] + small.replace(b"Host: x", b"Host: x\r\nConnection: close"))
        assert answer_of(connection).count(b"HTTP/1.1 200 ") == 3


def test_an_offer_of_another_protocol_is_passed_over(server):
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQB\r\n"
    one = request(BODY).replace(b"Host: x\r\n", b"Host: x\r\n" + offer)
    for cut in (len(one), 40, len(one) - 10):
        with server.connect() as connection:
            connection.sendall(one[:cut])
            time.sleep(0.05)
            connection.sendall(one[cut:] + request(BODY) + one.replace(b"Upgrade, HTTP2", b"close, Upgrade, HTTP2"))
            assert answer_of(connection).count(b'"action"') == 3
    with server.connect() as connection:
        connection.sendall(b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + one)
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_requests_sent_together_are_answered_in_order(server):
    one = HEAD + b"\r\n" + BODY
    listing = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(one + listing + one + listing * 20 + one + b"GET / BAD\r\n\r\n")
        answer = answer_of(connection)
    kinds = [b"action" if b'"action"' in part else b"live" for part in answer.split(b"HTTP/1.1 200 OK")[1:]]
    assert kinds == [b"action", b"live", b"action", *[b"live"] * 20, b"action"]
    assert b"HTTP/1.1 400 " in answer


def test_a_client_that_sends_nothing_more_gets_all_its_answers(start_server, models):
    server = start_server(models, "--batching", "on", "--max-batch-delay-us", "20000")
    rows = [[0, 0, value, 0.5] for value in (-1, 1, -2, 2, 1, -1)]
    bodies = [json.dumps({"observation": row}).encode() for row in rows]
    with server.connect() as connection:
        connection.sendall(b"".join(request(body) for body in bodies))
        connection.shutdown(socket.SHUT_WR)
        answers = answer_of(connection).split(b"HTTP/1.1 200 OK")[1:]
    actions = [json.loads(answer.partition(b"\r\n\r\n")[2])["action"] for answer in answers]
    assert actions == [bundles.discrete_action(row) for row in rows]


def test_expect_and_head_and_http_1_0(server):
    with server.connect() as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(BODY)
        assert connection.recv(10_000).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"HEAD /v2/health/live HTTP/1.0\r\n\r\n")
        answer = answer_of(connection)
    assert answer.endswith(b"\r\n\r\n")
    assert b"Connection: close" in answer


def test_batches_and_decompressed_bodies_are_bounded(start_server, models):
    server = start_server(models, "--max-batch", "3", "--max-body-bytes", "100000")
    status, answer = server.act("cartpole", {"observations": [[0, 0, 1, 0]] * 4})
    assert status == 400
    assert "at most 3 observations" in answer["error"]
    tensor = {"name": "obs", "shape": [4, 4], "datatype": "FP32", "data": ["no number"]}
    status, _, body = server.request("POST", "/v2/models/cartpole/infer", json.dumps({"inputs": [tensor]}).encode())
    assert status == 400
    assert "at most 3 observations" in body["error"]
    bomb = gzip.compress(b" " * 50_000_000)
    assert server.request("POST", ACT, bomb, {"Content-Encoding": "gzip"})[0] == 413


def test_too_much_that_waits_is_a_503_and_too_long_a_504(start_server, models):
    server = start_server(
        models, "--batching", "on", "--max-batch-delay-us", "500000", "--deadline", "0.2", "--max-queue", "4"
    )
    answers = []

    def ask():
        with server.connect() as connection:
            connection.sendall(HEAD + b"Connection: close\r\n\r\n" + BODY)
            answers.append(answer_of(connection))

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = sorted(answer[9:12] for answer in answers)
    assert found.count(b"504") == 4
    assert found.count(b"503") == 6
    assert all(b"Retry-After" in answer for answer in answers if answer[9:12] == b"503")


def test_batched_answers_equal_those_of_one_at_a_time(start_server, models):
    server = start_server(models, "--batching", "on", "--max-batch-delay-us", "5000")
    rows = [[0.0, 0.0, (index - 20) / 10, 0.1] for index in range(40)]
    answers: dict[int, object] = {}

    def ask(index):
        body = {"observation": rows[index]} if index % 5 else {"observation": ["bad"]}
        answers[index] = server.act("cartpole", body)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, (status, answer) in answers.items():
        if index % 5:
            assert answer["action"] == bundles.discrete_action(rows[index])
        else:
            assert status == 400
    stats = server.request("GET", "/v2/models/cartpole/stats")[2]["model_stats"][0]
    assert stats["inference_count"] == 32
    assert stats["execution_count"] < 32


@pytest.mark.parametrize(("batching", "runs"), [("auto", 3), ("off", 9)])
def test_what_arrives_at_the_same_moment_runs_as_one_and_is_answered_each_for_itself(
    start_server, models, batching, runs
):
    """The worker stands still while twelve clients send; then it sees all of them at once."""
    server = start_server(models, "--batching", batching)
    (worker,) = server.workers()
    rows = [[0.0, 0.0, (index - 4) / 10, 0.1] for index in range(8)]
    asked = [(ACT, {"observation": row}, 200) for row in rows]
    # A batch of many runs by itself; bad ones and other policies spoil nothing.
    asked += [(ACT, {"observations": rows * 2}, 200), (ACT, {"observation": ["bad"]}, 400)]
    asked += [("/v1/policies/unruly/act", {"observation": [50, 0, 0, 0]}, 500)]
    asked += [("/v1/policies/unruly/act", {"observation": [5, 2.5, 0, 0]}, 200)]
    before = server.request("GET", "/v2/models/cartpole/stats")[2]["model_stats"][0]["execution_count"]
    clients = [socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) for _ in asked]
    # Each has asked once before, so that the worker knows the connection.
    for client in clients:
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"true" in client.recv(65536)
    os.kill(worker, signal.SIGSTOP)
    try:
        for client, (path, content, _) in zip(clients, asked, strict=True):
            body = json.dumps(content).encode()
            client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    finally:
        os.kill(worker, signal.SIGCONT)
    answers = []
    for client, (_, _, status) in zip(clients, asked, strict=True):
        with client:
            answer = client.recv(65536)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
        answers.append(json.loads(answer.partition(b"\r\n\r\n")[2]))
    assert [answer["action"] for answer in answers[:8]] == [bundles.discrete_action(row) for row in rows]
    assert answers[8]["actions"] == [bundles.discrete_action(row) for row in rows * 2]
    assert answers[11]["action"] == [0.5, 0.25]
    after = server.request("GET", "/v2/models/cartpole/stats")[2]["model_stats"][0]
    assert after["inference_count"] == 8 + 16
    assert after["execution_count"] - before <= runs
    assert batching == "auto" or after["execution_count"] - before == runs


def test_observations_far_from_the_training_are_counted_and_refused_on_request(start_server, models):
    server = start_server(models, "--ood", "reject:6")
    assert server.act("cartpole", {"observation": [0, 0, 1, 0]})[0] == 200
    status, answer = server.act("cartpole", {"observation": [0, 0, 50, 0]})
    assert status == 422
    assert "angle at" in answer["error"]
    metrics = server.pool.request("GET", "/metrics").data.decode()
    assert 'paddleport_ood_far_total{policy="cartpole",version="1"} 1.0' in metrics
    drift = server.request("GET", "/v1/statistics")[2]["counts"]["policies"]["cartpole/1"]["drift"]
    assert drift["features"] == list(bundles.OBSERVATION_SPACE.names)
    assert drift["observations"] == 2


@pytest.mark.parametrize(
    ("guard", "status", "action"), [("error", 500, None), ("[0.5, 0]", 200, [0.5, 0.0]), ("last", 200, [0.5, 0.25])]
)
def test_an_action_out_of_bounds_does_not_leave(start_server, models, guard, status, action):
    server = start_server(models, "--guard", guard)
    caller = {"Paddleport-Caller": "robot-1"}
    path = "/v1/policies/unruly/act"
    assert server.request("POST", path, b'{"observation": [5, 2.5, 0, 0]}', caller)[2]["action"] == [0.5, 0.25]
    answered, _, content = server.request("POST", path, b'{"observation": [50, 0, 0, 0]}', caller)
    assert answered == status
    assert content.get("action") == action
    metrics = server.pool.request("GET", "/metrics").data.decode()
    assert 'paddleport_guard_breaches_total{policy="unruly",version="1",what="out of bounds"} 1.0' in metrics
    if guard == "last":
        assert server.request("POST", path, b'{"observation": [50, 0, 0, 0]}')[0] == 500


@pytest.mark.parametrize(("option", "value"), [("--guard", "maybe"), ("--ood", "reject:-1"), ("--ood", "perhaps")])
def test_watch_and_guard_that_cannot_be_meant(models, run_serve, option, value):
    assert run_serve("--models", str(models), "--port", "0", option, value)[0] == 2


@pytest.fixture
def collector():
    """A collector of spans, to which OTLP goes over HTTP: its address, and a queue of what came."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    came = queue.Queue()

    class Collect(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        came.put((resource.resource, span))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collect) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", came
        server.shutdown()


def test_every_request_is_a_span_of_its_caller_s_trace(models, start_server, collector, monkeypatch):
    address, came = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    server = start_server(models, "--traces")
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    server.request("POST", ACT, BODY, {"traceparent": f"00-{trace}-{parent}-01", "X-Request-Id": "me"})
    server.pool.request("GET", "/nothing")
    (resource, act), (_, missing) = came.get(timeout=10), came.get(timeout=10)
    attributes = {one.key: one.value for one in act.attributes}
    assert {one.key: one.value.string_value for one in resource.attributes}["service.name"] == "paddleport"
    assert (act.name, act.trace_id.hex(), act.parent_span_id.hex()) == (f"POST {ACT}", trace, parent)
    assert attributes["http.response.status_code"].int_value == 200
    assert attributes["paddleport.request_id"].string_value == "me"
    assert 0 < act.end_time_unix_nano - act.start_time_unix_nano < 10e9
    assert {one.key: one.value.int_value for one in missing.attributes}["http.response.status_code"] == 404
    assert missing.parent_span_id == b""


def test_spans_on_their_way_are_sent_before_the_stop(models, start_server, collector, monkeypatch):
    address, came = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    server = start_server(models, "--traces")
    server.request("POST", ACT, BODY)
    assert server.stop() == 0
    assert came.get(timeout=5)[1].name == f"POST {ACT}"


def test_a_collector_that_is_not_there_holds_up_nothing(models, start_server, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    server = start_server(models, "--traces")
    for _ in range(20):
        assert server.request("POST", ACT, BODY)[0] == 200
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 4


def test_every_request_is_one_line_of_json_in_the_access_log(models, tmp_path):
    import subprocess
    import sys

    command = [sys.executable, "-m", "paddleport", "serve", "--models", str(models), "--port", "0", "--access-log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        url = process.stderr.readline().split(" at ")[1].strip()
        import urllib3

        with urllib3.connection_from_url(url) as pool:
            pool.request("POST", ACT, body=BODY, headers={"X-Request-Id": "me"})
            pool.request("GET", "/nothing")
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.terminate()
    assert (lines[0]["id"], lines[0]["status"]) == ("me", 200)
    assert lines[1]["status"] == 404
    assert lines[0]["path"] == ACT
    assert lines[0]["ms"] > 0
