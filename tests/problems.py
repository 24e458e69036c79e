"""Small problems for the engines: each algorithm's loss with its batches, drawn from a fixed seed."""

from functools import partial

import numpy as np

from paddleport.checkpoint import NetworkInfo
from paddleport.spaces import Box, DictSpace, Discrete, MultiBinary, MultiDiscrete
from train.distributions import distribution_for
from train.dqn import TwinQNetwork
from train.encoding import encoding_of
from train.engines.base import Optimizer, Problem
from train.initialization import initial_weights
from train.losses import A2C_TERMS, DQN_TERMS, PPO_TERMS, a2c_loss, dqn_loss, features_in, ppo_loss
from train.network import ActorCritic

ROWS = 64
ADAM, RMSPROP = Optimizer("adam", 1e-5), Optimizer("rmsprop", 1e-5)
ACTIONS = {"discrete": Discrete(3), "box": Box(shape=(2,), dtype="float32", low=-1.0, high=1.0)}
OBS = Box(shape=(4,), dtype="float32", low=None, high=None)
OBSERVATIONS = {
    "picture": Box(shape=(36, 36, 2), dtype="uint8", low=0.0, high=255.0),
    "parts": DictSpace(
        spaces={"camera": Box(shape=(1, 36, 36), dtype="uint8", low=0.0, high=255.0), "mode": Discrete(3), "speed": OBS}
    ),
}
CHOICES = {"multi-discrete": MultiDiscrete(nvec=(3, 2)), "multi-binary": MultiBinary(shape=(2, 2))}
LOSSES = ("ppo", "a2c", "dqn")


def problem(action_space, optimizer=ADAM, loss="ppo", observation_space=OBS, **options):
    """A loss with its network: `options` are those of `NetworkInfo`."""
    if loss == "dqn":
        return dqn_problem(action_space, optimizer, observation_space)
    info = NetworkInfo(**{"hidden_sizes": (32, 32), "activation": "tanh", "normalize_obs": True} | options)
    distribution = distribution_for(action_space, squash=info.squash)
    compute, terms = {"ppo": (ppo_loss, PPO_TERMS), "a2c": (a2c_loss, A2C_TERMS)}[loss]
    per_row = ("advantage", "value_target", "weight", *(("log_prob",) if loss == "ppo" else ()))
    return Problem(
        make_network=partial(ActorCritic, observation_space, action_space, info),
        loss=lambda network, batch: compute(network.heads(features_in(batch, "obs")), batch, distribution, 0.5, 0.01),
        terms=terms,
        batch_shapes={
            **feature_shapes(observation_space, "obs"),
            "action": ((ROWS, *distribution.action_shape), distribution.action_dtype),
            **({"clip_range": ((1,), "float32")} if loss == "ppo" else {}),
            **dict.fromkeys(per_row, ((ROWS,), "float32")),
        },
        optimizer=optimizer,
        max_grad_norm=0.5,
    )


def dqn_problem(action_space, optimizer=ADAM, observation_space=OBS):
    info = NetworkInfo(hidden_sizes=(32, 32), activation="relu", normalize_obs=False, kind="q_values", dueling=True)
    return Problem(
        make_network=partial(TwinQNetwork, observation_space, action_space, info),
        loss=partial(dqn_loss, double=True),
        terms=DQN_TERMS,
        row_terms=("td_errors",),
        batch_shapes={
            **feature_shapes(observation_space, "obs"),
            **feature_shapes(observation_space, "next_obs"),
            "action": ((ROWS,), "int64"),
            **dict.fromkeys(("returns", "discounts", "weight"), ((ROWS,), "float32")),
        },
        optimizer=optimizer,
        max_grad_norm=10.0,
    )


def feature_shapes(space, prefix):
    """Shape and type of each feature in a batch."""
    shapes = encoding_of(space).shapes(space)
    return {f"{prefix}.{name}": ((ROWS, *shape), kind) for name, (shape, kind) in shapes.items()}


def batches(posed, count):
    """`count` batches of just the arrays that the problem takes."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        rows = {name: drawn(shape, kind, rng) for name, (shape, kind) in posed.batch_shapes.items()}
        shape, kind = posed.batch_shapes["action"]
        if kind == "int64":
            rows["action"] = rng.integers([3, 2][: shape[-1]] if len(shape) > 1 else 3, size=shape)
        elif shape[1:] == (4,):  # the MultiBinary one
            rows["action"] = rng.integers(2, size=shape).astype(np.float32)
        rows["weight"] = (np.arange(ROWS) < 50).astype(np.float32)
        if "log_prob" in rows:
            rows["log_prob"] = rng.uniform(-2, -0.5, size=ROWS).astype(np.float32)
            rows["clip_range"] = np.array([0.2], dtype=np.float32)
        yield rows


def drawn(shape, kind, rng):
    if kind == "uint8":
        return rng.integers(256, size=shape, dtype=np.uint8)
    return rng.normal(size=shape).astype(kind)


def started(engine, posed):
    engine.load_weights(initial_weights(posed.make_network(), np.random.default_rng(1)))
    return engine
