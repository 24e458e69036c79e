"""The C policy is the ONNX policy: every kind, both precisions, gcc and clang."""

import numpy as np
import pytest

from c_policies import CPolicy, make, need, output_step, publish_example, write
from paddleport.bundle import decided, row_error
from policies import KINDS

HEADS = {"discrete": "logits", "discrete-from-5": "logits", "far-away": "logits"}


@pytest.fixture(scope="module")
def bundles(examples, tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    return {name: publish_example(models, name, example) for name, example in examples.items()}


@pytest.fixture(scope="module")
def folders(bundles, tmp_path_factory):
    root = tmp_path_factory.mktemp("edge")
    return {
        (name, precision): write(bundle, precision, root / f"{name}-{precision}")
        for name, bundle in bundles.items()
        for precision in ("float32", "int8")
    }


def onnx_outputs(example, precision, obs):
    head = next(name for name in example.names if name in ("logits", "mean"))
    return example.session(precision).run({"obs": obs}, ["action", head])


def observations(example):
    """At least 1,000 that the policy visits."""
    visited = example.sets.visited["obs"]
    rng = np.random.default_rng(5)
    rows = rng.normal(visited.mean(axis=0), visited.std(axis=0), size=(1000, *visited.shape[1:]))
    return rows.astype(visited.dtype)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_float32_is_the_onnx_policy(examples, bundles, folders, name, compiler):
    need(compiler)
    example, obs = examples[name], observations(examples[name])
    policy = CPolicy(folders[name, "float32"], bundles[name], HEADS.get(name, "mean"), CC=compiler)
    action, head, codes = policy.evaluate(obs)
    expected_action, expected_head = onnx_outputs(example, "float32", obs)
    assert set(codes) == {0}
    assert row_error(head, expected_head) <= 1e-5
    if name in HEADS:
        clear = decided(example.kind.action_space, expected_head, 1e-5, len(obs))
        assert (action == expected_action)[clear].all()
        assert clear.sum() >= 990
    else:
        assert action.dtype == expected_action.dtype
        assert row_error(action, expected_action) <= 1e-5


@pytest.mark.parametrize("name", sorted(KINDS))
def test_int8_is_the_int8_onnx_policy_but_for_roundings_at_the_edge_of_a_step(examples, bundles, folders, name):
    need("gcc")
    example, obs = examples[name], observations(examples[name])
    policy = CPolicy(folders[name, "int8"], bundles[name], HEADS.get(name, "mean"))
    action, head, _ = policy.evaluate(obs)
    expected_action, expected_head = onnx_outputs(example, "int8", obs)
    # One number at the edge of a step is rare, and nearly every row is the same to float32's last places; in an early
    # layer it can move several numbers of the layers behind it.
    step = 3 * output_step(example)
    assert (np.abs(head - expected_head) <= step).all()
    assert (np.abs(head - expected_head) <= 3e-4 * step).all(axis=1).mean() > 0.99
    if name in HEADS:
        assert (action == expected_action).mean() > 0.995
        clear = decided(example.kind.action_space, expected_head, float(step.max()), len(obs))
        assert (action == expected_action)[clear].all()


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_extremes_stay_finite_and_inside_the_bounds(examples, bundles, folders, name, precision):
    example, obs = examples[name], examples[name].sets.rest["obs"]
    policy = CPolicy(folders[name, precision], bundles[name], HEADS.get(name, "mean"))
    action, head, codes = policy.evaluate(obs)
    assert set(codes) == {0}
    assert np.isfinite(head).all()
    if name not in HEADS:
        low, high = example.kind.action_space.bounds()
        assert (action >= low).all()
        assert (action <= high).all()


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_self_test_passes_under_the_sanitizers(folders, name, precision):
    need("gcc")
    flags = "-O1 -g -fsanitize=address,undefined,float-divide-by-zero -fno-sanitize-recover=all -Wshadow"
    folder = folders[name, precision]
    make(folder, "clean")
    assert "PASS: 64 golden vectors" in make(folder, "selftest", CFLAGS=flags)
    make(folder, "clean")


def test_a_wrong_weight_fails_the_self_test(bundles, tmp_path):
    folder = write(bundles["discrete"], "int8", tmp_path / "edge")
    source = folder / "src" / "policy.c"
    text = source.read_text()
    start = text.index("policy_trunk_layers_1_weight[4096] = {") + len("policy_trunk_layers_1_weight[4096] = {")
    source.write_text(text[:start] + text[start : start + 4000].replace("-", "") + text[start + 4000 :])
    with pytest.raises(AssertionError, match="FAIL: 64 golden vectors"):
        make(folder, "selftest")
