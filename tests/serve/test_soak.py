"""A quarter of an hour at half of what the server can do: memory and times stay as they are."""

import json
import time

import numpy as np
import psutil
import pytest
import urllib3

BODY = json.dumps({"observation": [0.1, -0.2, 0.05, 0.3]}).encode()
PATH = "/v1/policies/cartpole/act"


def ask_at(pool, rate, seconds):
    """Latencies in seconds of requests sent at a rate, whatever the answers take (one connection, open loop)."""
    latencies, end = [], time.monotonic() + seconds
    due = time.monotonic()
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        assert pool.request("POST", PATH, body=BODY).status == 200
        latencies.append(time.monotonic() - due)
        due += 1 / rate
    return latencies


def memory_of(server):
    parent = psutil.Process(server.process.pid)
    return sum(one.memory_full_info().uss for one in [parent, *parent.children(recursive=True)])


@pytest.mark.parametrize("seconds", [pytest.param(900, marks=pytest.mark.slow)])
def test_memory_and_latency_stay_flat_at_half_capacity(server, seconds):
    with urllib3.connection_from_url(server.url, retries=False) as pool:
        began = time.monotonic()
        for _ in range(500):
            pool.request("POST", PATH, body=BODY)
        capacity = 500 / (time.monotonic() - began)
        ask_at(pool, capacity / 2, 10)
        before, first = memory_of(server), ask_at(pool, capacity / 2, seconds / 10)
        ask_at(pool, capacity / 2, seconds * 0.8)
        last, after = ask_at(pool, capacity / 2, seconds / 10), memory_of(server)
    assert after - before < 5 * 2**20
    assert np.percentile(last, 99) < 2 * np.percentile(first, 99) + 0.002


def test_two_hundred_thousand_observations_leave_the_memory_as_it_is(server):
    """In requests of many, since what each request keeps for the watch is what could grow."""
    rows = np.random.default_rng(0).normal(size=(1000, 4)).round(3).tolist()
    body = json.dumps({"observations": rows}).encode()
    with urllib3.connection_from_url(server.url, retries=False) as pool:
        for _ in range(50):
            pool.request("POST", PATH, body=body)
        before = memory_of(server)
        for _ in range(200):
            assert pool.request("POST", PATH, body=body).status == 200
        assert memory_of(server) - before < 20 * 2**20
