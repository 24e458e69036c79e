"""Whole episodes with the compiled policy: the return of the ONNX policy, on the same seeds."""

import pytest

from c_policies import CPolicy, need, publish_example, write
from policies import Kind, build, make_example
from train.environments import describe_environment
from train.episodes import play

EPISODES = 5


@pytest.mark.parametrize("env_id", ["CartPole-v1", "LunarLander-v3", "Pendulum-v1"])
def test_the_compiled_policy_earns_what_the_onnx_policy_earns(env_id, tmp_path):
    need("gcc")
    _, obs_space, action_space = describe_environment(env_id)
    kind = Kind(obs_space, action_space, gain=30.0)
    example = make_example(kind, tmp_path / "onnx", build(kind))
    bundle = publish_example(tmp_path / "models", "made", example)
    head = next(name for name in example.names if name in ("logits", "mean"))
    for precision in ("float32", "int8"):
        folder = write(bundle, precision, tmp_path / precision)
        policy, session = CPolicy(folder, bundle, head), bundle.session(precision)
        onnx = play(lambda obs, s=session: s.run(obs, ["action"])[0], env_id, EPISODES, 7).statistics
        compiled = play(lambda obs, p=policy: p.evaluate(obs["obs"])[0], env_id, EPISODES, 7).statistics
        assert compiled.mean == pytest.approx(onnx.mean, rel=1e-4)
        assert compiled.min == pytest.approx(onnx.min, rel=1e-4)
