"""Numbers and names as C writes them."""

from __future__ import annotations

import re
import textwrap

import numpy as np

from export.edge.program import C_TYPES
from paddleport.spaces import Array

_WIDTH = 112


def real(value: float) -> str:
    """A float32 literal that reads back as the same number."""
    text = f"{np.float32(value):.9g}"
    return f"{text if set(text) & set('.e') else text + '.0'}f"


def whole(value: int) -> str:
    """An integer literal; the lowest int32 has none of its own in C."""
    return "(-2147483647 - 1)" if value == -(2**31) else str(value)


def literals(array: Array) -> list[str]:
    """The elements of a vector as C takes them: float32, float64 or integers."""
    if array.dtype == np.float64:
        return [repr(float(value)) for value in array]
    return [real(value) for value in array] if array.dtype.kind == "f" else [whole(int(value)) for value in array]


def constant(name: str, array: Array) -> str:
    """The definition of a constant array, in reading order."""
    flat = array.reshape(-1)
    lines = textwrap.wrap(", ".join(literals(flat)), _WIDTH, break_long_words=False, break_on_hyphens=False)
    body = "".join(f"    {line}\n" for line in lines)
    return f"static const {C_TYPES[str(array.dtype)]} {name}[{flat.size}] = {{\n{body}}};\n"


def identifier(name: str) -> str:
    """A name as C takes it; one with an underscore inside is no keyword."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name.rpartition(" ")[2]).strip("_").lower()
    return text if re.match(r"[a-z].*_", text) else f"step_{text}"


def comment(text: str) -> str:
    """Text that cannot end the comment it stands in, on one line, in ASCII."""
    plain = " ".join(text.replace("*/", "* /").replace("/*", "/ *").split())
    return plain.encode("ascii", "replace").decode()
