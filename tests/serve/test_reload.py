"""Models while the server runs: published, damaged, rolled back, unloaded, in every worker at once."""

import http.client
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import tritonclient.http as triton

import bundles

OBS = {"observation": [0, 0, 1, 0]}  # version 1 of `cartpole` acts the other way on it


@pytest.fixture
def two(models, tmp_path):
    """A models folder of a test's own: cartpole 1 (flipped) and 2, reacher 1."""
    return Path(shutil.copytree(models, tmp_path / "models"))


def wait_for(condition, seconds=15.0):
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def version_of(server, connections=1):
    return server.act("cartpole", OBS)[1].get("version")


def versions_seen(server, tries=12):
    """The versions that answer on connections of their own, so that every worker is asked."""
    import urllib3

    seen = set()
    for _ in range(tries):
        with urllib3.connection_from_url(server.url, retries=False) as pool:
            seen.add(
                json.loads(pool.request("POST", "/v1/policies/cartpole/act", body=json.dumps(OBS)).data)["version"]
            )
    return seen


def damage(folder):
    data = bytearray((folder / "policy.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "policy.onnx").write_bytes(data)


def test_a_published_version_is_swapped_in_and_a_damaged_one_refused(start_server, two, tmp_path):
    server = start_server(two, "--watch-seconds", "0.1", "--workers", "2")
    bundles.publish_discrete(two, flip=True)
    assert wait_for(lambda: version_of(server) == 3)
    assert versions_seen(server) == {3}
    assert server.act("cartpole", OBS)[1]["action"] == bundles.discrete_action(OBS["observation"], flip=True)
    elsewhere = bundles.publish_discrete(Path(shutil.copytree(two, tmp_path / "elsewhere")))
    damage(elsewhere)
    shutil.copytree(elsewhere, two / "cartpole" / ".4.tmp")
    (two / "cartpole" / ".4.tmp").rename(two / "cartpole" / "4")
    assert wait_for(lambda: "UNAVAILABLE" in json.dumps(server.request("POST", "/v2/repository/index")[2]))
    assert versions_seen(server) == {3}
    entry = next(e for e in server.request("POST", "/v2/repository/index")[2] if e["version"] == "4")
    assert "damaged" in entry["reason"]
    assert any("cartpole version 4 is refused" in line for line in server.lines)
    assert server.request("GET", "/v2/health/ready")[0] == 200
    metrics = server.pool.request("GET", "/metrics").data.decode()
    assert 'paddleport_reloads_total{result="refused"} 1.0' in metrics
    assert 'paddleport_version_ready{policy="cartpole",version="4"} 0.0' in metrics


def test_rollback_reaches_every_worker_and_lasts_until_a_newer_version(start_server, two):
    server = start_server(two, "--watch-seconds", "0.1", "--workers", "2")
    assert server.request("POST", "/v1/policies/cartpole/rollback")[2] == {"done": True, "version": 1}
    assert versions_seen(server) == {1}
    time.sleep(0.5)
    assert versions_seen(server) == {1}
    status, _, answer = server.request("POST", "/v1/policies/cartpole/rollback")
    assert status == 409
    assert "no older version" in answer["error"]
    assert server.request("POST", "/v1/policies/cartpole/rollback", b'{"version": 9}')[0] == 404
    for odd in (b"99999999999999999999", b"0", b"-1", b"1.5"):
        assert server.request("POST", "/v1/policies/cartpole/rollback", b'{"version": %s}' % odd)[0] == 400
    bundles.publish_discrete(two)
    assert wait_for(lambda: versions_seen(server, 4) == {3})


def test_a_policy_comes_back_with_its_folder_after_a_worker_could_not_open_it(start_server, two, tmp_path):
    server = start_server(two, "--watch-seconds", "0.1", "--workers", "2")
    away = two.rename(tmp_path / "away")
    before = server.workers()
    os.kill(before[0], signal.SIGKILL)
    assert wait_for(lambda: any("serves no longer" in line for line in server.lines))
    away.rename(two)
    assert wait_for(lambda: server.act("cartpole", OBS)[0] == 200)
    assert wait_for(lambda: versions_seen(server) == {2})


def test_a_replaced_worker_starts_as_the_others_are(start_server, two):
    server = start_server(two, "--workers", "2")
    server.request("POST", "/v1/policies/cartpole/rollback")
    server.request("POST", "/v2/repository/models/reacher/unload")
    before = server.workers()
    os.kill(before[0], signal.SIGKILL)
    assert wait_for(lambda: len(server.workers()) == 2 and before[0] not in server.workers())
    assert wait_for(lambda: any("replaced" in line for line in server.lines))
    assert versions_seen(server) == {1}
    for _ in range(6):
        assert server.act("reacher", OBS)[0] == 503


def test_pins_hold_against_what_is_published(start_server, two):
    server = start_server(two, "--policy", "cartpole=1", "--watch-seconds", "0.1")
    bundles.publish_discrete(two)
    assert wait_for(lambda: server.act("cartpole", OBS, version=3)[0] == 200)
    assert version_of(server) == 1


def test_a_pinned_version_that_is_missing_or_damaged_stops_the_start(two, run_serve):
    code, said = run_serve("--models", str(two), "--port", "0", "--policy", "cartpole=7")
    assert code == 1
    assert "cartpole version 7 has to be served" in said
    damage(two / "cartpole" / "2")
    code, said = run_serve("--models", str(two), "--port", "0", "--policy", "cartpole=2")
    assert code == 1
    assert "damaged" in said
    assert run_serve("--models", str(two), "--port", "0", "--policy", "nothing")[0] == 1
    assert run_serve("--models", str(two), "--port", "0", "--policy", "cartpole=two")[0] == 2


def test_explicit_control_with_tritons_client(start_server, two):
    server = start_server(two, "--model-control", "explicit", "--policy", "reacher", "--watch-seconds", "0.1")
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as client:
        assert client.is_model_ready("reacher")
        assert not client.is_model_ready("cartpole")
        client.load_model("cartpole")
        assert client.is_model_ready("cartpole", "2")
        client.unload_model("cartpole")
        assert not client.is_model_ready("cartpole")
        states = {(one["name"], one["version"]): one["state"] for one in client.get_model_repository_index()}
        assert states["cartpole", "2"] == "UNAVAILABLE"
        bundles.publish_discrete(two)
        time.sleep(0.4)
        client.load_model("cartpole")
        assert client.is_model_ready("cartpole", "3")
        with pytest.raises(triton.InferenceServerException, match="no such policy"):
            client.load_model("nothing")


def test_names_that_lead_out_of_the_folder_are_unknown(server):
    for name in ("..%2F..%2Fetc", "..", "%2e%2e", ".hidden", "a%00b"):
        assert server.request("POST", f"/v2/repository/models/{name}/load")[0] in (400, 404), name


def test_canary_is_sticky_by_caller_and_gets_its_share(start_server, two):
    server = start_server(two)
    split = {"kind": "canary", "version": 1, "share": 0.3}
    assert server.request("PUT", "/v1/policies/cartpole/split", json.dumps(split).encode())[0] == 200
    path, body = "/v1/policies/cartpole/act", json.dumps(OBS).encode()
    answered = {}
    for _ in range(2):
        for caller in range(200):
            version = server.request("POST", path, body, {"Paddleport-Caller": f"robot-{caller}"})[2]["version"]
            assert answered.setdefault(caller, version) == version
    assert 30 <= list(answered.values()).count(1) <= 90
    assert server.act("cartpole", OBS, version=2)[1]["version"] == 2
    assert server.request("GET", "/v1/policies/cartpole")[2]["split"]["share"] == 0.3
    assert server.request("DELETE", "/v1/policies/cartpole/split")[0] == 200
    assert {version_of(server) for _ in range(20)} == {2}


def test_shadow_answers_are_compared_and_never_returned(start_server, two):
    server = start_server(two)
    split = {"kind": "shadow", "version": 1, "share": 1.0}
    assert server.request("PUT", "/v1/policies/cartpole/split", json.dumps(split).encode())[0] == 200
    for _ in range(30):
        assert server.act("cartpole", OBS)[1]["version"] == 2
    wanted = 'paddleport_shadow_total{outcome="different",policy="cartpole",version="1"} 30.0'
    assert wait_for(lambda: wanted in server.pool.request("GET", "/metrics").data.decode())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"kind": "canary", "version": 2, "share": 0.1}', 409),
        (b'{"kind": "canary", "version": 9, "share": 0.1}', 404),
        (b'{"kind": "canary", "version": 1, "share": 1.5}', 400),
        (b'{"kind": "canary", "version": 99999999999999999999, "share": 0.5}', 400),
        (b'{"kind": "other", "version": 1, "share": 0.5}', 400),
        (b"{}", 400),
        (b"", 400),
    ],
)
def test_a_split_that_cannot_be_is_refused(server, body, status):
    answered, _, content = server.request("PUT", "/v1/policies/cartpole/split", body)
    assert answered == status
    assert "error" in content


class Load:
    """Clients on connections of their own that ask until they are stopped, and check every answer."""

    def __init__(self, server, count=4):
        self.wrong, self.failed, self.versions = [], [], set()
        self._server = server
        self._stop = threading.Event()
        self.threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self.threads:
            thread.join()

    def _ask(self):
        connection = http.client.HTTPConnection(*self._server.address, timeout=20)
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                connection.request("POST", "/v1/policies/cartpole/act", json.dumps(OBS))
                response = connection.getresponse()
                self._check(response.status, json.loads(response.read()), began)
            except (OSError, http.client.HTTPException) as error:
                self.failed.append((began, time.monotonic(), repr(error)))
                connection.close()

    def _check(self, status, content, began):
        if status != 200:
            self.failed.append((began, time.monotonic(), content))
            return
        self.versions.add(content["version"])
        if content["action"] != bundles.discrete_action(OBS["observation"], flip=content["version"] % 2 == 1):
            self.wrong.append(content)


def disturb(server, two, made, version, killed):
    """One more version, every fourth damaged; now and then a rollback, a dead worker, an unload."""
    bundle = bundles.publish_discrete(made, flip=version % 2 == 1)  # odd versions act the other way
    _renumber(bundle, two, version, broken=version % 4 == 0)
    if version % 3 == 0:
        server.request("POST", "/v1/policies/cartpole/rollback")
    if version % 5 == 0:
        killed.append(time.monotonic())
        os.kill(server.workers()[0], signal.SIGKILL)
        time.sleep(0.5)
    if version % 7 == 0:
        server.request("POST", "/v2/repository/models/reacher/unload")
        server.request("POST", "/v2/repository/models/reacher/load")


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_under_load_nothing_that_is_done_to_the_models_gives_a_wrong_answer(start_server, two, tmp_path, seconds):
    server = start_server(two, "--workers", "2", "--watch-seconds", "0.05")
    killed = []
    with Load(server) as load:
        end, version = time.monotonic() + seconds, 2
        while time.monotonic() < end:
            version += 1
            disturb(server, two, tmp_path / f"made{version}", version, killed)
            time.sleep(max(0.15, seconds / 40))
    assert not load.wrong
    assert len(load.versions) >= 4
    # What fails was on its way when a worker was killed, one request a connection and kill at most.
    lost = [one for one in load.failed if not any(one[0] - 0.5 <= moment <= one[1] + 0.5 for moment in killed)]
    assert not lost
    assert len(load.failed) <= len(killed) * len(load.threads)


def _renumber(bundle: Path, models: Path, version: int, *, broken: bool) -> None:
    """Publish a bundle under a number of our choice, by rename; its manifest is sealed anew."""
    import msgspec

    from paddleport import sealed
    from paddleport.manifest import MANIFEST, SCHEMA_VERSION, Manifest

    manifest = sealed.unseal(bundle / MANIFEST, Manifest, SCHEMA_VERSION)
    (bundle / MANIFEST).write_bytes(sealed.seal(msgspec.structs.replace(manifest, version=version)))
    if broken:
        damage(bundle)
    hidden = models / "cartpole" / f".{version}.tmp"
    shutil.copytree(bundle, hidden)
    hidden.rename(models / "cartpole" / str(version))
