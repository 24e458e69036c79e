"""Scales that PaddleSlim's observers decide, and the grids that they stand for."""

import numpy as np
import paddle
import pytest

from paddleport.errors import ArtifactError
from policies import KINDS, build
from quantize import gate
from quantize.fake import fake_quantized
from quantize.grid import layer_grid
from quantize.ptq import HEADROOM, OBSERVERS, calibrate
from quantize.scales import LayerScales
from train.network import load_arrays, run_network, state_arrays

LAYERS = [
    *(f"{side}_trunk.layers.{layer}" for side in ("policy", "value") for layer in (0, 1)),
    "policy_head",
    "value_head",
]


def visited(kind, count=1000):
    obs = np.random.default_rng(3).normal(kind.shift, kind.scale, (count, *kind.observation_space.shape))
    return {"obs": obs.astype(kind.observation_space.dtype)}


@pytest.mark.parametrize("observer", sorted(OBSERVERS))
def test_every_observer_decides_scales_that_keep_the_actions(observer):
    kind = KINDS["box-plain"] if observer == "kl" else KINDS["discrete"]  # kl takes seconds a layer
    network, obs = build(kind), visited(kind)
    layers = calibrate(network, obs, observer)
    assert set(layers) <= set(LAYERS)
    twin = fake_quantized(network, layers)
    expected, got = run_network(network, obs), run_network(twin, obs)
    assert gate.action_agreement(kind.action_space, expected["action"], got["action"]) > 0.98


@pytest.mark.parametrize("observer", ["absmax", "mse", "emd", "hist"])
def test_a_scale_is_near_the_largest_magnitude_also_of_negative_inputs(observer):
    kind = KINDS["box-plain"]
    obs = {"obs": -np.abs(visited(kind)["obs"])}
    layers = calibrate(build(kind), obs, observer)
    largest = np.abs(obs["obs"]).max() * HEADROOM
    assert 0.6 * largest < layers["policy_trunk.layers.0"].activation_abs_max <= 1.001 * largest


def test_weight_scales_are_the_largest_magnitude_of_each_channel():
    network = build(KINDS["box"])
    layers = calibrate(network, visited(KINDS["box"]), "absmax")
    for path, scales in layers.items():
        weight = state_arrays(network)[f"{path}.weight"]
        assert scales.weight_axis == 1
        assert np.allclose(scales.weight_abs_max, np.abs(weight).max(axis=0))


def test_layers_that_read_the_observation_have_two_digits():
    layers = calibrate(build(KINDS["far-away"]), visited(KINDS["far-away"]), "absmax")
    digits = {path: scales.activation_digits for path, scales in layers.items()}
    assert digits == {path: 2 if path.endswith("layers.0") else 1 for path in LAYERS}


def test_calibration_leaves_the_network_as_it_was():
    network, obs = build(KINDS["box"]), visited(KINDS["box"])
    before, outputs = state_arrays(network), run_network(network, obs)
    fake_quantized(network, calibrate(network, obs, "mse"))
    assert all(np.array_equal(before[name], array) for name, array in state_arrays(network).items())
    assert all(np.array_equal(outputs[name], array) for name, array in run_network(network, obs).items())


@pytest.mark.parametrize("observer", ["absmax", "hist", "mse"])
def test_inputs_that_never_change_have_a_scale(observer):
    kind = KINDS["discrete"]
    network = build(kind)
    weights = state_arrays(network)
    weights["policy_trunk.layers.0.weight"] = np.zeros_like(weights["policy_trunk.layers.0.weight"])
    weights["policy_trunk.layers.0.bias"] = np.zeros_like(weights["policy_trunk.layers.0.bias"])
    load_arrays(network, weights)
    layers = calibrate(network, visited(kind), observer)
    twin, expected = (run_network(net, visited(kind)) for net in (fake_quantized(network, layers), network))
    assert np.allclose(twin["logits"], expected["logits"], atol=0.02)


def test_the_fake_quantized_twin_is_rounded_as_numpy_rounds():
    kind = KINDS["box-plain"]
    network = build(kind)
    weights = state_arrays(network)
    scales = LayerScales(activation_abs_max=2.0, weight_abs_max=(2.0,) * 32, weight_axis=1)
    twin = fake_quantized(network, {"policy_trunk.layers.0": scales})
    obs = np.array([[0.3, -1.7, 9.0], [-9.0, 2.1 / 254, 6.2 / 254]], np.float32)
    grid = layer_grid(scales, weights["policy_trunk.layers.0.bias"])
    rounded = np.clip(np.rint(obs / grid.activation[0]), -128, 127) * grid.activation[0]
    weight = grid.weight_numbers(weights["policy_trunk.layers.0.weight"]) * grid.weight
    bias = grid.bias_numbers(weights["policy_trunk.layers.0.bias"]) * grid.bias
    with paddle.no_grad():
        got = twin.policy_trunk.layers[0](paddle.to_tensor(obs)).numpy()
    assert np.allclose(got, rounded @ weight + bias, atol=1e-6)


def test_two_digits_stand_for_a_number_almost_exactly():
    kind = KINDS["box-plain"]
    network = build(kind)
    scales = LayerScales(activation_abs_max=10.0, activation_digits=2, weight_abs_max=(1.0,) * 32, weight_axis=1)
    twin = fake_quantized(network, {"policy_trunk.layers.0": scales})
    weight = twin.policy_trunk.layers[0].weight.numpy()
    bias = twin.policy_trunk.layers[0].bias.numpy()
    obs = np.random.default_rng(0).uniform(-10, 10, (500, 3)).astype(np.float32)
    with paddle.no_grad():
        got = twin.policy_trunk.layers[0](paddle.to_tensor(obs)).numpy()
    finest = 10 / 127 / 254
    assert np.abs(got - (obs @ weight + bias)).max() <= finest / 2 * np.abs(weight).sum(axis=0).max() * 1.05


def test_a_bias_fits_32_bits_whatever_its_weights_are():
    scales = LayerScales(activation_abs_max=1.0, weight_abs_max=(1.0, 1e-8), weight_axis=1)
    grid = layer_grid(scales, np.array([0.5, 1000.0]))
    assert grid.weight[0] == np.float32(1 / 127)
    assert np.allclose(
        grid.bias_numbers(np.array([0.5, 1000.0])) * grid.bias.astype(np.float64), [0.5, 1000], rtol=1e-4
    )


def test_scales_of_another_network_are_refused():
    network = build(KINDS["discrete"])
    layers = calibrate(network, visited(KINDS["discrete"]), "absmax")
    with pytest.raises(ArtifactError, match=r"policy_trunk\.layers\.7"):
        fake_quantized(network, {"policy_trunk.layers.7": layers["policy_head"]})
    with pytest.raises(ArtifactError, match="value_head"):
        fake_quantized(network, {"value_head": layers["policy_trunk.layers.0"]})
