"""Policies on a Dict of observations, through a real server: the policy API and the Open Inference Protocol."""

import json

import numpy as np
import pytest
import tritonclient.http as triton

import bundles

CUES = np.array([3, 4, 3])
SPEEDS = np.array([[0.5, -2.0], [-0.5, 0.25], [-1.0, 3.0]], dtype=np.float32)
ROWS = [{"cue": int(cue), "speed": speed.tolist()} for cue, speed in zip(CUES, SPEEDS, strict=True)]
ACTIONS = [bundles.parts_action(**row) for row in ROWS]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts") / "models"
    bundles.publish_parts(folder)
    bundles.publish_binary(folder)
    return folder


def test_one_observation_and_several_are_acted_on(server):
    assert server.act("mixed", {"observation": ROWS[0]})[1]["action"] == ACTIONS[0]
    assert server.act("mixed", {"observations": ROWS})[1]["actions"] == ACTIONS
    together = {"cue": CUES.tolist(), "speed": SPEEDS.tolist()}
    assert server.act("mixed", {"observations": together})[1]["actions"] == ACTIONS
    assert server.act("switches", {"observation": [-0.5, 0, 0, 0]})[1]["action"] == [0, 1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"observation": {"cue": 3}}, "exactly cue, speed"),
        ({"observation": [3, 0.5, 0.5]}, "an object with cue, speed"),
        ({"observation": {**ROWS[0], "cue": 9}}, "Part 'obs.cue'"),
        ({"observation": {**ROWS[0], "speed": [1, "x"]}}, "Part 'obs.speed'"),
        ({"observations": {"cue": [3], "speed": SPEEDS.tolist()}}, "not equally many"),
        ({"observations": []}, "at least one observation"),
    ],
)
def test_what_is_no_such_observation_is_refused_with_the_part(server, content, words):
    status, answer = server.act("mixed", content)
    assert status == 400
    assert words in json.dumps(answer)


def inputs(cues=CUES, speeds=SPEEDS, binary=True):
    tensors = []
    for name, array, kind in (("obs.cue", cues, "INT64"), ("obs.speed", speeds, "FP32")):
        tensor = triton.InferInput(name, list(array.shape), kind)
        tensor.set_data_from_numpy(array, binary_data=binary)
        tensors.append(tensor)
    return tensors


@pytest.fixture(scope="module")
def client(server):
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as one:
        yield one


def test_the_metadata_names_every_input(client):
    metadata = client.get_model_metadata("mixed")
    assert metadata["inputs"] == [
        {"name": "obs.cue", "datatype": "INT64", "shape": [-1]},
        {"name": "obs.speed", "datatype": "FP32", "shape": [-1, 2]},
    ]
    assert metadata["outputs"][0] == {"name": "action", "datatype": "INT64", "shape": [-1, 2]}


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("turned", [False, True])
def test_several_inputs_are_inferred_in_any_order(client, binary, turned):
    given = inputs(binary=binary)
    result = client.infer("mixed", given[::-1] if turned else given)
    assert result.as_numpy("action").tolist() == ACTIONS
    expected = [bundles.parts_logits(**row) for row in ROWS]
    np.testing.assert_allclose(result.as_numpy("logits"), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (inputs(cues=CUES[:2]), "batches of different sizes"),
        (inputs()[:1], "input is missing.*obs.speed"),
        ([*inputs(), inputs()[0]], "given twice"),
        (inputs(cues=CUES + 5), "Part 'obs.cue'"),
    ],
)
def test_inputs_that_do_not_go_together_are_refused(client, given, words):
    with pytest.raises(triton.InferenceServerException, match=words) as caught:
        client.infer("mixed", given)
    assert caught.value.status() == "400"


def test_a_raw_body_is_refused_where_there_are_several_inputs(server):
    headers = {"Inference-Header-Content-Length": "0"}
    status, _, answer = server.request("POST", "/v2/models/mixed/infer", SPEEDS.tobytes(), headers)
    assert status == 400
    assert "policy with one input" in json.dumps(answer)
