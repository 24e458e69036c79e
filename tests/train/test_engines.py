from functools import partial

import numpy as np
import pytest

from paddleport.checkpoint import NetworkInfo
from paddleport.spaces import Box, Discrete
from train.distributions import distribution_for
from train.engines import compiled
from train.engines.base import Optimizer, Problem
from train.engines.compiled import CompiledEngine
from train.engines.direct import DirectProgram, PublicProgram
from train.engines.eager import EagerEngine
from train.initialization import initial_weights
from train.losses import PPO_TERMS, features_in, ppo_loss
from train.network import ActorCritic

ROWS = 64
ADAM, RMSPROP = Optimizer("adam", 1e-5), Optimizer("rmsprop", 1e-5)
ACTIONS = {"discrete": Discrete(3), "box": Box(shape=(2,), dtype="float32", low=-1.0, high=1.0)}


def problem(action_space, optimizer=ADAM):
    distribution = distribution_for(action_space)
    obs = Box(shape=(4,), dtype="float32", low=None, high=None)
    info = NetworkInfo(hidden_sizes=(32, 32), activation="tanh", normalize_obs=True)
    per_row = ("log_prob", "advantage", "value_target", "weight")
    return Problem(
        make_network=partial(ActorCritic, obs, action_space, info),
        loss=lambda network, batch: ppo_loss(network.heads(features_in(batch, "obs")), batch, distribution, 0.5, 0.01),
        terms=PPO_TERMS,
        batch_shapes={
            "obs.vector": ((ROWS, 4), "float32"),
            "action": ((ROWS, *distribution.action_shape), distribution.action_dtype),
            "clip_range": ((1,), "float32"),
            **dict.fromkeys(per_row, ((ROWS,), "float32")),
        },
        optimizer=optimizer,
        max_grad_norm=0.5,
    )


def batches(action_space, count):
    rng = np.random.default_rng(0)
    for _ in range(count):
        discrete = isinstance(action_space, Discrete)
        rows = {name: rng.normal(size=ROWS).astype(np.float32) for name in ("advantage", "value_target")}
        yield {
            **rows,
            "obs.vector": rng.normal(size=(ROWS, 4)).astype(np.float32),
            "action": rng.integers(3, size=ROWS) if discrete else rng.normal(size=(ROWS, 2)).astype(np.float32),
            "log_prob": rng.uniform(-2, -0.5, size=ROWS).astype(np.float32),
            "weight": (np.arange(ROWS) < 50).astype(np.float32),
            "clip_range": np.array([0.2], dtype=np.float32),
        }


def started(engine, posed):
    engine.load_weights(initial_weights(posed.make_network(), np.random.default_rng(1)))
    return engine


# Both engines call the same CPU kernels in the same order, so they agree to the last bit on the machines seen;
# 1e-5 relative leaves room for a build that fuses an operation in one of them, over 20 steps of the optimizer.
@pytest.mark.parametrize("optimizer", [ADAM, RMSPROP], ids=lambda optimizer: optimizer.kind)
@pytest.mark.parametrize("kind", ACTIONS)
def test_the_engines_agree_over_twenty_updates(kind, optimizer):
    posed = problem(ACTIONS[kind], optimizer)
    static, eager = started(CompiledEngine(posed), posed), started(EagerEngine(posed), posed)
    for batch in batches(ACTIONS[kind], 20):
        assert static.update(batch, 1e-3) == pytest.approx(eager.update(batch, 1e-3), rel=1e-5, abs=1e-6)
    expected = eager.weights()
    for name, value in static.weights().items():
        assert value == pytest.approx(expected[name], rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("optimizer", [ADAM, RMSPROP], ids=lambda optimizer: optimizer.kind)
@pytest.mark.parametrize("make", [CompiledEngine, EagerEngine])
def test_an_engine_continues_from_saved_state_bit_for_bit(make, optimizer):
    posed = problem(ACTIONS["discrete"], optimizer)
    through, early, late = (started(make(posed), posed) for _ in range(3))
    for index, batch in enumerate(batches(ACTIONS["discrete"], 8)):
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
    first, second = batches(ACTIONS["discrete"], 2)
    static.update(first, 1e-3)
    eager.load_weights(static.weights())
    eager.load_optimizer_state(static.optimizer_state())
    assert static.update(second, 1e-3) == pytest.approx(eager.update(second, 1e-3), rel=1e-5, abs=1e-6)
    assert static.optimizer_state().keys() == eager.optimizer_state().keys()


def test_this_paddle_has_the_direct_program():
    posed = problem(ACTIONS["discrete"])
    assert isinstance(CompiledEngine(posed)._program, DirectProgram)


def test_the_public_fallback_computes_the_same(monkeypatch):
    posed = problem(ACTIONS["discrete"])
    direct = started(CompiledEngine(posed), posed)
    monkeypatch.setattr(
        compiled, "make_program", lambda exe, program, scope, fetch, feed: PublicProgram(exe, program, scope, fetch)
    )
    public = started(CompiledEngine(posed), posed)
    for batch in batches(ACTIONS["discrete"], 3):
        assert (direct.update(batch, 1e-3) == public.update(batch, 1e-3)).all()


def test_the_learning_rate_is_the_one_of_each_update():
    posed = problem(ACTIONS["discrete"])
    for engine in (started(CompiledEngine(posed), posed), started(EagerEngine(posed), posed)):
        before = engine.weights()
        first, second = batches(ACTIONS["discrete"], 2)
        engine.update(first, 0.0)
        assert all((engine.weights()[name] == value).all() for name, value in before.items())
        engine.update(second, 1e-2)
        assert any((engine.weights()[name] != value).any() for name, value in before.items())


@pytest.mark.parametrize("make", [CompiledEngine, EagerEngine])
def test_rmsprop_takes_the_step_computed_by_hand(make):
    posed = problem(ACTIONS["discrete"], RMSPROP)
    engine = started(make(posed), posed)
    before = engine.weights()["policy_head.bias"]
    batch = next(batches(ACTIONS["discrete"], 1))
    engine.update(batch, 1e-3)
    # From mean square 0: v = 0.01 g², step = lr · g / sqrt(v + ε).
    mean_square = engine.optimizer_state()["policy_head.bias/mean_square"]
    gradient = np.sqrt(mean_square / 0.01)
    step = np.abs(engine.weights()["policy_head.bias"] - before)
    assert step == pytest.approx(1e-3 * gradient / np.sqrt(mean_square + 1e-5), rel=1e-3)
