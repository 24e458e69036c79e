"""Several copies of an environment that step together."""

from __future__ import annotations

import functools
from typing import Any, Literal, TypeAlias

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from paddleport.errors import PaddleportError, UsageError
from train.environments.atari import atari_keywords, make_atari_vector
from train.environments.describing import describe_environment
from train.environments.guarded import GuardedVector, what_was_raised
from train.environments.making import make_environment, quiet
from train.environments.pool import Pool
from train.environments.workers import Workers

VectorKind: TypeAlias = Literal["auto", "sync", "async", "own", "envpool"]


def make_vector(env_id: str, num_envs: int, kind: VectorKind = "auto") -> VectorEnv[Any, Any, Any]:
    """`num_envs` copies that step together; `metadata["autoreset_mode"]` says how episodes follow each other.

    Every kind resets by next-step autoreset: after an episode's end the next step ignores its action and returns the
    first observation of a new episode, so that row is no transition (Gymnasium 1.x, `AutoresetMode.NEXT_STEP`).
    The arrays that a step returns may be those of the step before: who keeps one copies it, as `Stepper` does.

    Args:
        env_id: as `make_environment` takes it.
        num_envs: how many.
        kind: sync steps them in turn, in this process; async in a process each; own takes the vector form that the
            environment itself has, whose episodes are others than those of its single form; envpool is EnvPool's.
            auto is sync, and for Atari games ale-py's own.

    Raises:
        UsageError: the environment cannot be made, or not in that way.
    """
    keywords = atari_keywords(env_id)
    if keywords is not None:
        if kind not in ("auto", "own"):
            raise UsageError(f"{env_id} steps in ale-py's own vector environment", expected="--vector auto", got=kind)
        return GuardedVector(make_atari_vector(keywords, num_envs, training=True), env_id)
    try:
        return _make(env_id, num_envs, kind)
    except PaddleportError:
        raise
    except Exception as error:  # copies whose spaces differ, or whatever a vector form of the user's own raises
        raise UsageError(f"{num_envs} copies of {env_id!r} cannot be made", got=what_was_raised(error)) from error


def _make(env_id: str, num_envs: int, kind: VectorKind) -> VectorEnv[Any, Any, Any]:
    makers = [functools.partial(make_environment, env_id, number) for number in range(num_envs)]
    if kind == "async":
        return GuardedVector(Workers(makers), env_id)
    if kind == "own":
        return GuardedVector(_own(env_id, num_envs), env_id)
    if kind == "envpool":
        return GuardedVector(_pool(env_id, num_envs), env_id)
    # Its arrays are written anew by each step, as those of a vector form of the environment's own may be.
    return SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)


def _own(env_id: str, num_envs: int) -> VectorEnv[Any, Any, Any]:
    make_environment(env_id).close()  # which refuses what does not exist, and imports the module that registers it
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    if spec is None or spec.vector_entry_point is None:
        raise UsageError(f"{env_id} has no vector form of its own", expected="--vector auto, sync or async", got="own")
    with quiet():
        envs = gymnasium.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point")
    if envs.metadata.get("autoreset_mode") not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        raise UsageError(
            f"The vector form of {env_id} does not say how its episodes follow each other",
            expected='metadata["autoreset_mode"] of AutoresetMode.NEXT_STEP or SAME_STEP',
            got=envs.metadata.get("autoreset_mode"),
        )
    return envs


def _pool(env_id: str, num_envs: int) -> Pool:
    single = make_environment(env_id)
    try:
        return Pool(env_id, num_envs, single, describe_environment(env_id)[0].max_episode_steps)
    finally:
        single.close()
