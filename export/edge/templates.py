"""The text files that targets fill in."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources


def filled(name: str, words: Mapping[str, str], package: str = "export.edge") -> str:
    """A template from `files/` beside a package's modules, each of its `@WORDS@` replaced."""
    text = (resources.files(package) / "files" / name).read_text(encoding="utf-8")
    for word, stands_for in words.items():
        text = text.replace(word, stands_for)
    return text
