"""Small problems for the engines: each algorithm's loss with its batches, drawn from a fixed seed."""

from functools import partial

import numpy as np

from paddleport.checkpoint import NetworkInfo
from paddleport.spaces import Box, Discrete
from train.distributions import distribution_for
from train.dqn import TwinQNetwork
from train.engines.base import Optimizer, Problem
from train.initialization import initial_weights
from train.losses import A2C_TERMS, DQN_TERMS, PPO_TERMS, a2c_loss, dqn_loss, features_in, ppo_loss
from train.network import ActorCritic

ROWS = 64
ADAM, RMSPROP = Optimizer("adam", 1e-5), Optimizer("rmsprop", 1e-5)
ACTIONS = {"discrete": Discrete(3), "box": Box(shape=(2,), dtype="float32", low=-1.0, high=1.0)}
OBS = Box(shape=(4,), dtype="float32", low=None, high=None)
LOSSES = ("ppo", "a2c", "dqn")


def problem(action_space, optimizer=ADAM, loss="ppo"):
    if loss == "dqn":
        return dqn_problem(action_space, optimizer)
    distribution = distribution_for(action_space)
    info = NetworkInfo(hidden_sizes=(32, 32), activation="tanh", normalize_obs=True)
    compute, terms = {"ppo": (ppo_loss, PPO_TERMS), "a2c": (a2c_loss, A2C_TERMS)}[loss]
    per_row = ("advantage", "value_target", "weight", *(("log_prob",) if loss == "ppo" else ()))
    return Problem(
        make_network=partial(ActorCritic, OBS, action_space, info),
        loss=lambda network, batch: compute(network.heads(features_in(batch, "obs")), batch, distribution, 0.5, 0.01),
        terms=terms,
        batch_shapes={
            "obs.vector": ((ROWS, 4), "float32"),
            "action": ((ROWS, *distribution.action_shape), distribution.action_dtype),
            **({"clip_range": ((1,), "float32")} if loss == "ppo" else {}),
            **dict.fromkeys(per_row, ((ROWS,), "float32")),
        },
        optimizer=optimizer,
        max_grad_norm=0.5,
    )


def dqn_problem(action_space, optimizer=ADAM):
    info = NetworkInfo(hidden_sizes=(32, 32), activation="relu", normalize_obs=False, kind="q_values", dueling=True)
    return Problem(
        make_network=partial(TwinQNetwork, OBS, action_space, info),
        loss=partial(dqn_loss, double=True),
        terms=DQN_TERMS,
        row_terms=("td_errors",),
        batch_shapes={
            **dict.fromkeys(("obs.vector", "next_obs.vector"), ((ROWS, 4), "float32")),
            "action": ((ROWS,), "int64"),
            **dict.fromkeys(("returns", "discounts", "weight"), ((ROWS,), "float32")),
        },
        optimizer=optimizer,
        max_grad_norm=10.0,
    )


def batches(posed, count):
    """`count` batches of just the arrays that the problem takes."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        rows = {name: rng.normal(size=shape).astype(kind) for name, (shape, kind) in posed.batch_shapes.items()}
        if posed.batch_shapes["action"][1] == "int64":
            rows["action"] = rng.integers(3, size=ROWS)
        rows["weight"] = (np.arange(ROWS) < 50).astype(np.float32)
        if "log_prob" in rows:
            rows["log_prob"] = rng.uniform(-2, -0.5, size=ROWS).astype(np.float32)
            rows["clip_range"] = np.array([0.2], dtype=np.float32)
        yield rows


def started(engine, posed):
    engine.load_weights(initial_weights(posed.make_network(), np.random.default_rng(1)))
    return engine
