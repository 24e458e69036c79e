"""Malformed requests: each gets a 4xx in JSON that says what, expected and got, and hurts nobody else."""

import contextlib
import gzip
import json
import socket

import numpy as np
import pytest

import bundles

ACT = "/v1/policies/cartpole/act"
INFER = "/v2/models/cartpole/infer"
ONE = np.zeros((1, 4), dtype=np.float32)

BAD_ACTS = {
    "empty body": (b"", "empty"),
    "not JSON": (b"hello", "not JSON"),
    "cut JSON": (b'{"observation": [1, 2', "not JSON"),
    "not UTF-8": b'{"observation": "\xff\xfe"}',
    "a list": (b"[1, 2, 3, 4]", "Expected `object`, got `array`"),
    "null": b"null",
    "neither field": (b"{}", "neither"),
    "both fields": (b'{"observation": [0,0,0,0], "observations": [[0,0,0,0]]}', "both"),
    "unknown field": (b'{"observation": [0,0,0,0], "temperature": 1}', "unknown field `temperature`"),
    "too short": (b'{"observation": [1, 2, 3]}', "expected shape [4]", "got shape [3]"),
    "too deep": (b'{"observation": [[1, 2, 3, 4]]}', "got shape [1, 4]"),
    "a number": (b'{"observation": 1}', "got shape []"),
    "null observation": b'{"observation": null}',
    "an object": b'{"observation": {"a": 1}}',
    "text": (b'{"observation": ["a", "b", "c", "d"]}', "text"),
    "a number as text": (b'{"observation": [1, 2, 3, "4"]}', "text"),
    "booleans": (b'{"observation": [true, true, true, true]}', "true/false"),
    "a boolean among numbers": (b'{"observation": [1, 2, 3, true]}', "true/false"),
    "null among numbers": (b'{"observation": [1, 2, 3, null]}', "null"),
    "bare NaN": (b'{"observation": [1, 2, 3, NaN]}', "NaN or Infinity", "finite numbers"),
    "bare Infinity": (b'{"observation": [1, 2, 3, -Infinity]}', "NaN or Infinity"),
    "beyond float64": (b'{"observation": [1, 2, 3, 1e999]}', "out of range"),
    "beyond float32": (b'{"observation": [1, 2, 3, 1e39]}', "1e+39 at index [3]", "finite numbers"),
    "huge integer": b'{"observation": [1, 2, 3, ' + b"9" * 400 + b"]}",
    "ragged batch": (b'{"observations": [[1, 2, 3, 4], [1, 2]]}', "different lengths"),
    "empty batch": (b'{"observations": []}', "at least one observation"),
    "batch of one vector": (b'{"observations": [1, 2, 3, 4]}', "expected shape [batch, 4]"),
    "NaN in a batch": b'{"observations": [[1, 2, 3, 4], [1, 2, NaN, 4]]}',
    "bottomless nesting": b'{"observation": ' + b"[" * 50_000,
    "deep nesting": (b'{"observation": ' + b"[" * 500 + b"]" * 500 + b"}", "deeper"),
    "one long text among many": b'{"observations": ["' + b"a" * 40_000 + b'"' + b',""' * 15_000 + b"]}",
    "lone surrogate": b'{"observation": [1,2,3,4], "\\ud800": 1}',
}


@pytest.mark.parametrize("case", BAD_ACTS)
def test_bad_act_is_a_400_that_explains(call, case):
    body, *words = BAD_ACTS[case] if isinstance(BAD_ACTS[case], tuple) else (BAD_ACTS[case],)
    status, headers, answer = call("POST", ACT, body)
    assert status == 400, answer
    assert headers["Content-Type"] == "application/json"
    content = json.loads(answer)
    assert list(content) == ["error"]
    for word in words:
        assert word in content["error"]


def test_overflow_inside_the_policy_is_told_not_answered(call):
    """The largest float32 is a finite observation; the policy's sums over it are not finite."""
    status, _, answer = call("POST", ACT, b'{"observation": [0, 0, 3.4028235e38, 3.4028235e38]}')
    assert status == 400
    assert b"'logits' is not finite" in answer
    assert call("POST", ACT, b'{"observation": [3.4028235e38, 0, 1, 1]}')[0] == 200


def tensor(**changes):
    fields = {"name": "obs", "shape": [1, 4], "datatype": "FP32", "data": [0, 0, 0, 0], **changes}
    return {"inputs": [{key: value for key, value in fields.items() if value is not None}]}


def raw_tensor(size=16, **changes):
    return tensor(data=None, parameters={"binary_data_size": size}, **changes)


BAD_INFERS = {
    "no inputs": ({}, "missing required field `inputs`"),
    "empty inputs": ({"inputs": []}, "missing"),
    "unknown input": (tensor(name="observation"), "'observation' is unknown"),
    "repeated input": ({"inputs": tensor()["inputs"] * 2}, "given twice"),
    "wrong datatype": (tensor(datatype="FP64"), "expected FP32", "got 'FP64'"),
    "unknown datatype": (tensor(datatype="FLOAT"), "expected FP32"),
    "text datatype": (tensor(datatype="BYTES", data=["a"]), "expected FP32"),
    "negative dimension": (tensor(shape=[-1, 4]), "negative"),
    "enormous shape": (tensor(shape=[2**60, 4]), "too large"),
    "enormous dimension beside none": (tensor(shape=[0, 2**63 - 1], data=[]), "too large"),
    "enormous dimensions beside none": (tensor(shape=[0, 2**40, 2**40], data=[]), "too large"),
    "more dimensions than NumPy has": (tensor(shape=[1] * 64, data=[0]), "too many dimensions"),
    "endless shape": (tensor(shape=[1] * 4_000), "too many dimensions"),
    "endless batch": (tensor(shape=[2**63 - 1, 4]), "at most 4096 observations"),
    "shape against the metadata": (tensor(shape=[2, 2]), "expected shape [batch, 4]"),
    "empty batch": (tensor(shape=[0, 4], data=[]), "at least one"),
    "shape is no list": (tensor(shape=4), "Expected `array`"),
    "too few numbers": (tensor(data=[1, 2, 3]), "4 numbers", "shape [3]"),
    "nested otherwise": (tensor(data=[[1, 2], [3, 4]]), "shape [2, 2]"),
    "ragged data": (tensor(data=[[1, 2], [3]]), "different lengths"),
    "text data": (tensor(data=["a", "b", "c", "d"]), "text"),
    "no data": (tensor(data=None), "has no data"),
    "data twice": (tensor(parameters={"binary_data_size": 16}), "twice"),
    "unknown output": (tensor() | {"outputs": [{"name": "q"}]}, "'q' is unknown", "action, logits, value"),
    "repeated output": (tensor() | {"outputs": [{"name": "value"}] * 2}, "asked for twice"),
    "flag is no truth value": (tensor() | {"parameters": {"binary_data_output": 1}}, "true or false"),
    "id is a number": (tensor() | {"id": 5}, "Expected `str`"),
}


@pytest.mark.parametrize("case", BAD_INFERS)
def test_bad_infer_is_a_400_that_explains(call, case):
    content, *words = BAD_INFERS[case]
    status, _, answer = call("POST", INFER, json.dumps(content).encode())
    assert status == 400, answer
    for word in words:
        assert word in json.loads(answer)["error"]


BAD_BINARIES = {
    "size beyond the body": (raw_tensor(17), ONE.tobytes(), "from 0 to 16"),
    "size below the shape": (raw_tensor(12), ONE.tobytes(), "16 bytes for shape [1, 4]"),
    "shape beyond the size": (raw_tensor(shape=[2, 4]), ONE.tobytes(), "32 bytes"),
    "more than the sizes": (raw_tensor(), ONE.tobytes() + b"x", "1 bytes more"),
    "size is text": (raw_tensor("16"), ONE.tobytes(), "an integer"),
    "size is true": (raw_tensor(True), ONE.tobytes(), "an integer"),
    "negative size": (raw_tensor(-16), ONE.tobytes(), "an integer"),
    "NaN": (raw_tensor(), np.full((1, 4), np.nan, np.float32).tobytes(), "finite numbers"),
    "infinity": (raw_tensor(), np.full((1, 4), np.inf, np.float32).tobytes(), "inf at index [0]"),
}


@pytest.mark.parametrize("case", BAD_BINARIES)
def test_bad_binary_tensor_is_a_400_that_explains(call, case):
    content, raw, word = BAD_BINARIES[case]
    text = json.dumps(content).encode()
    status, _, answer = call("POST", INFER, text + raw, {"Inference-Header-Content-Length": str(len(text))})
    assert status == 400
    assert word in json.loads(answer)["error"]


@pytest.mark.parametrize("length", ["-1", "abc", "", "1e3", "99999999999999999999", "1000000", "5", "1,2", "٣"])
def test_header_length_that_lies_is_a_400(call, length):
    text = json.dumps(raw_tensor()).encode()
    status, _, answer = call("POST", INFER, text + ONE.tobytes(), {"Inference-Header-Content-Length": length})
    assert status == 400
    assert "error" in json.loads(answer)


@pytest.mark.parametrize("raw", [b"", b"x" * 15, b"x" * 17])
def test_raw_body_of_no_whole_observation_is_a_400(call, raw):
    status, _, answer = call("POST", INFER, raw, {"Inference-Header-Content-Length": "0"})
    assert status == 400
    assert b"a multiple of 16 bytes" in answer


def test_unsupported_requests_are_a_501(call):
    content = tensor() | {"outputs": [{"name": "logits", "parameters": {"classification": 2}}]}
    assert call("POST", INFER, json.dumps(content).encode())[0] == 501
    content = tensor(data=None, parameters={"shared_memory_region": "r"})
    assert call("POST", INFER, json.dumps(content).encode())[0] == 501


def test_compressed_bodies_are_bounded_and_whole(call):
    good = json.dumps({"observation": [0, 0, 1, 0]}).encode()
    gzipped = {"Content-Encoding": "gzip"}
    assert call("POST", ACT, gzip.compress(good), gzipped)[0] == 200
    assert call("POST", ACT, gzip.compress(b" " * 10_000_000), gzipped)[0] == 413
    assert call("POST", ACT, gzip.compress(good)[:-6], gzipped)[0] == 400
    assert call("POST", ACT, gzip.compress(good) + b"more", gzipped)[0] == 400
    assert call("POST", ACT, good, gzipped)[0] == 400
    assert call("POST", ACT, good, {"Content-Encoding": "br"})[0] == 415


WRONG_ROUTES = [
    ("POST", "/v1/policies/nothing/act", 404, "expected one of cartpole, reacher"),
    ("POST", "/v2/models/nothing/infer", 404, "no such policy"),
    ("GET", "/v2/models/nothing", 404, "no such policy"),
    ("GET", "/v2/models/nothing/ready", 404, "no such policy"),
    ("GET", "/v1/policies/nothing", 404, "no such policy"),
    ("POST", "/v1/policies/cartpole/versions/9/act", 404, "expected one of 1, 2"),
    ("POST", "/v1/policies/cartpole/versions/0/act", 404, "got 0"),
    ("POST", "/v1/policies/cartpole/versions/-1/act", 404, "positive integer"),
    ("POST", "/v1/policies/cartpole/versions/01/act", 404, "positive integer"),
    ("POST", "/v1/policies/cartpole/versions/two/act", 404, "positive integer"),
    ("POST", "/v2/models/cartpole/versions/9/infer", 404, "expected one of 1, 2"),
    ("GET", "/v2/models/cartpole/versions/9/ready", 404, "expected one of 1, 2"),
    ("POST", "/v1/policies/..%2f..%2fetc/act", 404, "no such"),
    ("POST", "/v1/policies/../act", 404, "no such policy"),
    ("GET", "/nothing", 404, "no such route"),
    ("GET", "/v2/", 404, "no such route"),
    ("GET", ACT, 405, "expected POST"),
    ("DELETE", ACT, 405, "got DELETE"),
    ("OPTIONS", ACT, 405, "expected POST"),
    ("OPTIONS", "/v2", 405, "expected GET"),
    ("OPTIONS", "/nothing", 404, "no such route"),
    ("PUT", INFER, 405, "expected POST"),
    ("POST", "/v2", 405, "expected GET"),
    ("GET", "/v2/repository/index", 405, "expected POST"),
]


@pytest.mark.parametrize(("method", "path", "status", "word"), WRONG_ROUTES)
def test_wrong_route_answers_json(server, method, path, status, word):
    answered, headers, content = server.request(method, path, b"{}" if method == "POST" else None)
    assert answered == status
    assert headers["Content-Type"] == "application/json"
    assert word in content["error"]
    if status == 405:
        assert headers["Allow"]


def test_doubled_slash_is_no_redirect(call):
    status, _, answer = call("GET", "/v1//policies")
    assert status == 404
    assert "no such route" in json.loads(answer)["error"]


def test_observation_errors_are_marked_for_clients(call):
    assert call("POST", ACT, b'{"observation": [1]}')[1]["Paddleport-Error"] == "ObservationError"
    assert call("POST", ACT, b"{}")[1]["Paddleport-Error"] == "RequestError"


def test_too_large_a_body_is_a_413_over_the_socket(server):
    body = b" " * (16 * 2**20 + 1)
    status, _, content = server.request("POST", ACT, body)
    assert status == 413
    assert "expected at most 16777216 bytes" in content["error"]
    with server.connect() as connection:  # sent in chunks, so that no length is announced
        connection.sendall(f"POST {ACT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert b" 413 " in connection.recv(100)


def test_chunked_body_is_read_whole(server):
    with server.connect() as connection:
        connection.sendall(f"POST {ACT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for part in (b'{"observation":', b" [0, 0, 1, 0]}"):
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        connection.sendall(b"0\r\n\r\n")
        assert b" 200 " in connection.recv(1000)


def test_chunked_body_that_is_cut_short_is_a_400(server):
    half = json.dumps(raw_tensor()).encode()
    for path, header, part in (
        (ACT, "", b'{"observation": [0, 0'),
        (ACT, "", b""),
        (INFER, f"Inference-Header-Content-Length: {len(half)}\r\n", half + bytes(8)),
        (INFER, "Inference-Header-Content-Length: 0\r\n", bytes(16)),
    ):
        with server.connect() as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{header}Transfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head.encode() + (b"%x\r\n%s\r\n" % (len(part), part) if part else b""))
            connection.shutdown(socket.SHUT_WR)
            assert b" 400 " in connection.recv(1000)


def test_client_that_goes_away_mid_body_leaves_the_server_alive(server):
    for _ in range(40):  # more than the server has threads
        with server.connect() as connection:
            connection.sendall(f"POST {ACT} HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{{".encode())
    assert server.act("cartpole", {"observation": [0, 0, 1, 0]})[0] == 200


@pytest.mark.parametrize("junk", [b"\x00" * 100, b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00"])
def test_junk_instead_of_http_leaves_the_server_alive(server, junk):
    with server.connect() as connection:
        connection.sendall(junk)
        connection.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            connection.recv(1000)
    status, answer = server.act("cartpole", {"observation": [0, 0, 1, 0]})
    assert (status, answer["action"]) == (200, bundles.discrete_action([0, 0, 1, 0]))
