"""The Open Inference Protocol, with tritonclient as it is."""

import gzip
import json
import struct
import threading

import numpy as np
import pytest
import tritonclient.http as triton

import bundles

OBS = np.array([[0.1, -0.2, 0.05, 0.3], [0.0, 0.0, -0.1, 0.1], [1.0, 2.0, 0.5, -3.0]], dtype=np.float32)


@pytest.fixture(scope="module")
def client(server):
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as one:
        yield one


def given(binary: bool, obs: np.ndarray = OBS) -> list[triton.InferInput]:
    tensor = triton.InferInput("obs", list(obs.shape), "FP32")
    tensor.set_data_from_numpy(obs, binary_data=binary)
    return [tensor]


def test_live_and_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("cartpole")
    assert client.is_model_ready("cartpole", "1")
    assert not client.is_model_ready("cartpole", "9")
    assert not client.is_model_ready("nothing")


def test_server_metadata_announces_only_what_exists(client):
    metadata = client.get_server_metadata()
    assert metadata["name"] == "paddleport"
    assert metadata["extensions"] == [
        "binary_tensor_data",
        "model_repository",
        "model_configuration",
        "statistics",
    ]


def test_model_metadata(client):
    metadata = client.get_model_metadata("cartpole")
    assert metadata["name"] == "cartpole"
    assert metadata["versions"] == ["1", "2"]
    assert metadata["platform"] == "onnx_onnxv1"
    assert metadata["inputs"] == [{"name": "obs", "datatype": "FP32", "shape": [-1, 4]}]
    assert metadata["outputs"] == [
        {"name": "action", "datatype": "INT64", "shape": [-1]},
        {"name": "logits", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "value", "datatype": "FP32", "shape": [-1]},
    ]
    assert metadata["parameters"]["execution_provider"] == "CPUExecutionProvider"


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_infer_in_every_encoding(client, binary_in, binary_out):
    outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in ("logits", "action", "value")]
    result = client.infer("cartpole", given(binary_in), outputs=outputs, request_id="seven")
    answer = result.get_response()
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("cartpole", "2", "seven")
    assert [output["name"] for output in answer["outputs"]] == ["logits", "action", "value"]
    np.testing.assert_allclose(result.as_numpy("logits"), bundles.discrete_logits(OBS), atol=1e-6)
    np.testing.assert_array_equal(result.as_numpy("action"), [bundles.discrete_action(row) for row in OBS])
    np.testing.assert_allclose(result.as_numpy("value"), [bundles.value(row) for row in OBS], atol=1e-6)


@pytest.mark.parametrize("binary_in", [True, False])
def test_infer_without_outputs_gives_all(client, binary_in):
    result = client.infer("reacher", given(binary_in))
    assert [output["name"] for output in result.get_response()["outputs"]] == ["action", "mean", "value"]
    np.testing.assert_allclose(result.as_numpy("action"), [bundles.box_action(row) for row in OBS], atol=1e-6)


def test_infer_names_a_version(client):
    result = client.infer("cartpole", given(True), model_version="1")
    assert result.get_response()["model_version"] == "1"
    np.testing.assert_array_equal(result.as_numpy("action"), [bundles.discrete_action(row, flip=True) for row in OBS])


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests(client, algorithm):
    result = client.infer("cartpole", given(True), request_compression_algorithm=algorithm)
    np.testing.assert_array_equal(result.as_numpy("action"), [bundles.discrete_action(row) for row in OBS])


def test_parameters_of_sequences_are_let_pass(client):
    result = client.infer("cartpole", given(True), sequence_id=5, sequence_start=True, priority=1, timeout=1000)
    assert result.as_numpy("action").shape == (3,)


def test_client_sees_the_message_of_an_error(client):
    with pytest.raises(triton.InferenceServerException, match=r"not finite|finite numbers") as caught:
        client.infer("cartpole", given(False, OBS * np.float32(np.nan)))
    assert caught.value.status() == "400"
    with pytest.raises(triton.InferenceServerException, match="no such policy"):
        client.infer("nothing", given(True))


def test_repository_index(client):
    entries = client.get_model_repository_index()
    assert {(entry["name"], entry["version"], entry["state"]) for entry in entries} == {
        ("cartpole", "1", "READY"),
        ("cartpole", "2", "READY"),
        ("reacher", "1", "READY"),
    }


def infer(call, content, raw=b"", **headers):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    if raw:
        headers["Inference-Header-Content-Length"] = str(len(text))
    return call("POST", "/v2/models/cartpole/infer", text + raw, headers)


def request(**tensor):
    return {"inputs": [{"name": "obs", "shape": [3, 4], "datatype": "FP32", **tensor}]}


def test_nested_and_flat_data_mean_the_same(call):
    nested = infer(call, request(data=OBS.tolist()))
    flat = infer(call, request(data=OBS.ravel().tolist()))
    assert nested[0] == flat[0] == 200
    assert nested[2] == flat[2]
    assert json.loads(flat[2])["outputs"][0] == {
        "name": "action",
        "datatype": "INT64",
        "shape": [3],
        "data": [bundles.discrete_action(row) for row in OBS],
    }


def test_raw_body_is_the_one_input_and_answers_in_binary(call):
    status, headers, body = call(
        "POST", "/v2/models/cartpole/infer", OBS.tobytes(), {"Inference-Header-Content-Length": "0"}
    )
    assert status == 200
    length = int(headers["Inference-Header-Content-Length"])
    assert headers["Content-Type"] == "application/octet-stream"
    outputs = json.loads(body[:length])["outputs"]
    assert [output["parameters"]["binary_data_size"] for output in outputs] == [24, 24, 12]
    assert list(struct.unpack("<3q", body[length : length + 24])) == [bundles.discrete_action(row) for row in OBS]


def test_output_flag_wins_over_the_request_flag(call):
    content = request(data=OBS.tolist()) | {
        "parameters": {"binary_data_output": True},
        "outputs": [{"name": "action", "parameters": {"binary_data": False}}, {"name": "value"}],
    }
    _, headers, body = infer(call, content)
    action, value = json.loads(body[: int(headers["Inference-Header-Content-Length"])])["outputs"]
    assert "data" in action
    assert value["parameters"] == {"binary_data_size": 12}


def test_binary_tensor_after_json_of_odd_length(call):
    for padding in ("", " ", "  ", "   "):
        text = json.dumps(request(parameters={"binary_data_size": 48})).encode() + padding.encode()
        assert infer(call, text, OBS.tobytes())[0] == 200


def test_many_clients_at_once_get_the_answers_that_one_gets(server, client):
    """32 threads, each with a client of its own, 200 requests a thread, JSON and binary in turn."""
    rows = np.random.default_rng(5).normal(size=(200, 4)).astype(np.float32)
    expected = client.infer("cartpole", given(True, rows)).as_numpy("action")
    wrong = []

    def ask(number):
        with triton.InferenceServerClient(server.url.removeprefix("http://")) as own:
            for index in range(200):
                result = own.infer("cartpole", given((index + number) % 2 == 0, rows[index : index + 1]))
                if result.as_numpy("action")[0] != expected[index]:
                    wrong.append((number, index))
        done.append(number)

    done: list[int] = []
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 32
    assert not wrong


@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize("binary", [False, True])
def test_compressed_answers_are_read_by_the_client(client, binary, rows):
    obs = np.resize(OBS, (rows, 4))
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("action", "logits")]
    asked = {"outputs": wanted, "response_compression_algorithm": "gzip"}
    result = client.infer("cartpole", given(True, obs), **asked)
    np.testing.assert_array_equal(result.as_numpy("action"), [bundles.discrete_action(row) for row in obs])
    assert result.as_numpy("logits").shape == (rows, 2)


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("GZIP", True), ("*", True), ("", False), ("br", False),
     ("gzip;q=0", False), ("gzip; q=0.000, br", False), ("xgzip", False), ("identity", False)],
)  # fmt: skip
def test_long_answers_are_compressed_for_those_who_take_it(server, accepted, packed):
    content = json.dumps({"observations": np.resize(OBS, (300, 4)).tolist(), "return": ["logits"]}).encode()
    plain = server.pool.request("POST", "/v1/policies/cartpole/act", body=content)
    headers = {"Accept-Encoding": accepted, "Content-Type": "application/json"}
    answer = server.pool.request(
        "POST", "/v1/policies/cartpole/act", body=content, headers=headers, decode_content=False
    )
    assert (answer.headers.get("Content-Encoding") == "gzip") == packed
    assert "Accept-Encoding" in answer.headers["Vary"]
    assert int(answer.headers["Content-Length"]) == len(answer.data)
    assert (gzip.decompress(answer.data) if packed else answer.data) == plain.data
    assert not packed or len(answer.data) < len(plain.data) / 2


def test_short_answers_are_left_as_they_are(server):
    answer = server.pool.request("GET", "/v2/health/live", headers={"Accept-Encoding": "gzip"}, decode_content=False)
    assert "Content-Encoding" not in answer.headers
