"""The folder that the target `c` writes: sources, self-test, build files, and a README with their measures."""

from __future__ import annotations

from importlib import resources

from export.edge.c.selftest import write_golden
from export.edge.c.source import Source
from export.edge.program import Program
from paddleport.bundle import Bundle

_RENAMED = {"selftest.c": "{prefix}_selftest.c"}
_FILES = (
    "selftest.c",
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
        f"{prefix}.h": source.header,
        f"{prefix}.c": source.code,
        f"{prefix}_golden.h": write_golden(bundle, precision, program, source),
    }
    templates = resources.files("export.edge.c") / "files"
    for name in _FILES:
        text = (templates / name).read_text(encoding="utf-8")
        for word, stands_for in words.items():
            text = text.replace(word, stands_for)
        files[_RENAMED.get(name, name).format(prefix=prefix)] = text
    return files
