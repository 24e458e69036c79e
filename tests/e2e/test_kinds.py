"""Every kind of observation from training to the bundle, and actions with bounds of their own.

The policies learn for a moment only: what is looked at is that the bundle is the policy that was trained.
"""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import environments
from export import command as export_command
from paddleport import Policy, verify_command
from paddleport.checkpoint import Run
from paddleport.spaces import joined, leaves_of
from quantize import command as quantize_command
from train import command as train_command
from train import evaluate_command
from train.network import network_of, run_network

ENVIRONMENTS = {
    "vector": "Cue-one-hot-v0",
    "image, channels last": "Cue-hwc-v0",
    "image, channels first": "Cue-chw-v0",
    "choice": "Cue-discrete-v0",
    "Dict": "Cue-dict-v0",
    "Tuple": "Cue-tuple-v0",
    "Dict with a camera": "Cue-picture-and-speed-v0",
    "shifted by 100 and scaled by 50": "Shifted-v0",
    "Box action, bounds per dimension": "Answer-box-v0",
}
FEW = ("--episodes", "5", "--seed", "3")


def trained(env: str, run: Path, algorithm: str = "ppo") -> Path:
    sizes = ("--total-steps", "512", "--num-envs", "4", "--n-steps", "32", "--batch-size", "64", "--hidden-sizes", "16",
             "--evaluation-episodes", "4")  # fmt: skip
    arguments = ["--algo", algorithm, "--env", f"environments:{env}", "--run-dir", str(run), *sizes]
    train_command.run(train_command.parse([*arguments, "--normalize-obs"]))
    return run


@pytest.fixture(scope="module", params=sorted(ENVIRONMENTS))
def walked(request, tmp_path_factory) -> tuple[str, Path, Path]:
    """The environment's id, the run, and the policy's folder with float32 and int8 in its bundle."""
    folder = tmp_path_factory.mktemp("kinds")
    env = ENVIRONMENTS[request.param]
    run = trained(env, folder / "run")
    tolerant = ("--min-agreement", "0.0", "--max-drop", "1.0")
    quantize_command.run(
        quantize_command.parse([str(run), "--calibration-episodes", "5", "--episodes", "5", *tolerant])
    )
    arguments = [str(run), "--name", "kind", "--models", str(folder / "models"), *FEW]
    export_command.run(export_command.parse(arguments))
    return env, run, folder / "models" / "kind"


def test_the_bundle_verifies(walked):
    (found,) = verify_command.run(verify_command.parse([str(walked[2])])).bundles
    assert {"float32", "int8"} <= set(found.worst)


def test_whole_episodes_return_what_the_trainer_returns(walked):
    _, run, policy = walked
    returns = [evaluate_command.run(evaluate_command.parse([str(path), *FEW])).mean for path in (run, policy)]
    assert returns[0] == pytest.approx(returns[1], abs=1e-4)


def test_raw_observations_are_answered_as_the_trainer_answers(walked):
    """One by one through `Policy`, as a caller has them, and in one batch through the trainer."""
    env, run, folder = walked
    policy = Policy.load(folder)
    network = network_of(Run(run).checkpoint(None))

    made = gymnasium.make(f"environments:{env}")
    shown = [made.reset(seed=seed)[0] for seed in range(20)]
    leaves = [{name: np.asarray(array)[np.newaxis] for name, array in
               leaves_of(policy.manifest.observation_space, obs).items()} for obs in shown]  # fmt: skip
    expected = run_network(network, joined(leaves))["action"]
    answered = np.stack([policy.act(obs) for obs in shown])
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(answered, expected, rtol=1e-5, atol=1e-6)
    else:
        assert (answered == expected).mean() >= 0.95  # an untrained policy may be torn between two choices


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_an_action_with_bounds_per_dimension_is_what_the_environment_receives(tmp_path, size):
    run = trained("Answer-box-v0", tmp_path / "run")
    export_command.run(
        export_command.parse(
            [str(run), "--name", "kind", "--models", str(tmp_path / "models"), "--quantized", "none", *FEW]
        )
    )
    policy = Policy.load(tmp_path / "models" / "kind")
    obs = size * np.random.default_rng(0).normal(size=(200, 2))
    actions = policy.act_batch(obs)
    space = environments.Cue.ANSWERS["box"]
    assert (space.low <= actions).all()
    assert (actions <= space.high).all()
    expected = run_network(network_of(Run(run).checkpoint(None)), {"obs": obs})["action"]
    np.testing.assert_allclose(actions, expected, rtol=1e-5)
    made = gymnasium.make("environments:Answer-box-v0")
    made.reset(seed=0)
    for action in actions[:5]:
        made.reset(seed=0)
        made.step(action)  # it refuses what its space does not contain
