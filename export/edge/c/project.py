"""The folder that the target `c` writes: sources, self-test, build files, and a README with their measures."""

from __future__ import annotations

from export.edge.c.selftest import write_golden
from export.edge.c.source import Source
from export.edge.program import Program
from export.edge.target import Figures, Request
from export.edge.templates import filled
from paddleport.bundle import Bundle

_RENAMED = {"selftest.c": "{prefix}_selftest.c", "time.c": "{prefix}_time.c"}
_FILES = (
    "selftest.c",
    "time.c",
    "Makefile",
    "CMakeLists.txt",
    "library.properties",
    "emulated/measure.h",
    "emulated/measure.c",
    "emulated/arm.c",
    "emulated/arm.ld",
    "emulated/riscv.c",
)


def project_files(bundle: Bundle, precision: str, program: Program, source: Source) -> dict[str, str]:
    """Every file but the README, by its path in the folder."""
    manifest, prefix = bundle.manifest, source.prefix
    words = {
        "@PREFIX@": prefix,
        "@MACRO@": source.macro,
        "@VERSION@": str(manifest.version),
        "@TITLE@": f"{manifest.name} version {manifest.version}, {precision}",
    }
    files = {
        f"src/{prefix}.h": source.header,
        f"src/{prefix}.c": source.code,
        f"{prefix}_golden.h": write_golden(bundle, precision, program, source),
    }
    for name in _FILES:
        files[_RENAMED.get(name, name).format(prefix=prefix)] = filled(name, words, "export.edge.c")
    return files


def readme(request: Request, program: Program, source: Source, figures: Figures) -> str:
    """The folder's README: what it is, how to build it, what it costs."""
    manifest, prefix, macro = request.bundle.manifest, source.prefix, source.macro
    returned = manifest.precisions[request.precision].measured_return
    score = (
        f"\n\nIt returned {returned.mean:.1f} ± {returned.std:.1f} over {returned.episodes} episodes."
        if returned
        else ""
    )
    needs = "a C99 compiler" + (" and `rintf` of the maths library" if "rintf" in source.code else "")
    before = "".join(
        f"\n- before the policy sees an observation: {each}" for each in manifest.environment.preprocessing
    )
    return f"""\
# {manifest.name}, version {manifest.version}, {request.precision}, in C99

A policy for `{manifest.environment.id}`, from raw observation to action: the normaliser and the action's bounds are in
it. It needs {needs}, nothing else; it allocates nothing, writes no globals, may run
in several threads at once, and gives the same answer every time.{score}

```c
#include "{prefix}.h"

{prefix}_obs_t obs[{macro}_OBS_SIZE];          /* {program.obs.size}; src/{prefix}.h says what each element is */
{prefix}_action_t action[{macro}_ACTION_SIZE];
if ({prefix}_act(obs, action) == {macro}_OK) {{ /* … */ }}
```

```bash
make selftest        # replays the bundle's golden vectors; prints PASS
make time            # processor time of one action here
make cortex-m4f      # the self-test in an emulated microcontroller; also cortex-m0plus, riscv32, aarch64
cmake -B build/cmake && cmake --build build/cmake && ctest --test-dir build/cmake
```

Copy `src/{prefix}.c` and `src/{prefix}.h` into a project of your own, or this whole folder into Arduino's `libraries`,
which takes `src/` alone.{before}

| what | how much | how it is known |
|---|---|---|
{_cost_rows(program, source, figures)}
"""


def _cost_rows(program: Program, source: Source, figures: Figures) -> str:
    absent = "not measured here"
    rows = [
        ("multiply-adds per action", f"{figures.multiply_adds:,}", "the layers' sizes"),
        ("weights and biases", f"{figures.weight_bytes:,} bytes", "the layers' sizes"),
        ("constants, all of them in flash", f"{source.constant_bytes:,} bytes", "the arrays in the source"),
        ("arrays on the stack", f"{source.memory.nbytes:,} bytes", "the arrays in the source"),
        ("flash on a Cortex-M4F", _measure(figures.cortex_m4f_flash, "bytes", absent), "arm-none-eabi-gcc -O3, size"),
        ("RAM besides the stack", "0 bytes", "no globals"),
        ("stack of one action, Cortex-M4F", _measure(figures.cortex_m4f_stack, "bytes", absent), "make cortex-m4f"),
        (
            "instructions of one action, Cortex-M4F",
            _measure(figures.cortex_m4f_instructions, "", absent),
            "make cortex-m4f",
        ),
        ("time of one action, the machine that wrote this", _measure(figures.host_us, "µs", absent), "make time"),
    ]
    return "\n".join(f"| {what} | {much} | {how} |" for what, much, how in rows)


def _measure(value: float | None, unit: str, absent: str) -> str:
    return absent if value is None else f"{value:,} {unit}".strip()
