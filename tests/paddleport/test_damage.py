"""Two hundred damaged bundles: each is refused with a message, none ends the process, none is served.

They are opened in a child process, since what is looked for is a process that dies. Half of them were sealed again
after the damage, as somebody with bad intentions would: there only golden vectors and checks of content are left.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import bundles
from paddleport import sealed
from paddleport.files import sha256_bytes
from paddleport.manifest import MANIFEST

COUNT = 200
OPENER = """
import sys
from pathlib import Path
from paddleport import Bundle, PaddleportError
from serve.runtime.local import open_repository
from serve.settings import Settings
for folder in sorted(Path(sys.argv[1]).iterdir()):
    try:
        Bundle.open(folder / "1")
        print(folder.name, "OPENED", flush=True)
    except PaddleportError as error:
        print(folder.name, "refused", str(error).replace(chr(10), " "), flush=True)
repository, _ = open_repository(Settings(models=Path(sys.argv[1])))
print("served", *(policy.manifest.name for policy in repository.acting()))
"""


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def flip_bytes(folder: Path, rng: random.Random) -> None:
    path = rng.choice(files_of(folder))
    data = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data if data != path.read_bytes() else data[:-1])


def cut(folder: Path, rng: random.Random) -> None:
    path = rng.choice(files_of(folder))
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def grow(folder: Path, rng: random.Random) -> None:
    path = rng.choice(files_of(folder))
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randint(1, 5000)))


def swap(folder: Path, rng: random.Random) -> None:
    one, other = rng.sample(files_of(folder), 2)
    first, second = one.read_bytes(), other.read_bytes()
    if first == second:  # both precisions of the hand-made policy are one file
        return one.unlink()
    one.write_bytes(second)
    other.write_bytes(first)
    return None


def rename(folder: Path, rng: random.Random) -> None:
    path = rng.choice(files_of(folder))
    path.rename(folder / rng.choice(["a", "policy", path.name + "~", path.name.upper(), "ünïcode", " "]))


def link(folder: Path, rng: random.Random) -> None:
    path = rng.choice(files_of(folder))
    path.unlink()
    path.symlink_to(rng.choice(["/etc/passwd", "/dev/zero", "..", str(path), "nowhere"]))


def change_json(folder: Path, rng: random.Random) -> None:
    """One value of the manifest becomes another, anywhere, and the seal does not fit."""
    content = json.loads((folder / MANIFEST).read_text())
    _change_somewhere(content, rng)
    (folder / MANIFEST).write_text(json.dumps(content))


def _change_somewhere(content: object, rng: random.Random) -> None:
    while True:
        keys = list(content) if isinstance(content, dict) else range(len(content))
        key = rng.choice(keys)
        if isinstance(content[key], dict | list) and content[key] and rng.random() < 0.8:
            content = content[key]
            continue
        strange = [None, -1, 2**70, 1e308, "", "\0", [], {}, True, "../../x", [[[]]], 0.5]
        content[key] = rng.choice([value for value in strange if value != content[key]])
        return


def seal_again(folder: Path, change) -> None:
    """Apply a change to the manifest's content and give it a seal that fits."""
    content = json.loads((folder / MANIFEST).read_text())
    content.pop("digest")
    change(content)
    content["digest"] = sealed._digest(content)
    (folder / MANIFEST).write_text(json.dumps(content))


def sealed_contract(folder: Path, rng: random.Random) -> None:
    """A part of the contract that matters is another, under a seal that fits."""

    def change(content):
        rng.choice([
            lambda: content["inputs"][0].update(name="../obs"),
            lambda: content["inputs"][0].update(dtype=rng.choice(["object", "float128", "int8", ""])),
            lambda: content["outputs"][0].update(name=rng.choice(["none", "", "obs"])),
            lambda: content["precisions"]["float32"].update(file=rng.choice(["../x", "/etc/passwd", "none.onnx", ""])),
            lambda: content["precisions"]["float32"].update(file="README.md"),
            lambda: content.update(precisions={}, schema_version=rng.choice([0, 99, -1, "1"])),
            lambda: content["files"].update({rng.choice(["../up", "/a", "a/b"]): content["files"]["README.md"]}),
            lambda: content["files"]["policy.onnx"].update(size=rng.choice([-1, 0, 2**62])),
            lambda: content["files"].pop(rng.choice(sorted(content["files"]))),
            lambda: content["observation_space"].update(shape=rng.choice([[-1], [10**12], "4", [[4]]])),
            lambda: content["action_space"].update(type=rng.choice(["box", "unknown", 7])),
            lambda: content.update(strange=1),
        ])()  # fmt: skip

    seal_again(folder, change)


def sealed_graph(folder: Path, rng: random.Random) -> None:
    """A field of the ONNX file is another, listed and sealed as if it belonged there."""
    model = onnx.load(folder / "policy.onnx")
    graph, node = model.graph, rng.choice(model.graph.node)
    tensor = rng.choice([each for each in graph.initializer if each.dims])
    rng.choice([
        lambda: setattr(node, "op_type", rng.choice(["Loop", "NoSuchThing", "Softmax", ""])),
        lambda: node.input.__setitem__(0, "nowhere"),
        lambda: node.output.__setitem__(0, rng.choice(["", "obs", "elsewhere"])),
        lambda: tensor.dims.__setitem__(0, rng.choice([0, -1, 3, 2**40])),
        lambda: setattr(tensor, "data_type", rng.choice([0, 2, 11, 99])),
        lambda: setattr(tensor, "raw_data", tensor.raw_data[: len(tensor.raw_data) // 2]),
        lambda: setattr(tensor, "raw_data", b"\xff" * len(tensor.raw_data)),
        lambda: (setattr(tensor, "data_location", 1), tensor.external_data.add(key="location", value="/dev/zero")),
        lambda: setattr(model.opset_import[0], "version", rng.choice([0, 10_000, -5])),
        lambda: setattr(model, "ir_version", 10_000),
        lambda: graph.ClearField("node"),
        lambda: graph.ClearField("output"),
        lambda: setattr(graph.input[0], "name", "other"),
        lambda: graph.node.append(node),
    ])()  # fmt: skip
    _put(folder, "policy.onnx", model.SerializeToString())


def sealed_bytes(folder: Path, rng: random.Random) -> None:
    """Random bytes, or half a file, listed and sealed as if they belonged there."""
    name = rng.choice(["policy.onnx", "golden.npz"])
    data = (folder / name).read_bytes()
    half = data[: rng.randint(1, len(data) // 2)]
    _put(folder, name, rng.choice([half, rng.randbytes(len(data)), b"", half + rng.randbytes(len(half))]))


def _put(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    seal_again(folder, lambda content: content["files"][name].update(size=len(data), sha256=sha256_bytes(data)))


PLAIN = (flip_bytes, cut, grow, swap, rename, link, change_json)
SEALED = (sealed_contract, sealed_graph, sealed_graph, sealed_bytes)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory) -> Path:
    models = tmp_path_factory.mktemp("damaged")
    bundles.publish_discrete(models, "whole")
    for number in range(COUNT):
        kinds = SEALED if number % 2 else PLAIN
        kind = kinds[number // 2 % len(kinds)]
        folder = bundles.publish_discrete(models, f"{number:03}-{kind.__name__}")
        kind(folder, random.Random(number))
    return models


def test_every_damaged_bundle_is_refused_and_none_is_served(damaged):
    opened = subprocess.run([sys.executable, "-c", OPENER, damaged], capture_output=True, text=True, timeout=300)
    assert opened.returncode == 0, opened.stderr[-2000:]
    *lines, served = opened.stdout.splitlines()
    assert len(lines) == COUNT + 1
    assert [line for line in lines if " refused " not in line] == ["whole OPENED"]
    assert served == "served whole"
    assert "Traceback" not in opened.stderr
