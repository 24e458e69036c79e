"""`policy.h` and `policy.c`: the policy's whole function for one observation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from export.edge.c.helpers import BLOCKS, FINITE, HELPERS
from export.edge.c.memory import Memory, plan_memory
from export.edge.c.steps import Steps
from export.edge.c.text import comment
from export.edge.program import C_TYPES, FloatLayer, IntegerLayer, Program
from paddleport import __version__
from paddleport.manifest import Manifest
from paddleport.spaces import Box, Discrete, Space


@dataclass(frozen=True)
class Source:
    """The generated files, and what is known of their size before any compiler saw them."""

    header: str
    code: str
    memory: Memory
    constant_bytes: int
    """Weights, biases, multipliers and tables: what has to lie in flash."""
    scratch_bytes: tuple[int, ...]
    """Of the arrays within layers: what one output pixel of each convolution sees."""
    prefix: str
    """Of every name that a linker sees."""

    @property
    def macro(self) -> str:
        """Prefix of the header's macros."""
        return self.prefix.upper()


def write_source(program: Program, manifest: Manifest, precision: str, prefix: str) -> Source:
    """Write a program down in C99.

    Raises:
        GateError: an integer layer could overflow.
    """
    memory = plan_memory(program)
    steps = Steps(memory.names)
    for step in program.steps:
        steps.write(step)
    head = _title(manifest, precision)
    code = _code(program, steps, memory, head, prefix)
    return Source(
        header=_header(program, manifest, head, prefix),
        code=code,
        memory=memory,
        constant_bytes=steps.constant_bytes,
        scratch_bytes=tuple(steps.scratch_bytes),
        prefix=prefix,
    )


def _title(manifest: Manifest, precision: str) -> str:
    environment = comment(manifest.environment.id)
    return (
        f"{comment(manifest.name)} version {manifest.version}, {precision}: acts in {environment}.\n"
        f" * Written by Paddleport {__version__} (paddleport edge --target c); do not edit."
    )


def _header(program: Program, manifest: Manifest, title: str, prefix: str) -> str:
    macro = prefix.upper()
    preprocessing = "".join(f" * Before: {comment(each)}\n" for each in manifest.environment.preprocessing)
    return f"""\
/* {title}
 *
 * Observation:
{_described(manifest.observation_space)}{preprocessing} * Action:
{_described(manifest.action_space)} */
#ifndef {macro}_H
#define {macro}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {macro}_OBS_SIZE {program.obs.size}
#define {macro}_ACTION_SIZE {program.action.size}
#define {macro}_HEAD_SIZE {program.head.size}

typedef {C_TYPES[program.obs.dtype]} {prefix}_obs_t;
typedef {C_TYPES[program.action.dtype]} {prefix}_action_t;

enum {{
    {macro}_OK = 0,
    {macro}_BAD_OBSERVATION = 1, /* an element of obs is not finite; action is as it was */
    {macro}_OVERFLOW = 2         /* obs is so large that the policy's numbers overflowed; do not use action */
}};

/* The deterministic action for one raw observation, as the environment gives it and takes it.
 * It allocates nothing, writes no globals, and may run in several threads at once. */
int {prefix}_act(const {prefix}_obs_t obs[{macro}_OBS_SIZE], {prefix}_action_t action[{macro}_ACTION_SIZE]);

/* The same, with what the action was made from: the policy's {program.head_name}. */
int {prefix}_evaluate(const {prefix}_obs_t obs[{macro}_OBS_SIZE], {prefix}_action_t action[{macro}_ACTION_SIZE],
                      float head[{macro}_HEAD_SIZE]);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _described(space: Space) -> str:
    """Comment lines on the elements of a space: at most 32 of them, or one line on the whole."""
    if isinstance(space, Discrete):
        names = ", ".join(f"{space.start + at} {name}" for at, name in enumerate(space.names))
        return f" *   one of {space.start} ... {space.start + space.n - 1}{': ' + comment(names) if names else ''}\n"
    assert isinstance(space, Box)  # noqa: S101 - read_program takes no other
    low, high = (np.broadcast_to(bound, space.shape).reshape(-1) for bound in space.bounds())
    if space.size > 32:
        return f" *   {list(space.shape)} in row-major order, from {low.min():g} to {high.max():g}\n"
    lines = []
    for at in range(space.size):
        name = f" {comment(space.names[at])}" if space.names else ""
        unit = f" [{comment(space.units[at])}]" if space.units else ""
        lines.append(f" *   [{at}]{name}{unit}, from {low[at]:g} to {high[at]:g}\n")
    return "".join(lines)


def _code(program: Program, steps: Steps, memory: Memory, title: str, prefix: str) -> str:
    finite = sorted({C_TYPES[dtype] for dtype in (program.obs.dtype, "float32") if dtype.startswith("float")})
    checks = [FINITE.format(type=kind, name=_finite(kind)) for kind in finite]
    used = [text for name, text in HELPERS.items() if name in steps.helpers]
    integer = any(isinstance(step, IntegerLayer) for step in program.steps)
    parts = [
        f"/* {title} */\n{_includes(prefix, steps)}",
        *([_SHIFT_CHECK] if integer else []),
        *([BLOCKS] if any(isinstance(step, FloatLayer) for step in program.steps) else []),
        *steps.constants,
        *checks,
        *used,
        *steps.functions,
        _evaluate(program, steps, memory, prefix),
        _act(prefix),
    ]
    return "\n".join(parts)


_SHIFT_CHECK = """\
/* Numbers are scaled by shifts that keep the sign: refuse to compile where they would not. */
typedef char shifts_keep_the_sign[((int32_t)-1 >> 1) == (int32_t)-1 ? 1 : -1];
"""


def _includes(prefix: str, steps: Steps) -> str:
    math = "#include <math.h>\n" if "on_grid" in steps.helpers else ""
    return f'#include "{prefix}.h"\n\n#include <float.h>\n{math}#include <stddef.h>\n'


def _finite(kind: str) -> str:
    return "all_finite" if kind == "float" else f"all_finite_{kind}"


def _evaluate(program: Program, steps: Steps, memory: Memory, prefix: str) -> str:
    macro = prefix.upper()
    check = [] if not program.obs.dtype.startswith("float") else [
        f"if (!{_finite(C_TYPES[program.obs.dtype])}(obs, {program.obs.size}u)) {{",
        f"    return {macro}_BAD_OBSERVATION;",
        "}",
    ]  # fmt: skip
    lines = [
        *(f"{C_TYPES[slot.dtype]} {slot.name}[{slot.size}];" for slot in memory.slots),
        "",
        *check,
        *steps.calls,
        f"return all_finite(head, {program.head.size}u) ? {macro}_OK : {macro}_OVERFLOW;",
    ]
    body = "".join(f"    {line}\n" if line else "\n" for line in lines)
    return f"""\
int {prefix}_evaluate(const {prefix}_obs_t obs[{macro}_OBS_SIZE], {prefix}_action_t action[{macro}_ACTION_SIZE],
                      float head[{macro}_HEAD_SIZE])
{{
{body}}}
"""


def _act(prefix: str) -> str:
    macro = prefix.upper()
    return f"""\
int {prefix}_act(const {prefix}_obs_t obs[{macro}_OBS_SIZE], {prefix}_action_t action[{macro}_ACTION_SIZE])
{{
    float head[{macro}_HEAD_SIZE];

    return {prefix}_evaluate(obs, action, head);
}}
"""
