"""Paddle's private API is used in one module alone, behind a public fallback (tests/train/test_engines.py)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THE_ONE = ROOT / "train/engines/direct.py"
MODULES = [path for stage in ("train", "quantize", "export") for path in sorted((ROOT / stage).rglob("*.py"))]
INTERNAL = {"base", "core", "framework", "fluid"}
"""Parts of `paddle` that it says are not for its users."""
KNOWN = {
    "quantize/layers.py": ["layer._padding_mode", "layer._data_format"],
    "quantize/ptq.py": ["inner._instance"],
    "quantize/student.py": ["quanter._scale", "quanter._accum", "quanter._state"],
    "train/environments/watchdog.py": ["os._exit"],
}
"""Paddle's quantizer makes an observer by this method alone, and so does an observer that wraps another one; a
convolution tells its padding and a quanter its moving scale in no other way; `os._exit` is Python's own."""


def private_uses(source):
    """What of Paddle's internals a module touches: imports, `paddle.base…`, and `_attributes` of others than self."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_internal(alias.name.split(".")))
        elif isinstance(node, ast.ImportFrom):
            names = [[*(node.module or "").split("."), alias.name] for alias in node.names]
            yield from (".".join(name) for name in names if is_internal(name))
        elif isinstance(node, ast.Attribute):
            chain = ast.unparse(node).split(".")
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if is_internal(chain) or (is_private(node.attr) and not own):
                yield ast.unparse(node)


def is_internal(names):
    return names[0] == "paddle" and any(name in INTERNAL or is_private(name) for name in names[1:])


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path != THE_ONE], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_module_uses_paddle_by_its_public_api(path):
    assert list(private_uses(path.read_text())) == KNOWN.get(str(path.relative_to(ROOT)), [])


def test_the_one_module_that_may_is_seen_to_use_it():
    found = set(private_uses(THE_ONE.read_text()))
    assert {
        "paddle.base.core",
        "optimizer._global_learning_rate",
        "executor._executor_cache",
        "entry._new_exe",
    } <= found


@pytest.mark.parametrize(
    "source",
    [
        *(
            "import paddle.base",
            "from paddle.base import core",
            "from paddle import framework",
            "from paddle import _C_ops",
        ),
        *("paddle.base.core.x()", "paddle._C_ops.adam_", "self._scaler._found_inf", "parameter._grad_ivar()"),
    ],
)
def test_a_private_use_would_be_found(source):
    assert list(private_uses(source))
