"""A game of Atari from a short training to a bundle: nothing is learnt, everything has to fit together."""

import numpy as np
import pytest

from export import command as export_command
from paddleport import Bundle, Policy
from paddleport.checkpoint import Run
from train.command import parse
from train.command import run as train
from train.network import network_of, run_network

SETTINGS = {
    "ppo": ("--num-envs", "4", "--n-steps", "64", "--batch-size", "64", "--epochs", "1"),
    "dqn": ("--learning-starts", "600", "--train-every", "16", "--gradient-steps", "1", "--replay-capacity", "2000"),
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_pong_is_trained_and_exported(tmp_path, algorithm):
    run, models = tmp_path / "run", tmp_path / "models"
    options = ("--total-steps", "1000", "--checkpoint-every", "1000", "--evaluation-episodes", "1")
    result = train(
        parse(["--algo", algorithm, "--env", "ALE/Pong-v5", *SETTINGS[algorithm], *options, "--run-dir", str(run)])
    )
    assert result.finished
    assert -21 <= result.evaluation.mean <= 21
    export_command.run(export_command.parse([str(run), "--name", "pong", "--models", str(models), "--episodes", "2"]))
    manifest = Bundle.open(models / "pong").manifest
    assert [(given.name, given.dtype, given.shape) for given in manifest.inputs] == [("obs", "uint8", (4, 84, 84))]
    assert "frame_stack=4" in manifest.environment.preprocessing
    frames = np.random.default_rng(0).integers(256, size=(8, 4, 84, 84), dtype=np.uint8)
    expected = run_network(network_of(Run(run).checkpoint()), {"obs": frames})["action"]
    assert (Policy.load(models / "pong").act_batch(frames) == expected).all()
