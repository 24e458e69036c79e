"""The generated folder: what a linker sees, two policies in one program, limits, replacing, build files."""

import json
import subprocess

import pytest

import bundles
from c_policies import STRICT, make, need, publish_example, run_make, write
from export.edge import command
from paddleport import Bundle
from paddleport.errors import GateError, UsageError


@pytest.fixture(scope="module")
def bundle(examples, tmp_path_factory):
    return publish_example(tmp_path_factory.mktemp("models"), "cart", examples["discrete"])


@pytest.fixture(scope="module", params=["float32", "int8"])
def folder(request, bundle, tmp_path_factory):
    return write(bundle, request.param, tmp_path_factory.mktemp("edge") / request.param)


def run(bundle, out, *options):
    return command.run(command.parse([str(bundle.path), "--out", str(out), "--no-measure", *options]))


def test_a_policy_has_no_heap_no_globals_and_two_functions(folder):
    need("gcc", "nm")
    make(folder, "all")
    symbols = subprocess.run(["nm", folder / "build" / "policy.o"], capture_output=True, text=True, check=True).stdout
    kinds = [line.split()[-2:] for line in symbols.splitlines()]
    assert sorted(name for kind, name in kinds if kind == "T") == ["policy_act", "policy_evaluate"]
    assert not [name for kind, name in kinds if kind in "BbDdCGgSs"]  # what is written is on the stack
    assert {name for kind, name in kinds if kind == "U"} <= {"rintf", "memcpy", "memset", "__stack_chk_fail"}


def test_two_policies_link_into_one_program(bundle, tmp_path):
    need("gcc")
    sources = []
    for prefix, precision in (("left", "float32"), ("right", "int8")):
        out = write(bundle, precision, tmp_path / prefix, "--prefix", prefix)
        assert "PASS" in make(out, "selftest")
        sources += [f"-I{out}", f"-I{out / 'src'}", f"-D{prefix.upper()}_NO_MAIN"]
        sources += [str(out / "src" / f"{prefix}.c"), str(out / f"{prefix}_selftest.c")]
    main = tmp_path / "main.c"
    main.write_text(
        "int left_selftest(void);\nint right_selftest(void);\n"
        "int main(void)\n{\n    return left_selftest() + right_selftest();\n}\n"
    )
    program = str(tmp_path / "both")
    subprocess.run(["gcc", "-std=c99", *STRICT, "-o", program, str(main), *sources, "-lm"], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert said.count("PASS") == 2


def test_the_header_is_for_cplusplus_too_and_a_comment_cannot_be_ended(folder, tmp_path):
    need("g++")
    program = tmp_path / "main.cpp"
    program.write_text('#include "policy.h"\nint main() { return POLICY_OBS_SIZE - 4; }\n')
    command_line = ["g++", *STRICT, f"-I{folder / 'src'}", "-o", str(tmp_path / "main"), str(program)]
    subprocess.run(command_line, check=True)
    subprocess.run([tmp_path / "main"], check=True)
    assert "frames * / are stacked" in (folder / "src" / "policy.h").read_text()


def test_cmake_builds_it_and_runs_the_golden_vectors(folder, tmp_path):
    need("cmake")
    subprocess.run(["cmake", "-S", folder, "-B", tmp_path], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path], check=True, capture_output=True)
    said = subprocess.run(["ctest", "--test-dir", tmp_path], check=True, capture_output=True, text=True).stdout
    assert "100% tests passed" in said


def test_the_same_bundle_gives_the_same_files(bundle, folder, tmp_path):
    precision = json.loads((folder / "edge.json").read_text())["precision"]
    again = write(bundle, precision, tmp_path / "again")
    for path in sorted(again.rglob("*")):
        if path.is_file() and path.name != "edge.json":
            assert path.read_bytes() == (folder / path.relative_to(again)).read_bytes(), path.name


def test_what_is_too_large_for_the_device_is_refused_with_the_figures(bundle, tmp_path):
    figures = run(bundle, tmp_path / "edge").figures
    assert run(bundle, tmp_path / "edge", "--flash-limit", str(figures.flash), "--ram-limit", "4K").figures == figures
    with pytest.raises(GateError, match=r"too large for --flash-limit: expected at most 16,384 .* got 24,616"):
        run(bundle, tmp_path / "other", "--flash-limit", "16K")
    with pytest.raises(GateError, match="too large for --ram-limit: expected at most 700 bytes of ram, got"):
        run(bundle, tmp_path / "other", "--ram-limit", "700")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--flash-limit", "much"], "--flash-limit is no size"),
        (["--prefix", "Policy-1"], "--prefix is no name for C"),
        (["--prefix", "float"], "the name of a C header"),
        (["--prefix", "stdint"], "the name of a C header"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(bundle, tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        run(bundle, tmp_path / "edge", *options)


def test_a_folder_of_somebody_elses_is_left_alone(bundle, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds files that paddleport edge did not write"):
        run(bundle, tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"
    run(bundle, tmp_path / "mine" / "edge", "--precision", "int8")
    run(bundle, tmp_path / "mine" / "edge")
    assert json.loads((tmp_path / "mine" / "edge" / "edge.json").read_text())["precision"] == "float32"


def test_a_precision_that_the_bundle_lacks_is_refused(tmp_path):
    bundle = Bundle.open(bundles.publish_discrete(tmp_path / "models", int8=False))
    with pytest.raises(UsageError, match="has no int8 policy"):
        run(bundle, tmp_path / "edge", "--precision", "int8")


def test_measures_stand_in_the_readme(bundle, tmp_path):
    need("gcc")
    arguments = [str(bundle.path), "--precision", "int8", "--out", str(tmp_path / "edge")]
    figures = command.run(command.parse(arguments)).figures
    assert 0 < figures.host_us < 1000
    assert f"| {figures.host_us:,} µs |" in (tmp_path / "edge" / "README.md").read_text()


def test_a_compiler_that_shifts_otherwise_does_not_compile_it(folder):
    text = (folder / "src" / "policy.c").read_text()
    if "scaled(" not in text:
        return
    assert "shifts_keep_the_sign" in text
    assert run_make(folder, "selftest", CFLAGS="-Dint32_t=uint32_t").returncode != 0
