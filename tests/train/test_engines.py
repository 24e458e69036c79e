import dataclasses
import logging

import numpy as np
import paddle
import pytest
from paddle.distributed import fleet

from problems import ACTIONS, ADAM, CHOICES, LOSSES, OBSERVATIONS, RMSPROP, batches, problem, started
from train.engines import compiled
from train.engines.compiled import CompiledEngine
from train.engines.direct import DirectProgram, PublicProgram
from train.engines.eager import EagerEngine


# The compiled engine adds a bias within the matrix product and steps all parameters as one vector: the same formulas,
# rounded at other places. Over 20 steps of Adam, which divides by roots of small numbers, this grows to some 1e-5.
@pytest.mark.parametrize("optimizer", [ADAM, RMSPROP], ids=lambda optimizer: optimizer.kind)
@pytest.mark.parametrize(
    ("kind", "loss"), [("discrete", "ppo"), ("box", "ppo"), ("discrete", "a2c"), ("box", "a2c"), ("discrete", "dqn")]
)
def test_the_engines_agree_over_twenty_updates(kind, loss, optimizer):
    posed = problem(ACTIONS[kind], optimizer, loss)
    check_agreement(posed, 20)


@pytest.mark.parametrize(
    ("action", "options"),
    [(CHOICES["multi-discrete"], {}), (CHOICES["multi-binary"], {}), (ACTIONS["box"], {"squash": True})],
)
def test_the_engines_agree_on_every_kind_of_action(action, options):
    check_agreement(problem(action, **options), 5)


@pytest.mark.parametrize(("shown", "loss"), [("picture", "a2c"), ("parts", "ppo"), ("parts", "dqn")])
def test_the_engines_agree_on_pictures_and_parts(shown, loss):
    options = {} if loss == "dqn" else {"shared_trunk": True, "hidden_sizes": (16,)}
    check_agreement(problem(ACTIONS["discrete"], ADAM, loss, OBSERVATIONS[shown], **options), 2)


def check_agreement(posed, updates):
    """Both engines report the same and end with the same weights."""
    static, eager = started(CompiledEngine(posed), posed), started(EagerEngine(posed), posed)
    for batch in batches(posed, updates):
        assert static.update(batch, 1e-3) == pytest.approx(eager.update(batch, 1e-3), rel=1e-4, abs=1e-5)
    expected = eager.weights()
    for name, value in static.weights().items():
        assert value == pytest.approx(expected[name], rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("optimizer", [ADAM, RMSPROP], ids=lambda optimizer: optimizer.kind)
@pytest.mark.parametrize("make", [CompiledEngine, EagerEngine])
def test_an_engine_continues_from_saved_state_bit_for_bit(make, optimizer):
    posed = problem(ACTIONS["discrete"], optimizer)
    through, early, late = (started(make(posed), posed) for _ in range(3))
    for index, batch in enumerate(batches(posed, 8)):
        through.update(batch, 1e-3)
        if index < 4:
            early.update(batch, 1e-3)
        else:
            if index == 4:
                late.load_weights(early.weights())
                late.load_optimizer_state(early.optimizer_state())
            late.update(batch, 1e-3)
    for name, value in through.weights().items():
        assert (late.weights()[name] == value).all(), name
    for name, value in through.optimizer_state().items():
        assert (late.optimizer_state()[name] == value).all(), name


def test_optimizer_state_of_one_engine_fits_the_other():
    posed = problem(ACTIONS["discrete"])
    static, eager = started(CompiledEngine(posed), posed), started(EagerEngine(posed), posed)
    first, second = batches(posed, 2)
    static.update(first, 1e-3)
    eager.load_weights(static.weights())
    eager.load_optimizer_state(static.optimizer_state())
    assert static.update(second, 1e-3) == pytest.approx(eager.update(second, 1e-3), rel=1e-5, abs=1e-6)
    assert static.optimizer_state().keys() == eager.optimizer_state().keys()


def test_this_paddle_has_the_direct_program():
    posed = problem(ACTIONS["discrete"])
    assert isinstance(CompiledEngine(posed)._program, DirectProgram)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_public_fallback_computes_the_same(monkeypatch, loss):
    posed = problem(ACTIONS["discrete"], loss=loss)
    direct = started(CompiledEngine(posed), posed)
    monkeypatch.setattr(
        compiled, "make_program", lambda exe, program, scope, fetch, feed: PublicProgram(exe, program, scope, fetch)
    )
    public = started(CompiledEngine(posed), posed)
    for batch in batches(posed, 3):
        assert (direct.update(batch, 1e-3) == public.update(batch, 1e-3)).all()


def test_the_learning_rate_is_the_one_of_each_update():
    posed = problem(ACTIONS["discrete"])
    for engine in (started(CompiledEngine(posed), posed), started(EagerEngine(posed), posed)):
        before = engine.weights()
        first, second = batches(posed, 2)
        engine.update(first, 0.0)
        assert all((engine.weights()[name] == value).all() for name, value in before.items())
        engine.update(second, 1e-2)
        assert any((engine.weights()[name] != value).any() for name, value in before.items())


@pytest.mark.parametrize("make", [CompiledEngine, EagerEngine])
def test_rmsprop_takes_the_step_computed_by_hand(make):
    posed = problem(ACTIONS["discrete"], RMSPROP)
    engine = started(make(posed), posed)
    before = engine.weights()["policy_head.bias"]
    batch = next(batches(posed, 1))
    engine.update(batch, 1e-3)
    # From mean square 0: v = 0.01 g², step = lr · g / sqrt(v + ε).
    mean_square = engine.optimizer_state()["policy_head.bias/mean_square"]
    gradient = np.sqrt(mean_square / 0.01)
    step = np.abs(engine.weights()["policy_head.bias"] - before)
    assert step == pytest.approx(1e-3 * gradient / np.sqrt(mean_square + 1e-5), rel=1e-3)


def test_moments_that_fade_stay_out_of_the_denormals():
    posed = problem(ACTIONS["discrete"], loss="dqn")
    engine = started(CompiledEngine(posed), posed)
    batch = next(batches(posed, 1))
    engine.update(batch, 1e-3)
    nothing = {name: np.zeros_like(values) for name, values in batch.items()}
    for _ in range(1000):  # 0.9 to the 1000th is 1e-46, below float32's smallest normal number
        engine.update({**nothing, "action": batch["action"]}, 0.0)
    moments = engine.optimizer_state()["online.trunk.layers.0.weight/moment1"]
    assert (np.abs(moments) >= np.finfo(np.float32).tiny).all()
    assert (np.abs(moments) < 1e-20).all()


# Without the trunks' gradients the weights would differ: Paddle's re-entrant recompute gives none here, in silence.
@pytest.mark.parametrize("loss", LOSSES)
def test_recompute_gives_the_same_weights_bit_for_bit(loss):
    posed = problem(ACTIONS["discrete"], loss=loss)
    kept, recomputed = started(EagerEngine(posed), posed), started(EagerEngine(posed, recompute=True), posed)
    for batch in batches(posed, 3):
        assert (kept.update(batch, 1e-3) == recomputed.update(batch, 1e-3)).all()
    for name, value in kept.weights().items():
        assert (recomputed.weights()[name] == value).all(), name


def test_recompute_is_silent_about_observations_that_need_no_gradient(monkeypatch):
    lines = []
    handler = logging.Handler()
    handler.emit = lines.append
    monkeypatch.setattr(logging.getLogger("paddle.distributed.fleet.utils.log_util"), "handlers", [handler])
    fleet.set_log_level("INFO")
    posed = problem(ACTIONS["discrete"])
    started(EagerEngine(posed, recompute=True), posed).update(next(batches(posed, 1)), 1e-3)
    assert lines == []


def test_recompute_runs_each_trunk_once_more_for_the_backward_pass():
    class Counting(paddle.nn.Layer):
        calls = 0

        def __init__(self):
            super().__init__()
            self.inner = paddle.nn.Linear(4, 32)

        def forward(self, features):
            Counting.calls += 1
            return self.inner(features["vector"])

    usual = problem(ACTIONS["discrete"])

    def make_network():  # with a trunk that is no MLP
        network = usual.make_network()
        network.policy_trunk = Counting()
        return network

    posed = dataclasses.replace(usual, make_network=make_network)
    for recompute, calls in ((False, 1), (True, 2)):
        Counting.calls = 0
        engine = started(EagerEngine(posed, recompute=recompute), posed)
        engine.update(next(batches(posed, 1)), 1e-3)
        assert Counting.calls == calls
        assert "policy_trunk.inner.weight" in engine.weights()
