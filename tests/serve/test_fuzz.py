"""Random bodies and headers: never a 5xx, always JSON."""

import contextlib
import gzip
import json
import re
import socket

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PATHS = st.sampled_from(
    ["/v1/policies/cartpole/act", "/v1/policies/reacher/act", "/v2/models/cartpole/infer", "/v2/models/reacher/infer"]
)
NUMBERS = st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.text(max_size=5))
ROWS = st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=5), max_leaves=20)
VECTORS = st.lists(st.floats(width=32), min_size=4, max_size=4)
DATATYPES = st.sampled_from(["FP32", "FP32", "FP64", "INT64", "BYTES", "", "x"])
PARAMETERS = st.dictionaries(
    st.sampled_from(["binary_data_size", "binary_data", "binary_data_output", "sequence_id", "classification"]),
    st.one_of(st.integers(-1, 64), st.booleans(), st.text(max_size=3)),
    max_size=2,
)
TENSORS = st.fixed_dictionaries(
    {"name": st.sampled_from(["obs", "obs", "x"]), "shape": st.lists(st.integers(-1, 5), max_size=3)},
    optional={"datatype": DATATYPES, "data": ROWS | VECTORS, "parameters": PARAMETERS},
)
GOOD_TENSOR = st.builds(lambda row: {"name": "obs", "shape": [1, 4], "datatype": "FP32", "data": row}, VECTORS)
REQUESTS = st.one_of(
    st.fixed_dictionaries({"observation": ROWS | VECTORS}),
    st.fixed_dictionaries({"observations": ROWS | st.lists(VECTORS, max_size=3)}),
    st.fixed_dictionaries(
        {"inputs": st.lists(TENSORS | GOOD_TENSOR, max_size=2)},
        optional={
            "outputs": st.lists(
                st.fixed_dictionaries(
                    {"name": st.sampled_from(["action", "logits", "value", "mean", "?"])},
                    optional={"parameters": PARAMETERS},
                ),
                max_size=3,
            ),
            "parameters": PARAMETERS,
            "id": st.text(max_size=3) | st.integers(),
        },
    ),
    ROWS,
)
RAW = st.binary(max_size=40) | VECTORS.map(lambda row: np.float32(row).tobytes())
BODIES = st.one_of(
    st.binary(max_size=80),
    st.builds(lambda content, raw: json.dumps(content).encode() + raw, REQUESTS, st.just(b"") | RAW),
    RAW,
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Inference-Header-Content-Length": st.integers(-2, 200).map(str) | st.text(max_size=4),
        "Content-Encoding": st.sampled_from(["gzip", "deflate", "identity", "br", "", " GZIP "]),
        "Content-Type": st.sampled_from(["application/json", "application/octet-stream", "text/plain", ""]),
        "Content-Length": st.integers(-1, 300).map(str) | st.text(max_size=3),
        "Transfer-Encoding": st.just("chunked"),
    },
)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS, body=BODIES, headers=HEADERS, compress=st.booleans())
def test_random_requests_never_break_the_server(call, path, body, headers, compress):
    if compress and headers.get("Content-Encoding") == "gzip":
        body = gzip.compress(body)
    status, answer_headers, answer = call("POST", path, body, headers)
    assert status in (200, 400, 413, 415, 501), answer
    length = int(answer_headers.get("Inference-Header-Content-Length", len(answer)))
    content = json.loads(answer[:length], parse_constant=lambda word: f"bare {word}")
    assert "bare" not in str(content)
    if status != 200:
        assert list(content) == ["error"]
        assert content["error"].endswith(".")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "TRACE", "X"]),
    parts=st.lists(
        st.sampled_from(
            ["", "v1", "v2", "policies", "models", "cartpole", "versions", "1", "act", "infer", "..", "%00"]
        )
        | st.text(max_size=4),
        max_size=7,
    ),
)
def test_random_paths_never_break_the_server(call, method, parts):
    path = "/" + "/".join(parts).encode("utf-8", "replace").decode("latin-1")
    status, _, answer = call(method, path, b"{}")
    assert status in (200, 400, 404, 405), answer
    if status != 200 and method != "HEAD":
        assert "error" in json.loads(answer)


RAW_HEADS = st.lists(
    st.sampled_from(
        [b"Host: x", b"Content-Length: 5", b"Content-Length: 40", b"Transfer-Encoding: chunked", b"Connection: close",
         b"Expect: 100-continue", b"Upgrade: h2c", b"Content-Encoding: gzip", b"Inference-Header-Content-Length: 0",
         b"Authorization: Bearer x", b"Content-Type: application/msgpack", b"Content-Type: application/x-npy"]
    )
    | st.binary(max_size=20),
    max_size=5,
)  # fmt: skip
STARTS = st.sampled_from(
    [b"POST /v1/policies/cartpole/act HTTP/1.1", b"POST /v2/models/cartpole/infer HTTP/1.1", b"GET / HTTP/1.1",
     b"GET /metrics HTTP/1.0", b"PRI * HTTP/2.0", b"POST http://x/v1/policies HTTP/1.1"]
) | st.binary(max_size=30)  # fmt: skip
SENT = st.builds(lambda start, heads, body: b"\r\n".join([start, *heads, b"", body]), STARTS, RAW_HEADS, BODIES)


def fuzz_the_socket(server, sent):
    with server.connect() as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
    for status in re.findall(rb"HTTP/1\.1 (\d\d\d) ", answer):
        assert status[:1] != b"5" or status in (b"501", b"503", b"504"), answer
    if re.match(rb"HTTP/1\.1 4\d\d ", answer):
        assert b'{"error":"' in answer


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=SENT)
def test_random_bytes_on_the_socket_never_break_the_server(server, sent):
    fuzz_the_socket(server, sent)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=SENT)
def test_ten_thousand_random_requests_kill_no_worker(server, sent):
    before = server.workers()
    fuzz_the_socket(server, sent)
    assert server.workers() == before


def test_the_worker_is_still_the_one_that_began(server):
    pids = server.workers()
    assert len(pids) == 1
    assert not any("replaced" in line for line in server.lines)
