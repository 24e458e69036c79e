"""The only place that uses Paddle's private API: programs run without `Executor.run`'s overhead, memory that is shared.

`Executor.run` prints the whole program to a string on each call to look up its cache, which costs several times
what a small update takes. `DirectProgram` takes the compiled executor once. Where a Paddle release moved these
names, `make_program` falls back to `PublicProgram`, which uses the public API alone and computes the same.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import paddle

from paddleport.spaces import Array


@contextlib.contextmanager
def static_mode() -> Iterator[None]:
    """Static mode within the block, eager mode after it: the mode is global to the process."""
    paddle.enable_static()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about attributes that a static value lacks, asked for by Paddle itself
            yield
    finally:
        paddle.disable_static()


def learning_rate_name(optimizer: Any) -> str:  # noqa: ANN401 - Paddle is untyped
    """Name of the variable that holds a static program's learning rate; `set_lr` works in eager mode only.

    To be called within the guard of the program that the optimizer was added to.
    """
    return str(optimizer._global_learning_rate().name)


class Program(Protocol):
    """A compiled program with fixed feeds and one fetched tensor."""

    def run(self, feed: Mapping[str, Array]) -> Array:
        """Run once; returns the fetched tensor."""
        ...


class PublicProgram:
    """The public API: correct everywhere, slower by the cost of its cache look-up.

    Args:
        executor: an `Executor`, its start-up program already run.
        program: the main program.
        scope: where its variables live.
        fetch: the variable to return.
    """

    def __init__(self, executor: Any, program: Any, scope: Any, fetch: Any) -> None:  # noqa: ANN401 - Paddle is untyped
        self._executor, self._program, self._scope, self._fetch = executor, program, scope, fetch

    def run(self, feed: Mapping[str, Array]) -> Array:
        """Run once; returns the fetched tensor."""
        with static_mode(), paddle.static.scope_guard(self._scope):
            fetched = self._executor.run(self._program, feed=dict(feed), fetch_list=[self._fetch])
        return np.asarray(fetched[0])


class DirectProgram:
    """The compiled executor itself, fed through its scope.

    Args:
        executor: an `Executor`, its start-up program already run.
        program: the main program.
        scope: where its variables live.
        fetch: the variable to return.
        feed: arrays of the shapes and types that each run will bring.
    """

    def __init__(self, executor: Any, program: Any, scope: Any, fetch: Any, feed: Mapping[str, Array]) -> None:  # noqa: ANN401
        from paddle.base import core

        _, entry, _ = executor._executor_cache.get_pir_program_and_executor(
            program, dict(feed), [fetch], "feed", "fetch", executor.place, scope, executor.plan
        )
        self._place = executor.place
        self._executor = entry._new_exe
        self._names = list(feed)
        self._tensors = {name: core.DenseTensor() for name in self._names}
        for name, tensor in self._tensors.items():
            tensor.set(feed[name], self._place)
            core.set_feed_variable(scope, tensor, name, 0)  # which shares its memory from now on

    def run(self, feed: Mapping[str, Array]) -> Array:
        """Run once; returns the fetched tensor."""
        for name, tensor in self._tensors.items():
            tensor.set(feed[name], self._place)
        return np.array(self._executor.run(self._names, False)._move_to_list()[0])


def make_program(executor: Any, program: Any, scope: Any, fetch: Any, feed: Mapping[str, Array]) -> Program:  # noqa: ANN401
    """The direct program where this Paddle has it, else the public one."""
    try:
        return DirectProgram(executor, program, scope, fetch, feed)
    except (AttributeError, ImportError, TypeError):
        return PublicProgram(executor, program, scope, fetch)


def has_in_place() -> bool:
    """Whether this Paddle has what the functions below need."""
    from paddle.base import core

    operations = getattr(paddle, "_C_ops", None)
    return all(hasattr(operations, name) for name in ("scale_", "add_", "squared_l2_norm")) and all(
        hasattr(core.DenseTensor, name) for name in ("_slice", "_share_data_with", "_set_dims")
    )


def add_in_place(variable: Any, other: Any) -> None:  # noqa: ANN401 - Paddle is untyped
    """Add to a static program's variable in its own memory.

    The operation's result is not to be used: Paddle takes it for a temporary, in whose memory, the variable's, a later
    operation may put something else. What reads the variable itself afterwards sees the sum.
    """
    paddle._C_ops.add_(variable, other)


def decay_in_place(variable: Any, factor: float, fresh: Any, share: Any) -> None:  # noqa: ANN401 - Paddle is untyped
    """`variable` ← `factor` · `variable` + `share` · `fresh` in its own memory; `share` is a tensor [1].

    What fades away stops at 1e-30 / (1 - `factor`): below 1e-38, where the numbers of units that are never active end
    up, each operation on it would take several times as long.
    """
    paddle._C_ops.scale_(variable, factor, 1e-30, True)  # type: ignore[attr-defined]
    add_in_place(variable, paddle.scale(fresh, scale=share))


def squared_norm(value: Any) -> Any:  # noqa: ANN401 - Paddle is untyped
    """Σ x² [1], in a single operation."""
    return paddle._C_ops.squared_l2_norm(value)


def share_memory(scope: Any, place: Any, whole: str, parts: Sequence[str]) -> None:  # noqa: ANN401 - Paddle is untyped
    """Copy variables into one vector, one behind the other, and make each a window on its part of it.

    Args:
        scope: where the variables live.
        place: where their memory is.
        whole: name of the vector, as long as the parts together.
        parts: names of the variables.
    """
    vector = scope.find_var(whole).get_tensor()
    tensors = [scope.find_var(name).get_tensor() for name in parts]
    vector.set(np.concatenate([np.array(tensor).ravel() for tensor in tensors]), place)
    start = 0
    for tensor in tensors:
        shape = tensor.shape()
        end = start + int(np.prod(shape))
        tensor._share_data_with(vector._slice(start, end))
        tensor._set_dims(shape)
        start = end
