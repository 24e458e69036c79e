"""The self-test on emulated processors, and what one action costs there."""

import re

import pytest

from c_policies import make, need, publish_example, want, write
from export.edge import command
from paddleport import Bundle

M4F = ("arm-none-eabi-gcc", "qemu-system-arm")
MAKERS = {
    "cortex-m4f": lambda: need(*M4F),
    "cortex-m0plus": lambda: need(*M4F),
    "riscv32": lambda: want("riscv64-unknown-elf-gcc", "qemu-system-riscv32"),
    "aarch64": lambda: want("aarch64-linux-gnu-gcc", "qemu-aarch64", "/usr/aarch64-linux-gnu/include/stdint.h"),
}


@pytest.fixture(scope="module")
def wide(examples, tmp_path_factory) -> Bundle:
    """17 → 256 → 256 → 6."""
    return publish_example(tmp_path_factory.mktemp("models"), "wide", examples["discrete-from-5"])


@pytest.fixture(scope="module")
def narrow(examples, tmp_path_factory) -> Bundle:
    """4 → 64 → 64 → 2, with tanh."""
    return publish_example(tmp_path_factory.mktemp("models"), "narrow", examples["discrete"])


def cost(said: str, what: str) -> int:
    return int(re.search(rf"{what}: ([0-9]+)", said)[1])


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("processor", sorted(MAKERS))
def test_the_self_test_passes_on(narrow, tmp_path, processor, precision):
    MAKERS[processor]()
    said = make(write(narrow, precision, tmp_path / "edge"), processor)
    assert "PASS: 64 golden vectors" in said


def test_int8_on_a_cortex_m4_keeps_to_its_budget(wide, tmp_path):
    need(*M4F)
    arguments = [str(wide.path), "--precision", "int8", "--out", str(tmp_path / "edge")]
    figures = command.run(command.parse(arguments)).figures
    assert figures.cortex_m4f_flash <= 85 * 1024
    assert figures.cortex_m4f_stack <= 4 * 1024
    assert figures.cortex_m4f_instructions <= 4 * figures.multiply_adds
    # What a limit is checked against is no less than what is needed.
    assert figures.cortex_m4f_flash <= figures.flash
    assert figures.cortex_m4f_stack <= figures.ram


def test_int8_on_a_cortex_m0_is_far_below_its_float32(narrow, tmp_path):
    need(*M4F)
    said = {name: make(write(narrow, name, tmp_path / name), "cortex-m0plus") for name in ("float32", "int8")}
    assert cost(said["int8"], "instructions per action") * 5 < cost(said["float32"], "instructions per action")
    assert cost(said["int8"], "stack of one action") < 512
