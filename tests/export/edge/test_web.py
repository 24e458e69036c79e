"""The target web: the folder, the environments in JavaScript against Gymnasium's, and the page in a real browser."""

import functools
import http.server
import io
import json
import re
import shutil
import subprocess
import tarfile
import threading
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import runs
from c_policies import want
from export.edge import command, web
from paddleport.errors import UsageError

SCRIPT = """
import { ENVIRONMENTS } from "./environments.mjs";
const { id, state, actions } = JSON.parse(process.argv[2]);
const world = new ENVIRONMENTS[id].kind();
world.reset(() => 0.5);
Object.assign(world, state);
const rows = actions.map((action) => ({ ...world.step(action), observation: [...world.observation()] }));
console.log(JSON.stringify(rows));
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    """An untrained policy on CartPole."""
    from export import command as export_command

    folder = tmp_path_factory.mktemp("web")
    runs.untrained_run(folder / "run", hidden_sizes=(16,))
    arguments = [str(folder / "run"), "--name", "cart", "--models", str(folder / "models"), "--episodes", "2"]
    return Path(export_command.run(export_command.parse(arguments)).bundle)


@pytest.fixture
def package(tmp_path) -> Path:
    """Files with the names of the runtime's, as `npm pack` packs them."""
    path = tmp_path / "package.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name in web._RUNTIME:
            info = tarfile.TarInfo(f"package/dist/{name}")
            info.size = 4
            archive.addfile(info, io.BytesIO(b"ort\n"))
    return path


def written(bundle: Path, out: Path, *options: str) -> Path:
    command.run(command.parse([str(bundle), "--target", "web", "--out", str(out), *options]))
    return out


def test_the_folder_holds_all_that_the_page_loads(bundle, package, tmp_path):
    out = written(bundle, tmp_path / "web", "--package", str(package))
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    for page in ("index.html", "page.mjs", "policy.mjs"):
        text = (out / page).read_text()
        assert "@" not in text
        assert not re.findall(r"https?://", text)  # nothing from elsewhere
        for loaded in re.findall(r'(?:src|href|from|fetch)[=( ]+"(?:\./)?([^":]+\.\w+)"', text):
            assert loaded in files
    described = json.loads((out / "policy.json").read_text())
    assert described["environment"] == "CartPole-v1"
    assert len(described["golden"]["inputs"]["obs"]) == len(described["golden"]["outputs"]["logits"]) > 10


def test_without_the_runtime_it_says_how_to_get_it(bundle, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"This is not onnxruntime-web.* npm pack onnxruntime-web@"):
        written(bundle, tmp_path / "web", "--package", str(tmp_path))
    (tmp_path / "broken.tgz").write_bytes(b"no archive")
    with pytest.raises(UsageError, match=r"This is not onnxruntime-web.*npm pack"):
        written(bundle, tmp_path / "web", "--package", str(tmp_path / "broken.tgz"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"there is no npm here.* npm pack onnxruntime-web@"):
        written(bundle, tmp_path / "web")
    assert not (tmp_path / "web").exists()


ENVIRONMENTS = {
    "CartPole-v1": lambda env: {"state": env.state.tolist()},
    "Acrobot-v1": lambda env: {"state": env.state.tolist()},
    "MountainCar-v0": lambda env: {"position": env.state[0], "speed": env.state[1]},
    "Pendulum-v1": lambda env: {"angle": env.state[0], "turning": env.state[1]},
}


@pytest.mark.parametrize("env_id", sorted(ENVIRONMENTS))
def test_the_environment_in_javascript_is_gymnasiums(env_id, tmp_path):
    want("node")
    env = gymnasium.make(env_id)
    env.reset(seed=4)
    env.action_space.seed(4)
    state = ENVIRONMENTS[env_id](env.unwrapped)
    actions, expected = [], []
    for _ in range(120):
        action = env.action_space.sample()
        obs, reward, terminated, truncated, _ = env.step(action)
        actions.append(np.asarray(action, np.float64).tolist())
        expected.append((obs.tolist(), float(reward), bool(terminated)))
        if terminated or truncated:
            break
    shutil.copy(Path(web.__file__).parent / "files" / "web_environments.mjs", tmp_path / "environments.mjs")
    (tmp_path / "run.mjs").write_text(SCRIPT)
    argument = json.dumps(
        {"id": env_id, "state": {k: np.asarray(v).tolist() for k, v in state.items()}, "actions": actions}
    )
    said = subprocess.run(
        ["node", "run.mjs", argument], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    got = json.loads(said)
    assert len(got) == len(expected)
    for row, (obs, reward, terminated) in zip(got, expected, strict=True):
        np.testing.assert_allclose(row["observation"], obs, atol=2e-4, rtol=2e-4)
        assert row["reward"] == pytest.approx(reward, abs=1e-4)
        assert row["terminated"] == terminated


def test_the_page_acts_in_a_browser(bundle, tmp_path):
    want("chromium", "npm")
    try:
        out = written(bundle, tmp_path / "web")
    except UsageError as error:
        pytest.skip(f"there is no onnxruntime-web here: {error}")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(out))
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/?steps=20&seed=1"
        browser = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/browser"]
        page = subprocess.run(
            [*browser, "--virtual-time-budget=60000", "--dump-dom", url],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        server.shutdown()
    assert re.search(r'id="golden"[^>]*>PASS: \d+ golden vectors', page)
    assert re.search(r'id="episode"[^>]*>\d+ steps, return \d+', page)
    assert 'id="problem" role="alert" hidden' in page
