"""`policy_golden.h`: the bundle's golden vectors of one precision, as far as they fit a device."""

from __future__ import annotations

import numpy as np

from export.edge.c.source import Source
from export.edge.c.text import literals
from export.edge.program import C_TYPES, Program
from paddleport.bundle import Bundle, decided
from paddleport.spaces import OBSERVATION, Array, Discrete

_LARGEST = 128 * 1024


def write_golden(bundle: Bundle, precision: str, program: Program, source: Source) -> str:
    """The header with golden vectors: all of them, or as many, spread over them, as 128 KiB hold."""
    golden, macro, prefix = bundle.golden(), source.macro, source.prefix
    obs = golden[OBSERVATION]
    kept = max(1, min(len(obs), _LARGEST // program.obs.nbytes))
    rows = np.linspace(0, len(obs) - 1, kept).round().astype(np.intp)
    tolerance = bundle.precision(precision).tolerance
    head = golden[f"{precision}.{program.head_name}"]
    chooses = isinstance(bundle.manifest.action_space, Discrete)
    clear = decided(bundle.manifest.action_space, head if chooses else None, tolerance, len(obs))
    action = golden[f"{precision}.action"].astype(program.action.dtype)
    tables = [
        _table(f"{prefix}_obs_t", "golden_obs", f"{macro}_OBS_SIZE", obs[rows]),
        _table(f"{prefix}_action_t", "golden_action", f"{macro}_ACTION_SIZE", action[rows]),
        _table("float", "golden_head", f"{macro}_HEAD_SIZE", head[rows]),
    ]
    if chooses:
        flags = ", ".join(f"{int(flag)}u" for flag in clear[rows])
        tables.append(
            f"/* Whether one choice leads clearly. */\nstatic const uint8_t golden_decided[] = {{{flags}}};\n"
        )
    real = C_TYPES[program.obs.dtype] in ("float", "double")
    return f"""\
/* What the policy answered when it was exported: {len(rows)} of {len(obs)} golden vectors. */
#ifndef {macro}_GOLDEN_H
#define {macro}_GOLDEN_H

#include "{prefix}.h"

#define {macro}_GOLDEN_ROWS {len(rows)}u
#define {macro}_GOLDEN_TOLERANCE {tolerance!r}
#define {macro}_CHOOSES {int(chooses)}
#define {macro}_OBS_IS_REAL {int(real)}

{"".join(tables)}
#endif
"""


def _table(kind: str, name: str, width: str, rows: Array) -> str:
    flat = rows.reshape(len(rows), -1)
    lines = "".join(f"    {{{', '.join(literals(row))}}},\n" for row in flat)
    return f"static const {kind} {name}[][{width}] = {{\n{lines}}};\n"
