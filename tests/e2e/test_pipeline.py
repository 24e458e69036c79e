"""The real pipeline, walked by its commands from a user's own folder: train, quantize, export, serve."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonclient.http as triton

from paddleport import Bundle, Client, Policy
from paddleport.bundle import row_error
from paddleport.checkpoint import Run
from train.episodes import play
from train.network import network_of, run_network
from train.runtime import load_paddle

load_paddle()
PADDLEPORT = str(Path(sys.executable).with_name("paddleport"))
EPISODES, SEED = 10, 7
EXTREMES = np.array([[1e6] * 4, [-1e6] * 4, [0] * 4, [1e6, -1e6, 1e6, -1e6]], dtype=np.float32)


def command(folder, *arguments):
    """Run one command in the user's folder, through a PYTHONPATH that names it too."""
    done = subprocess.run(
        [PADDLEPORT, *map(str, arguments), "--json"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "the user's own" not in done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose own files have the names of ours."""
    made = tmp_path_factory.mktemp("user")
    shout = "import sys\nprint('the user\\'s own', __name__, file=sys.stderr)\nraise SystemExit(9)\n"
    (made / "train.py").write_text(shout)
    for package, module in (("export", "__init__.py"), ("serve", "__init__.py"), ("serve", "app.py")):
        (made / package).mkdir(exist_ok=True)
        (made / package / module).write_text(shout)
    return made


@pytest.fixture(scope="module")
def made(folder):
    """What the three stages before the server reported."""
    training = ("--env", "CartPole-v1", "--seed", "1", "--total-steps", "12000", "--checkpoint-every", "4000")
    return {
        "train": command(folder, "train", "--algo", "ppo", *training, "--run-dir", "runs/x"),
        "quantize": command(folder, "quantize", "runs/x", "--method", "ptq"),
        "export": command(folder, "export", "runs/x", "--name", "cartpole", "--models", "models"),
    }


@pytest.fixture(scope="module")
def url(folder, made):
    process = subprocess.Popen(
        [PADDLEPORT, "serve", "--models", "models", "--port", "0"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(r" at (http://\S+)", line):
            break
    assert found, "".join(lines)
    yield found[1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0


@pytest.fixture(scope="module")
def trainer(folder, made):
    network = network_of(Run(folder / "runs" / "x").checkpoint())
    return lambda obs: run_network(network, {"obs": obs})


@pytest.fixture(scope="module")
def visited(trainer):
    played = play(lambda obs: trainer(obs["obs"])["action"], "CartPole-v1", EPISODES, SEED, keep=1000)
    return played.observations["obs"]


@pytest.fixture(scope="module")
def bundle(folder, made):
    return folder / made["export"]["bundle"]


def test_the_first_export_is_version_one_and_says_what_it_measured(folder, made, bundle):
    assert bundle == folder / "models" / "cartpole" / "1"
    precisions = Bundle.open(bundle).manifest.precisions
    assert set(precisions) == {"float32", "int8", "int8-trt"}
    assert all(info.measured_return.episodes >= 20 for info in precisions.values())


def test_trainer_onnx_and_http_are_one_function(trainer, bundle, visited, url):
    obs = np.concatenate([visited, EXTREMES])
    expected = trainer(obs)
    float32 = Policy.load(bundle).outputs(obs)
    for name, value in float32.items():
        assert row_error(value[: len(visited)], expected[name][: len(visited)]) <= 1e-5, name
        assert np.isfinite(value).all()
    with Client(url) as client:
        over_http = client.act_batch("cartpole", obs)
        single = [client.act("cartpole", row) for row in obs[:5]]
    assert over_http.tolist() == float32["action"].tolist()
    assert single == over_http[:5].tolist()
    margin = np.abs(np.diff(expected["logits"], axis=1))[:, 0]
    decided = margin > 2e-5 * np.maximum(1, np.abs(expected["logits"]).max(axis=1))
    assert (over_http == expected["action"])[decided].all()


def test_int8_acts_as_the_trainer_does(trainer, bundle, visited):
    agreement = np.mean(Policy.load(bundle, precision="int8").act_batch(visited) == trainer(visited)["action"])
    assert agreement >= 0.98


def test_whole_episodes_return_the_same_everywhere(folder, made, bundle, url):
    options = ("--episodes", EPISODES, "--seed", SEED)
    of_run = command(folder, "evaluate", "runs/x", *options)
    of_bundle = command(folder, "evaluate", "models/cartpole", "--precision", "float32", *options)
    with Client(url) as client:
        over_http = play(lambda obs: client.act_batch("cartpole", obs["obs"]), "CartPole-v1", EPISODES, SEED).statistics
    assert of_run["mean"] == pytest.approx(of_bundle["mean"], rel=0.02)
    assert of_bundle["mean"] == pytest.approx(over_http.mean, rel=0.02)


def test_the_int8_file_is_valid_smaller_and_integer(bundle):
    float32, int8 = (onnx.load(bundle / name) for name in ("policy.onnx", "policy.int8.onnx"))
    for model in (float32, int8):
        onnx.checker.check_model(model, full_check=True)
        assert not [node for node in model.graph.node if "Random" in node.op_type or node.op_type == "Multinomial"]
    assert int8.ByteSize() < float32.ByteSize()
    producers = {output: node for node in int8.graph.node for output in node.output}
    types = {tensor.name: tensor.data_type for tensor in int8.graph.initializer}
    products = [node for node in int8.graph.node if node.op_type in ("MatMul", "Gemm")]
    assert len(products) >= 6
    for node in products:
        weight = producers[node.input[1]]
        assert weight.op_type == "DequantizeLinear"
        assert types[weight.input[0]] == onnx.TensorProto.INT8


def test_an_unchanged_triton_client_is_answered_with_the_trainers_action(url, trainer, visited):
    obs = visited[:7]
    with triton.InferenceServerClient(url.removeprefix("http://")) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("cartpole")
        assert client.get_model_metadata("cartpole")["inputs"][0]["name"] == "obs"
        given = triton.InferInput("obs", list(obs.shape), "FP32")
        for binary_in in (True, False):
            given.set_data_from_numpy(obs, binary_data=binary_in)
            for binary_out in (True, False):
                wanted = [triton.InferRequestedOutput("action", binary_data=binary_out)]
                answer = client.infer("cartpole", [given], outputs=wanted).as_numpy("action")
                assert answer.tolist() == trainer(obs)["action"].tolist()


def test_inspect_shows_the_manifest(folder, made):
    shown = command(folder, "inspect", "models/cartpole")
    assert shown["environment"]["id"] == "CartPole-v1"
    assert shown["provenance"]["step"] == made["export"]["step"]


def test_a_second_export_is_the_next_version_and_leaves_the_first_as_it_is(folder, made, bundle):
    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    again = command(folder, "export", "runs/x", "--name", "cartpole", "--models", "models")
    assert again["version"] == 2
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before
