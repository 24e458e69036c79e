"""The policy API over a real socket."""

import json

import numpy as np
import pytest

import bundles

OBSERVATIONS = [[0.1, -0.2, 0.05, 0.3], [0.0, 0.0, -0.1, 0.1], [1.0, 2.0, 0.5, -3.0]]


@pytest.mark.parametrize("obs", OBSERVATIONS)
def test_discrete_policy_answers_an_integer(server, obs):
    status, answer = server.act("cartpole", {"observation": obs})
    assert status == 200
    assert answer == {
        "action": bundles.discrete_action(obs),
        "policy": "cartpole",
        "version": 2,
        "precision": "float32",
    }


def test_batch_answers_in_order(server):
    status, answer = server.act("cartpole", {"observations": OBSERVATIONS})
    assert status == 200
    assert answer["actions"] == [bundles.discrete_action(obs) for obs in OBSERVATIONS]
    assert "action" not in answer


@pytest.mark.parametrize("obs", OBSERVATIONS)
def test_box_policy_answers_a_list_of_floats_inside_the_bounds(server, obs):
    status, answer = server.act("reacher", {"observation": obs})
    assert status == 200
    np.testing.assert_allclose(answer["action"], bundles.box_action(obs), atol=1e-6)
    assert all(low <= x <= high for x, low, high in zip(answer["action"], *bundle_bounds(), strict=True))


def test_box_batch(server):
    _, answer = server.act("reacher", {"observations": OBSERVATIONS})
    np.testing.assert_allclose(answer["actions"], [bundles.box_action(obs) for obs in OBSERVATIONS], atol=1e-6)


def test_large_batch_equals_single_answers(server):
    rows = np.random.default_rng(3).normal(size=(500, 4)).round(3).tolist()
    _, answer = server.act("cartpole", {"observations": rows})
    assert answer["actions"] == [bundles.discrete_action(row) for row in rows]


def test_older_version_is_addressable(server):
    status, answer = server.act("cartpole", {"observation": OBSERVATIONS[0]}, version=1)
    assert (status, answer["version"]) == (200, 1)
    assert answer["action"] == bundles.discrete_action(OBSERVATIONS[0], flip=True)


def test_extreme_observation_stays_inside_the_bounds(server):
    _, answer = server.act("reacher", {"observation": [1e6, -1e6, 0, 0]})
    assert answer["action"] == [2.0, 0.0]


def test_listing_names_what_serves(server):
    status, _, listing = server.request("GET", "/v1/policies")
    assert status == 200
    assert [(entry["name"], entry["version"]) for entry in listing["policies"]] == [("cartpole", 2), ("reacher", 1)]
    assert listing["refused"] == []


def test_description_of_one_policy(server):
    status, _, policy = server.request("GET", "/v1/policies/cartpole")
    assert status == 200
    assert policy["versions"] == [1, 2]
    assert policy["provider"] == "CPUExecutionProvider"
    assert policy["action_space"] == {"type": "discrete", "n": 2, "start": 0, "names": ["left", "right"]}
    assert policy["observation_space"]["names"][2] == "angle"
    assert policy["measured_return"]["mean"] == 500.0
    assert server.request("GET", "/v1/policies/cartpole/versions/1")[2]["version"] == 1


def test_flask_view_and_fast_route_give_the_same_answer(models):
    from serve.app import create_app
    from serve.settings import Settings

    app = create_app(Settings(models=models))
    fast = app.test_client().post("/v1/policies/cartpole/act", data=json.dumps({"observation": OBSERVATIONS[0]}))
    app.wsgi_app = app.wsgi_app._application
    slow = app.test_client().post("/v1/policies/cartpole/act", data=json.dumps({"observation": OBSERVATIONS[0]}))
    assert (fast.status, fast.data, fast.content_type) == (slow.status, slow.data, slow.content_type)
    assert fast.status_code == 200


def bundle_bounds():
    return bundles.BOX_LOW, bundles.BOX_HIGH
