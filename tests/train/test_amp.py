"""What of mixed precision runs on the CPU: everything but the arithmetic in 16 bits.

Paddle's `GradScaler` and `decorate` switch themselves off on the CPU. The fixtures below answer their one question,
which device this is, and leave the rest of them real: scaling, looking for infinite gradients, skipping, masters.
"""

import dataclasses
import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddleport.checkpoint import OPTIMIZER, POLICY, Run, step_name
from paddleport.errors import TrainingError
from problems import ACTIONS, ADAM, LOSSES, RMSPROP, batches, problem, started
from train.command import parse
from train.command import run as train
from train.engines import amp as amp_module
from train.engines import eager
from train.engines.amp import SKIPPED_LIMIT, Amp, MixedNetwork, master_weights
from train.engines.compiled import CompiledEngine
from train.engines.eager import EagerEngine
from train.initialization import initial_weights

O1, O2 = Amp("O1", "float16"), Amp("O2", "float16")
DISCRETE = ACTIONS["discrete"]
_PLACE = SimpleNamespace(is_gpu_place=lambda: False, is_xpu_place=lambda: False, is_custom_place=lambda: True)
_TRACER = SimpleNamespace(_expected_place=_PLACE)


def working_scaler(kind=paddle.amp.GradScaler, **settings):
    """A real GradScaler that was told at its birth that this is an accelerator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["paddle.amp.grad_scaler"], "_dygraph_tracer", lambda: _TRACER)
        return kind(**settings)


class OverflowsAbove256(paddle.amp.GradScaler):
    """Overflows while the scale is above 256, as the gradients of float16 do at some scale."""

    def scale(self, var):
        return super().scale(var) * (np.inf if self.state_dict()["scale"][0] > 256 else 1.0)


@pytest.fixture
def scaling(monkeypatch):
    """Let engines scale on the CPU; returns a function that sets how."""

    def use(**settings):
        monkeypatch.setattr(eager, "grad_scaler", lambda _: working_scaler(**settings))

    use(init_loss_scaling=amp_module.INITIAL_SCALE)
    return use


@pytest.fixture
def lowering(monkeypatch):
    """Let `decorate` lower weights on the CPU, and forget afterwards what it keeps for the whole process."""
    module, state = sys.modules["paddle.amp.auto_cast"], sys.modules["paddle.amp.auto_cast"].amp_global_state()
    monkeypatch.setattr(module, "_dygraph_tracer", lambda: _TRACER)
    monkeypatch.setattr(module, "_is_custom_device_bfloat16_supported", lambda: True)
    monkeypatch.setattr(state, "use_master_grad", False)
    monkeypatch.setattr(state, "model_parameters", [])
    return state


def overflowing(batch):
    name = "returns" if "returns" in batch else "advantage"
    return {**batch, name: np.full_like(batch[name], np.inf)}


def everything(engine):
    return engine.weights() | engine.optimizer_state()


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype == np.float32, name
        assert (value == other[name]).all(), name


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_on_the_cpu_it_changes_nothing_and_scales_nothing(level, dtype):
    posed = problem(DISCRETE)
    plain, mixed = started(EagerEngine(posed), posed), started(EagerEngine(posed, Amp(level, dtype)), posed)
    for batch in batches(posed, 3):
        assert (plain.update(batch, 1e-3) == mixed.update(batch, 1e-3)).all()
    assert_equal(everything(plain), everything(mixed))
    assert mixed.scaler_state() == {}


# Scaling by a power of two is exact, so the steps are equal bit for bit; they would not be if the gradients were
# clipped to their norm before they are unscaled: the norm is above the limit in these batches, and 1024 times it.
@pytest.mark.parametrize("optimizer", [ADAM, RMSPROP], ids=lambda o: o.kind)
def test_a_scaled_step_is_the_unscaled_one_clipped_by_the_true_norm(scaling, optimizer):
    posed = dataclasses.replace(problem(DISCRETE, optimizer), max_grad_norm=0.1)
    plain, scaled = started(EagerEngine(posed), posed), started(EagerEngine(posed, O1), posed)
    for batch in batches(posed, 5):
        assert (plain.update(batch, 1e-3) == scaled.update(batch, 1e-3)).all()
    assert_equal(everything(plain), everything(scaled))
    assert scaled.scaler_state()["scale"] == 1024


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_that_overflows_is_skipped_counted_and_halves_the_scale(scaling, capsys, loss):
    posed = problem(DISCRETE, loss=loss)
    engine = started(EagerEngine(posed, O1), posed)
    first, second, third = batches(posed, 3)
    assert engine.update(first, 1e-3) is not None
    before = everything(engine)
    assert engine.update(overflowing(second), 1e-3) is None
    assert_equal(everything(engine), before)
    state = engine.scaler_state()
    assert (state["scale"], state["skipped"], state["skipped_in_a_row"]) == (512, 1, 1)
    assert np.isfinite(engine.update(third, 1e-3)).all()
    assert (engine.scaler_state()["skipped"], engine.scaler_state()["skipped_in_a_row"]) == (1, 0)
    assert capsys.readouterr().out == ""


def test_a_first_step_that_overflows_leaves_an_optimizer_that_can_start(scaling):
    posed = problem(DISCRETE)
    engine, plain = started(EagerEngine(posed, O1), posed), started(EagerEngine(posed), posed)
    first, second = batches(posed, 2)
    assert engine.update(overflowing(first), 1e-3) is None
    assert (engine.update(second, 1e-3) == plain.update(second, 1e-3)).all()
    assert_equal(everything(engine), everything(plain))


def test_a_scale_that_grows_is_no_skipped_step(scaling):
    scaling(init_loss_scaling=1024, incr_every_n_steps=2)
    posed = problem(DISCRETE)
    engine = started(EagerEngine(posed, O1), posed)
    for batch in batches(posed, 5):
        assert engine.update(batch, 1e-3) is not None
    assert engine.scaler_state()["scale"] == 4096
    assert engine.scaler_state()["skipped"] == 0


def test_many_skipped_steps_in_a_row_stop_the_run_with_advice(scaling):
    posed = problem(DISCRETE)
    engine = started(EagerEngine(posed, O1), posed)
    good = next(batches(posed, 1))
    for _ in range(SKIPPED_LIMIT - 1):
        assert engine.update(overflowing(good), 1e-3) is None
    assert engine.update(good, 1e-3) is not None  # and they count from the start again
    for _ in range(SKIPPED_LIMIT - 1):
        assert engine.update(overflowing(good), 1e-3) is None
    with pytest.raises(TrainingError, match=r"20 updates in a row.*39 skipped.*--learning-rate.*bfloat16.*O1"):
        engine.update(overflowing(good), 1e-3)


def test_an_engine_continues_from_a_saved_scaler_bit_for_bit(scaling):
    scaling(init_loss_scaling=1024, incr_every_n_steps=3)
    posed = problem(DISCRETE)
    through, early, late = (started(EagerEngine(posed, O1), posed) for _ in range(3))
    for index, batch in enumerate(batches(posed, 10)):
        fed = overflowing(batch) if index in (1, 4, 7) else batch
        through.update(fed, 1e-3)
        if index < 5:
            early.update(fed, 1e-3)
        else:
            if index == 5:
                late.load_weights(early.weights())
                late.load_optimizer_state(early.optimizer_state())
                late.load_scaler_state(json.loads(json.dumps(early.scaler_state())))
            late.update(fed, 1e-3)
    assert_equal(everything(late), everything(through))
    assert late.scaler_state() == through.scaler_state()
    assert late.scaler_state()["skipped"] == 3


def test_a_scaler_that_never_scaled_and_one_that_does_take_each_others_state(scaling):
    posed = problem(DISCRETE)
    engine = started(EagerEngine(posed, O1), posed)
    engine.load_scaler_state({})
    assert engine.scaler_state()["scale"] == 1024
    for other in (EagerEngine(posed), CompiledEngine(posed)):
        other.load_scaler_state(engine.scaler_state())
        assert other.scaler_state() == {}


SETTINGS = {
    "ppo": ("--algo", "ppo", "--epochs", "2"),
    "a2c": (
        "--algo",
        "a2c",
    ),
    "dqn": (
        "--algo",
        "dqn",
        "--gradient-steps",
        "2",
        "--learning-starts",
        "100",
        "--prioritized",
        "--hidden-sizes",
        "32",
        "--train-every",
        "8",
    ),
}


@pytest.mark.parametrize("algorithm", SETTINGS)
def test_a_run_goes_on_over_skipped_steps_logs_them_and_resumes_exactly(scaling, tmp_path, algorithm):
    scaling(kind=OverflowsAbove256, init_loss_scaling=1024)
    steps = ("--total-steps", "800", "--checkpoint-every", "400", "--evaluation-episodes", "1")
    through, resumed = tmp_path / "through", tmp_path / "resumed"
    train(parse([*SETTINGS[algorithm], *steps, "--amp", "O1", "--device", "cpu", "--run-dir", str(through)]))
    rows = [json.loads(line) for line in (through / "metrics.jsonl").read_text().splitlines()]
    learnt = [row for row in rows if row.get("loss") is not None]
    assert (learnt[-1]["amp_skipped"], learnt[-1]["amp_scale"]) == (2, 256)

    shutil.copytree(through, resumed)
    last = Run(resumed).steps()[-1]
    shutil.rmtree(resumed / "checkpoints" / step_name(last))
    train(parse(["--run-dir", str(resumed), "--resume"]))
    ends = [Run(run).checkpoint("last") for run in (through, resumed)]
    assert ends[0].state.amp_scaler == ends[1].state.amp_scaler
    assert ends[0].state.amp_scaler["good_steps"] > ends[0].state.amp_scaler["skipped"] == 2
    for name in (POLICY, OPTIMIZER):
        assert (ends[0].path / name).read_bytes() == (ends[1].path / name).read_bytes()


class Halves(paddle.nn.Layer):
    """Its heads, and those of its part, come out in 16 bits, as they do on a GPU."""

    def __init__(self, depth):
        super().__init__()
        self.depth = depth
        if depth:
            self.part = Halves(depth - 1)

    def heads(self, features):
        return {"value": features.astype("float16")}


def test_a_loss_gets_float32_from_the_heads_of_a_network_and_of_its_parts():
    seen = MixedNetwork(Halves(1), O1)
    for network in (seen, seen.part):
        assert network.heads(paddle.ones([2, 3]))["value"].dtype == paddle.float32
    assert seen.depth == 1


def lowered(posed):
    engine = EagerEngine(posed, O2)
    weights = initial_weights(posed.make_network(), np.random.default_rng(1))
    engine.load_weights(weights)
    return engine, weights


@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_o2_takes_and_gives_float32_weights_while_the_network_holds_them_rounded(lowering, kind):
    posed = problem(ACTIONS[kind])
    engine, weights = lowered(posed)
    assert lowering.use_master_grad
    assert_equal(engine.weights(), weights)
    held = dict(engine._network.named_parameters())
    for path, value in weights.items():
        if path == "log_std":  # the network's own parameter stays in float32
            assert held[path].dtype == paddle.float32
        else:
            assert held[path].dtype == paddle.float16
            assert (held[path].numpy() == value.astype(np.float16)).all(), path
    assert any((value != value.astype(np.float16)).any() for value in weights.values())


# The CPU has no Adam for weights in 16 bits, but a step that is skipped makes all that the optimizer remembers.
def test_o2_keeps_the_optimizers_state_in_float32_under_the_same_names_as_any_engine(lowering):
    posed = problem(ACTIONS["box"])
    plain = started(EagerEngine(posed), posed)
    plain.update(next(batches(posed, 1)), 1e-3)
    expected = plain.optimizer_state()
    engine, weights = lowered(posed)
    engine.load_optimizer_state(expected)
    for parameter in engine._network.parameters():
        parameter.grad = paddle.full(parameter.shape, np.inf, dtype="float32")
    working_scaler().step(engine._optimizer)
    assert_equal(engine.optimizer_state(), expected)
    again, _ = lowered(posed)
    again.load_weights(engine.weights())
    again.load_optimizer_state(engine.optimizer_state())
    engine.load_optimizer_state(expected)  # into accumulators that are there already
    assert_equal(engine.weights(), weights)


def test_masters_are_made_for_what_is_in_16_bits_alone():
    layer = paddle.nn.Linear(2, 2)
    assert master_weights(dict(layer.named_parameters())) == {}
    layer.to(dtype="bfloat16")
    masters = master_weights(dict(layer.named_parameters()))
    assert {path: master.dtype for path, master in masters.items()} == dict.fromkeys(("weight", "bias"), paddle.float32)
