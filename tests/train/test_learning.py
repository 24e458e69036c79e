"""Small environments that reveal faults: whoever handles their spaces and their ends rightly learns them soon."""

import numpy as np
import pytest

import environments
from paddleport.checkpoint import Run
from paddleport.errors import TrainingError, UsageError
from train.command import parse
from train.command import run as train
from train.network import network_of, run_network

ONCE = ("--checkpoint-every", "100000", "--evaluation-episodes", "20")
SETTINGS = {
    "ppo": ("--total-steps", "1500", "--n-steps", "16", "--batch-size", "64", "--learning-rate", "3e-3"),
    "a2c": ("--total-steps", "2000", "--learning-rate", "2e-3"),
    "dqn": (
        *("--total-steps", "1000", "--learning-starts", "200", "--exploration-fraction", "0.3", "--gamma", "0.5"),
        *("--replay-capacity", "5000", "--target-every", "50", "--learning-rate", "3e-3"),
        *("--gradient-steps", "2", "--normalize-obs"),
    ),
}
IMAGES = {
    "ppo": (
        "--total-steps",
        "600",
        "--n-steps",
        "16",
        "--batch-size",
        "64",
        "--epochs",
        "4",
        "--learning-rate",
        "1e-3",
    ),
    "a2c": ("--total-steps", "1200", "--learning-rate", "2e-3"),
    "dqn": (*SETTINGS["dqn"], "--total-steps", "600", "--batch-size", "16", "--num-envs", "4", "--train-every", "16"),
}
VECTORS = ("one-hot", "discrete", "multi-discrete", "multi-binary", "dict", "tuple")
PICTURES = ("hwc", "chw", "picture-and-speed")
DEFAULT_PICTURES = {("a2c", "hwc"), ("ppo", "picture-and-speed"), ("dqn", "chw")}
ANSWERS = ("discrete", "multi-discrete", "multi-binary", "box")


def trained(folder, algorithm, env_id, *options):
    return train(parse(["--algo", algorithm, "--env", env_id, *ONCE, *options, "--run-dir", str(folder / "run")]))


@pytest.mark.parametrize("algorithm", SETTINGS)
@pytest.mark.parametrize("form", VECTORS)
def test_what_is_shown_is_understood(tmp_path, form, algorithm):
    options = (*SETTINGS[algorithm], "--hidden-sizes", "32")
    assert trained(tmp_path, algorithm, f"Cue-{form}-v0", *options).evaluation.mean > 3.8  # of 4; 2 by chance


@pytest.mark.parametrize(
    ("algorithm", "form"),
    [
        pytest.param(*case, marks=() if case in DEFAULT_PICTURES else pytest.mark.slow)
        for case in ((algorithm, form) for algorithm in IMAGES for form in PICTURES)
    ],
)
def test_pictures_are_understood(tmp_path, form, algorithm):
    options = (*IMAGES[algorithm], "--hidden-sizes", "32")
    assert trained(tmp_path, algorithm, f"Cue-{form}-v0", *options).evaluation.mean > 3.8


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_every_kind_of_action_is_learnt(tmp_path, answer, algorithm):
    options = (*SETTINGS[algorithm], "--hidden-sizes", "32")
    assert trained(tmp_path, algorithm, f"Answer-{answer}-v0", *options).evaluation.mean > 3.6


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_squashed_actions_are_learnt_within_bounds_that_exclude_zero(tmp_path, algorithm):
    options = (*SETTINGS[algorithm], "--hidden-sizes", "32", "--squash")
    assert trained(tmp_path, algorithm, "Answer-box-v0", *options).evaluation.mean > 3.3  # 2.0 by chance


def test_dqn_learns_choices_that_start_below_zero(tmp_path):
    options = (*SETTINGS["dqn"], "--hidden-sizes", "32", "--dueling", "--prioritized", "--n-steps", "2")
    assert trained(tmp_path, "dqn", "Answer-discrete-v0", *options).evaluation.mean > 3.8


def values_of(folder, obs):
    outputs = run_network(network_of(Run(folder / "run").checkpoint("last")), {"obs": obs})
    return outputs["value"] if "value" in outputs else outputs["q_values"].max(axis=1)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("ppo", ("--total-steps", "8000", "--n-steps", "64", "--learning-rate", "5e-3")),
        ("a2c", ("--total-steps", "12000", "--learning-rate", "7e-3")),
        ("dqn", (*SETTINGS["dqn"], "--total-steps", "2000", "--target-every", "25")),
    ],
)
def test_a_reward_of_one_for_ever_is_worth_one_over_one_minus_gamma(tmp_path, algorithm, options):
    """Under a time limit, which ends the episode and not what it is worth."""
    trained(tmp_path, algorithm, "Forever-v0", *options, "--gamma", "0.8", "--hidden-sizes", "32")
    values = values_of(tmp_path, np.arange(0, 100, 10, dtype=np.float32)[:, None])
    assert values == pytest.approx(np.full(10, 5.0), rel=0.1)


@pytest.mark.parametrize("vector", ["sync", "own"], ids=["next-step autoreset", "same-step autoreset"])
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("ppo", ("--total-steps", "4000", "--n-steps", "32", "--learning-rate", "5e-3", "--no-normalize-obs")),
        ("a2c", ("--total-steps", "6000", "--learning-rate", "7e-3", "--no-normalize-obs")),
        ("dqn", (*SETTINGS["dqn"], "--n-steps", "2")),
    ],
)
def test_nothing_of_an_episode_is_credited_to_the_one_before_it(tmp_path, algorithm, options, vector):
    trained(tmp_path, algorithm, "Turns-v0", *options, "--gamma", "0.9", "--hidden-sizes", "32", "--vector", vector)
    expected = [0, 0, 9, 10]  # γ · 10 is what a leak would add to the poor episode's end
    assert values_of(tmp_path, environments.Turns.states) == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize("algorithm", SETTINGS)
@pytest.mark.parametrize("env_id", ["NanPart-v0", "InfReward-v0"])
def test_a_number_that_is_not_finite_stops_every_algorithm(tmp_path, env_id, algorithm):
    with pytest.raises(TrainingError, match=r"that is not finite, near step .*, in environment"):
        trained(tmp_path, algorithm, env_id, *SETTINGS[algorithm])


@pytest.mark.parametrize("env_id", ["Answer-box-v0", "Answer-multi-discrete-v0", "Answer-multi-binary-v0"])
def test_dqn_refuses_actions_that_are_no_single_choice_before_there_is_a_folder(tmp_path, env_id):
    with pytest.raises(UsageError, match=r"expected a Discrete action space.*PPO and A2C take every action space"):
        trained(tmp_path, "dqn", env_id)
    assert list(tmp_path.iterdir()) == []
