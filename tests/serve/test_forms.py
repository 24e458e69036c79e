"""What the policy API takes and gives beside one plain observation: draws, more outputs, names, other bodies."""

import io
import json
import struct

import msgspec
import numpy as np
import pytest

import bundles

OBS = [0.1, -0.2, 0.05, 0.3]
NAMED = dict(zip(bundles.OBSERVATION_SPACE.names, OBS, strict=True))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forms") / "models"
    bundles.publish_discrete(folder)
    bundles.publish_gaussian(folder)
    bundles.publish_values(folder)
    bundles.publish_parts(folder)
    bundles.publish_binary(folder)
    return folder


def drawn(server, name, seed, rows=None, **more):
    content = {"observation": OBS} if rows is None else {"observations": rows}
    return server.act(name, {**content, "deterministic": False, "seed": seed, **more})


def test_the_same_seed_draws_the_same_action_and_others_differ(server):
    rows = [OBS] * 50
    first, again, other = (drawn(server, "cartpole", seed, rows)[1]["actions"] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    first, again, other = (drawn(server, "drawn", seed)[1]["action"] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_draws_follow_the_distribution(server):
    rows = [[0, 0, 0.5, 0]] * 4000  # logits -0.5 and 0.5
    actions = np.array(drawn(server, "cartpole", 3, rows)[1]["actions"])
    assert actions.mean() == pytest.approx(1 / (1 + np.exp(-1)), abs=0.03)
    actions = np.array(drawn(server, "drawn", 3, [[0.2, 0, 0, 0]] * 4000)[1]["actions"])
    half = (bundles.BOX_HIGH[0] - bundles.BOX_LOW[0]) / 2
    assert actions[:, 0].mean() == pytest.approx(0.2 * half, abs=0.05)
    assert actions[:, 0].std() == pytest.approx(np.exp(-1) * half, rel=0.05)
    assert (actions <= bundles.BOX_HIGH).all()
    assert (actions >= bundles.BOX_LOW).all()


def test_draws_of_several_choices_stay_in_their_spaces(server):
    rows = [{"cue": 3, "speed": [0.1, 0.1]}] * 300
    actions = np.array(drawn(server, "mixed", 1, rows)[1]["actions"])
    assert set(actions[:, 0]) == {0, 1}
    assert set(actions[:, 1]) == {5, 6, 7}
    assert set(np.ravel(drawn(server, "switches", 1, [[0, 0, 0, 0]] * 50)[1]["actions"])) == {0, 1}


def test_without_a_seed_draws_differ(server):
    content = {"observations": [[0, 0, 0, 0]] * 200, "deterministic": False}
    one, other = (server.act("cartpole", content)[1]["actions"] for _ in range(2))
    assert one != other


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("values", {"deterministic": False}, "no distribution to draw from"),
        ("cartpole", {"seed": 1}, "A seed without randomness"),
        ("cartpole", {"deterministic": False, "seed": -1}, "out of range"),
        ("cartpole", {"deterministic": 1}, "Expected `bool`"),
        ("cartpole", {"return": ["q_values"]}, "has no 'q_values' to return"),
        ("values", {"return": ["probabilities"]}, "has no 'probabilities'"),
        ("cartpole", {"return": "value"}, "Expected `array`"),
    ],
)
def test_options_that_a_policy_cannot_follow_are_a_400(server, name, more, words):
    status, answer = server.act(name, {"observation": OBS, **more})
    assert status == 400
    assert words in answer["error"]


def test_what_lies_behind_an_action_is_returned_on_request(server):
    wanted = {"return": ["value", "logits", "probabilities"]}
    status, answer = server.act("cartpole", {"observation": OBS, **wanted})
    assert status == 200
    logits = bundles.discrete_logits(np.array([OBS]))[0]
    np.testing.assert_allclose(answer["logits"], logits, atol=1e-6)
    np.testing.assert_allclose(answer["probabilities"], np.exp(logits) / np.exp(logits).sum(), atol=1e-6)
    assert answer["value"] == pytest.approx(bundles.value(OBS), abs=1e-6)
    batch = server.act("cartpole", {"observations": [OBS, OBS], **wanted})[1]
    assert len(batch["value"]) == len(batch["logits"]) == len(batch["probabilities"]) == 2
    assert server.act("values", {"observation": OBS, "return": ["q_values"]})[1]["q_values"][1] == pytest.approx(0.2)


def test_fields_are_taken_by_their_names_in_any_order(server):
    plain = server.act("cartpole", {"observation": OBS})[1]
    turned = dict(reversed(NAMED.items()))
    assert server.act("cartpole", {"observation": NAMED})[1] == plain
    assert server.act("cartpole", {"observation": turned})[1] == plain
    assert server.act("cartpole", {"observations": [turned, NAMED]})[1]["actions"] == [plain["action"]] * 2


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        ({**NAMED, "height": 1}, "other fields"),
        ({"position": 0}, "other fields"),
        ({}, "other fields"),
        ({**NAMED, "angle": [1]}, "one number for each name"),
        ({**NAMED, "angle": "x"}, "text"),
    ],
)
def test_other_fields_than_the_bundle_names_are_a_400(server, observation, words):
    status, answer = server.act("cartpole", {"observation": observation})
    assert status == 400
    assert words in answer["error"]


def test_msgpack_in_is_msgpack_out(server):
    body = msgspec.msgpack.encode({"observations": [OBS, OBS], "return": ["value"]})
    answer = server.pool.request(
        "POST", "/v1/policies/cartpole/act", body=body, headers={"Content-Type": "application/msgpack"}
    )
    assert answer.headers["Content-Type"] == "application/msgpack"
    content = msgspec.msgpack.decode(answer.data)
    assert content["actions"] == [bundles.discrete_action(OBS)] * 2
    assert content["value"] == pytest.approx([bundles.value(OBS)] * 2, abs=1e-6)


def odd_npy(header):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def as_npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize("rows", [np.float32(OBS), np.float32([OBS] * 3), np.asfortranarray(np.float64([OBS] * 3))])
def test_a_numpy_file_in_is_a_numpy_file_out(server, rows):
    answer = server.pool.request(
        "POST", "/v1/policies/drawn/act", body=as_npy(rows), headers={"Content-Type": "application/x-npy"}
    )
    assert answer.status == 200, answer.data
    actions = np.load(io.BytesIO(answer.data), allow_pickle=False)
    assert actions.shape == (len(np.atleast_2d(rows)), 2)
    assert answer.headers["Paddleport-Version"] == "1"
    expected = server.act("drawn", {"observation": OBS})[1]["action"]
    np.testing.assert_allclose(actions[-1], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-npy", b""),
        ("application/x-npy", b"\x93NUMPY\x01\x00v\x00{'descr': '|O'}"),
        ("application/x-npy", odd_npy(b"{'descr': '<f4', 'shape': (")),
        ("application/x-npy", odd_npy(b"'''")),
        ("application/x-npy", odd_npy(b"(" * 3000)),
        ("application/x-npy", odd_npy(b"{'descr': (), 'fortran_order': False, 'shape': (4,)}")),
        ("application/x-npy", odd_npy(b"{'descr': ('<f4',), 'fortran_order': False, 'shape': (4,)}")),
        ("application/x-npy", as_npy(np.float32(OBS))[:-3]),
        ("application/x-npy", as_npy(np.array(["a", "b"]))),
        ("application/x-npy", as_npy(np.zeros((2, 3), np.float32))),
        ("application/x-npy", as_npy(np.full(4, np.nan, np.float32))),
        ("application/msgpack", b""),
        ("application/msgpack", b"\xc1"),
        ("application/msgpack", msgspec.msgpack.encode({"observation": [1, 2, 3, float("nan")]})),
        ("application/msgpack", msgspec.msgpack.encode({"observation": msgspec.msgpack.Ext(5, b"x")})),
        ("application/msgpack", b"\x81\xabobservation" + b"\x91" * 5000),
    ],
)
def test_bodies_that_are_no_such_file_are_a_400_in_json(server, kind, body):
    status, headers, answer = server.request("POST", "/v1/policies/cartpole/act", body, {"Content-Type": kind})
    assert status == 400
    assert headers["Content-Type"] == "application/json"
    assert answer["error"]


def test_description_says_where_a_policy_comes_from(server):
    policy = server.request("GET", "/v1/policies/cartpole")[2]
    assert policy["provenance"]["run_id"] == "hand-made"
    assert policy["split"] is None


def test_triton_configuration_and_statistics(server):
    def asked() -> int:
        found = server.request("GET", "/v2/models/values/versions/1/stats")[2]["model_stats"]
        return found[0]["inference_count"]

    before = asked()
    for _ in range(3):
        server.act("values", {"observations": [OBS, OBS]})
    server.act("values", {"observation": [1]})
    config = server.request("GET", "/v2/models/values/config")[2]
    assert config["input"] == [{"name": "obs", "data_type": "TYPE_FP32", "dims": [4]}]
    stats = server.request("GET", "/v2/models/values/versions/1/stats")[2]["model_stats"][0]
    assert stats["inference_count"] == before + 6
    assert stats["inference_stats"]["fail"]["count"] >= 1
    assert stats["inference_stats"]["compute_infer"]["ns"] > 0
    for odd in ("%C2%B2", "01", "0", "9" * 8000):
        assert server.request("GET", f"/v2/models/values/versions/{odd}/stats")[0] == 404
    names = {entry["name"] for entry in server.request("GET", "/v2/models/stats")[2]["model_stats"]}
    assert {"cartpole", "drawn", "values"} <= names


def test_a_request_id_of_the_clients_comes_back_unless_it_could_do_harm(server):
    path, body = "/v1/policies/cartpole/act", json.dumps({"observation": OBS}).encode()
    assert server.request("POST", path, body, {"X-Request-Id": "abc-1"})[1]["X-Request-Id"] == "abc-1"
    odd = server.request("POST", path, body, {"X-Request-Id": "a b<c>"})[1]["X-Request-Id"]
    assert "<" not in odd
