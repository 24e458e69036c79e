import io
import shutil
import zipfile

import msgspec
import numpy as np
import onnx
import pytest

import bundles
from export.publish import npz_bytes
from paddleport import bundle as bundle_module
from paddleport.bundle import Bundle, locate, row_error, versions_in
from paddleport.errors import ArtifactError, UsageError
from paddleport.manifest import GOLDEN, MANIFEST, SCHEMA_VERSION, ActionTransform, TensorInfo
from paddleport.spaces import DictSpace, Discrete

_FILES = ("manifest.json", "policy.onnx", "policy.int8.onnx", "golden.npz", "README.md")


@pytest.fixture
def refused(snapshot):
    """Assert that a bundle is refused with a message that helps, and that nothing on disk is changed by it."""

    def check(path, match, replay=True):
        before = snapshot(path)
        with pytest.raises(ArtifactError, match=match) as raised:
            Bundle.open(path, replay=replay)
        assert raised.value.todo
        assert "\n" not in str(raised.value)
        assert str(path) in str(raised.value) or "ONNX Runtime" in str(raised.value)
        assert snapshot(path) == before

    return check


@pytest.fixture
def change_golden(bundle, put_file):
    """Record other golden vectors in the bundle; None takes one away."""

    def change(**changes):
        with np.load(bundle / GOLDEN) as arrays:
            vectors = {**arrays, **{name.replace("__", "."): array for name, array in changes.items()}}
        put_file(bundle, GOLDEN, npz_bytes({name: array for name, array in vectors.items() if array is not None}))

    return change


def test_a_whole_bundle_opens(bundle, snapshot):
    before = snapshot(bundle)
    opened = Bundle.open(bundle)
    assert opened.path == bundle
    assert (opened.manifest.name, opened.manifest.version) == ("cartpole", 1)
    assert set(opened.manifest.files) == set(_FILES) - {MANIFEST}
    assert opened.golden()["obs"].shape == (64, 4)
    assert snapshot(bundle) == before


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("where", [0.0, 0.3, 0.7, 1.0])
def test_a_flipped_byte_is_refused(bundle, refused, name, where):
    data = bytearray((bundle / name).read_bytes().rstrip() if name == MANIFEST else (bundle / name).read_bytes())
    data[round(where * (len(data) - 1))] ^= 1
    (bundle / name).write_bytes(data)
    refused(bundle, f"{name} (is damaged|was written by a newer)", replay=False)


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_file_is_refused(bundle, refused, name, share):
    data = (bundle / name).read_bytes()
    (bundle / name).write_bytes(data[: int(share * len(data))])
    refused(bundle, f"{name} is damaged", replay=False)


@pytest.mark.parametrize("name", _FILES)
def test_an_appended_byte_is_refused(bundle, refused, name):
    with (bundle / name).open("ab") as file:
        file.write(b"\0")
    refused(bundle, f"{name} is damaged", replay=False)


@pytest.mark.parametrize("name", _FILES)
def test_a_missing_file_is_refused(bundle, refused, name):
    (bundle / name).unlink()
    refused(bundle, "nothing there" if name != MANIFEST else "is no bundle: expected a folder with a manifest.json")


@pytest.mark.parametrize("name", _FILES)
def test_a_link_in_place_of_a_file_is_refused(bundle, refused, tmp_path, name):
    (bundle / name).rename(tmp_path / name)
    (bundle / name).symlink_to(tmp_path / name)
    refused(bundle, f"Cannot read .*{name}: expected a regular file, got a link")


@pytest.mark.parametrize("name", ["extra.onnx", ".hidden", "policy.onnx.bak"])
def test_a_file_that_is_not_listed_is_refused(bundle, refused, name):
    (bundle / name).write_bytes(b"")
    refused(bundle, f"holds files that its manifest does not list: expected .*policy.onnx.*, got {name} besides")


def test_a_folder_that_is_not_listed_is_refused(bundle, refused):
    (bundle / "more").mkdir()
    refused(bundle, "got more besides")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "sub/policy.onnx", "a\0b"])
def test_a_manifest_that_lists_a_file_outside_is_refused(bundle, refused, describe_anew, name):
    (bundle.parent / "secret").write_bytes((bundle / "README.md").read_bytes())
    manifest = Bundle.open(bundle, replay=False).manifest
    describe_anew(bundle, files={**manifest.files, name: manifest.files["README.md"]})
    refused(bundle, "lists a file outside itself: expected a plain name")


@pytest.mark.parametrize(
    "changes",
    [
        {"precisions": {}},
        {"inputs": ()},
        {"outputs": ()},
        {"outputs": (TensorInfo(name="q", dtype="int64", shape=()),)},
    ],
)
def test_a_manifest_without_a_policy_is_refused(bundle, refused, describe_anew, changes):
    describe_anew(bundle, **changes)
    refused(bundle, "describes no policy: expected at least one precision, one input and the output 'action'")


@pytest.mark.parametrize("dtype", ["O", "object", "str", "float32x", ""])
def test_a_tensor_of_no_known_type_is_refused(bundle, refused, describe_anew, dtype):
    describe_anew(bundle, inputs=(TensorInfo(name="obs", dtype=dtype, shape=(4,)),))
    refused(bundle, "describes a tensor of no known type")


@pytest.mark.parametrize(
    "name", ["", "../../x", "x\n$(shell touch owned)\n#", "x */ int evil = 1; /*", "-rf", "a b", "政策", "a" * 65]
)
def test_a_name_that_no_policy_can_have_is_refused(bundle, refused, describe_anew, name):
    """It goes into paths, URLs, and the Makefile and the C that `paddleport edge` writes."""
    describe_anew(bundle, name=name)
    refused(bundle, "has a name that no policy can have")


@pytest.mark.parametrize("version", [0, -1, 10**9, 2**62])
def test_a_version_that_none_can_have_is_refused(bundle, refused, describe_anew, version):
    describe_anew(bundle, version=version)
    refused(bundle, "has a version that none can have")


@pytest.mark.parametrize(
    "output",
    [
        TensorInfo(name="action", dtype="float32", shape=()),
        TensorInfo(name="action", dtype="int64", shape=(9,)),
        TensorInfo(name="logits", dtype="float32", shape=(3,)),
        TensorInfo(name="value", dtype="float64", shape=()),
        TensorInfo(name="secret", dtype="float32", shape=()),
    ],
)
def test_outputs_that_are_not_those_of_the_action_space_are_refused(bundle, refused, describe_anew, output):
    manifest = describe_anew(bundle)
    others = tuple(given for given in manifest.outputs if given.name != output.name)
    describe_anew(bundle, outputs=(*others, output))
    refused(bundle, "describes outputs that are not those of its action space")


def test_outputs_that_are_listed_twice_are_refused(bundle, refused, describe_anew):
    manifest = describe_anew(bundle)
    describe_anew(bundle, outputs=(*manifest.outputs, manifest.outputs[0]))
    refused(bundle, "each once")


@pytest.mark.parametrize("n", [1, 3, 10**18])
def test_an_action_space_that_the_outputs_do_not_fit_is_refused(bundle, refused, describe_anew, n):
    describe_anew(bundle, action_space=Discrete(n=n))
    refused(bundle, "describes outputs that are not those of its action space")


def test_an_action_space_of_parts_is_refused(bundle, refused, describe_anew):
    describe_anew(bundle, action_space=DictSpace(spaces={"obs": Discrete(n=2)}))
    refused(bundle, "has an action space that no policy has")


@pytest.mark.parametrize("kind", ["tanh", "affine", "clip", "threshold"])
def test_a_way_to_the_action_that_its_space_does_not_have_is_refused(bundle, refused, describe_anew, kind):
    describe_anew(bundle, action_transform=ActionTransform(kind=kind))
    refused(bundle, "leads to its actions in a way that its action space does not have")


@pytest.mark.parametrize("name", ["policy.int8.onnx", "golden.npz"])
def test_a_manifest_that_leaves_out_a_needed_file_is_refused(bundle, refused, describe_anew, name):
    manifest = Bundle.open(bundle, replay=False).manifest
    describe_anew(bundle, files={key: info for key, info in manifest.files.items() if key != name})
    (bundle / name).unlink()
    refused(bundle, f"does not list {name}")


def test_a_newer_schema_is_named(bundle, refused, describe_anew):
    describe_anew(bundle, schema_version=SCHEMA_VERSION + 1)
    refused(bundle, f"newer Paddleport: expected schema version {SCHEMA_VERSION} or older, got version 2. Upgrade")


def test_an_unknown_field_is_refused(bundle, refused):
    content = msgspec.json.decode((bundle / MANIFEST).read_bytes())
    (bundle / MANIFEST).write_bytes(msgspec.json.encode({**content, "more": 1}))
    refused(bundle, "is damaged")


def test_of_a_policy_the_newest_version_is_opened(bundle, describe_anew):
    policy = bundle.parent
    for version in (2, 10):
        shutil.copytree(bundle, policy / str(version))
        describe_anew(policy / str(version), version=version)
    for name in ("03", "0", "-4", "1.5", "v11", "latest", ".12.abcdef", "99999999999999999999", "٣"):
        (policy / name).mkdir()
    (policy / "12").write_text("a file")
    assert versions_in(policy) == [1, 2, 10]
    assert Bundle.open(policy).manifest.version == 10
    assert Bundle.open(policy / "2").manifest.version == 2


def test_a_damaged_newest_version_is_refused_not_passed_over(bundle, refused):
    shutil.copytree(bundle, bundle.parent / "2")
    (bundle.parent / "2" / "policy.onnx").write_bytes(b"")
    refused(bundle.parent, "2/policy.onnx is damaged")


@pytest.mark.parametrize(("name", "came"), [("missing", "no such folder"), ("", "an existing folder without either")])
def test_where_there_is_no_bundle_the_message_says_how_to_make_one(tmp_path, name, came):
    with pytest.raises(ArtifactError, match=rf"is no bundle: expected .*, got {came}\. Make one with: paddleport exp"):
        locate(tmp_path / name)


def test_a_precision_that_is_not_there_is_refused(tmp_path):
    opened = Bundle.open(bundles.publish_discrete(tmp_path, int8=False))
    with pytest.raises(UsageError, match=r"no int8 policy: expected one of float32, got int8\. Quantize the run"):
        opened.session("int8")


def test_a_session_runs_the_bytes_that_were_verified(bundle):
    opened = Bundle.open(bundle, replay=False)
    (bundle / "policy.onnx").write_bytes(b"swapped")
    (bundle / GOLDEN).write_bytes(b"swapped")
    bundle_module.replay_golden(opened, "float32", opened.session())


def test_a_listed_file_that_is_no_onnx_file_is_refused(bundle, refused, put_file):
    put_file(bundle, "policy.int8.onnx", b"no model")
    refused(bundle, "policy.int8.onnx is damaged: expected an ONNX file", replay=False)


def test_a_listed_file_that_keeps_weights_elsewhere_is_refused(bundle, refused, put_file):
    model = onnx.load(bundle / "policy.onnx")
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../weights.bin")
    put_file(bundle, "policy.onnx", model.SerializeToString())
    refused(bundle, "policy.onnx keeps weights in other files", replay=False)


@pytest.mark.parametrize("model", [b"", b"\x08\x08"])
def test_a_listed_file_that_is_no_model_is_refused(bundle, refused, put_file, model):
    put_file(bundle, "policy.int8.onnx", model)
    refused(bundle, "ONNX Runtime cannot load this policy")
    assert Bundle.open(bundle, replay=False).session("float32")


def test_a_model_with_another_signature_is_refused(bundle, refused, put_file, published_box):
    put_file(bundle, "policy.onnx", (published_box / "policy.onnx").read_bytes())
    refused(bundle, "ONNX Runtime cannot run this policy")


def test_a_model_that_computes_something_else_is_refused(bundle, refused, put_file, tmp_path):
    other = bundles.publish_discrete(tmp_path / "other", flip=True)
    put_file(bundle, "policy.int8.onnx", (other / "policy.int8.onnx").read_bytes())
    refused(bundle, "does not act as it was exported: its int8 'action' differs .* by another action")


@pytest.mark.parametrize("wrong", [1e-3, np.nan, np.inf])
def test_golden_vectors_that_the_policy_does_not_give_are_refused(bundle, refused, change_golden, wrong):
    logits = Bundle.open(bundle).golden()["float32.logits"].copy()
    logits[-1, 0] += wrong
    change_golden(float32__logits=logits)
    refused(bundle, r"its float32 'logits' differs from the golden vectors by .* where 1e-05 is allowed\. Export it")


def test_golden_vectors_within_the_tolerance_are_accepted(bundle, change_golden):
    logits = Bundle.open(bundle).golden()["float32.logits"] + np.float32(4e-6)
    change_golden(float32__logits=logits)
    assert Bundle.open(bundle)


def test_an_action_may_turn_only_where_the_choice_is_a_tie(bundle, refused, change_golden):
    golden = Bundle.open(bundle).golden()
    obs = golden["obs"].copy()
    obs[0] = 0
    results = Bundle.open(bundle).session().run({"obs": obs}, ["action", "logits", "value"])
    recorded = {f"float32__{name}": array for name, array in zip(("action", "logits", "value"), results, strict=True)}
    recorded |= {name.replace("float32", "int8"): array for name, array in recorded.items()}
    action = recorded["float32__action"].copy()
    action[0] = 1 - action[0]
    change_golden(obs=obs, **{**recorded, "float32__action": action})
    assert Bundle.open(bundle)
    action[1] = 1 - action[1]
    change_golden(obs=obs, **{**recorded, "float32__action": action})
    refused(bundle, "its float32 'action' differs from the golden vectors by another action")


def test_actions_without_logits_beside_them_are_compared_on_every_row(bundle, refused, change_golden, describe_anew):
    describe_anew(bundle, outputs=(TensorInfo(name="action", dtype="int64", shape=()),))
    nothing = {f"{precision}__{name}": None for precision in ("float32", "int8") for name in ("logits", "value")}
    change_golden(**nothing)
    assert Bundle.open(bundle)
    action = Bundle.open(bundle).golden()["float32.action"].copy()
    action[3] = 1 - action[3]
    change_golden(float32__action=action)
    refused(bundle, "its float32 'action' differs")


def test_another_shape_of_output_is_refused(bundle, refused, change_golden):
    change_golden(float32__logits=np.zeros((64, 3), np.float32))
    refused(bundle, r"its float32 'logits' differs from the golden vectors by shape \(64, 2\)")
    change_golden(float32__logits=np.zeros(64, np.float32))
    refused(bundle, r"its float32 'logits' differs from the golden vectors by shape \(64, 2\)")


def test_observations_that_the_graph_does_not_take_are_refused(bundle, refused, change_golden):
    change_golden(obs=np.zeros((64, 5), np.float32))
    refused(bundle, r"its float32 'obs' differs from the golden vectors by type float32 and shape \(64, 5\)")


def test_golden_vectors_that_are_incomplete_are_refused(bundle, refused, change_golden):
    golden = Bundle.open(bundle).golden()
    for changes in (
        {"obs": None},
        {"int8__logits": None},
        {"float32__value": np.zeros(63, np.float32)},
        {"float32__value": np.zeros((), np.float32)},
    ):
        change_golden(**changes)
        refused(bundle, "golden.npz is incomplete: expected as many rows, at least one, of obs, float32.action, ")
        change_golden(**{name.replace(".", "__"): array for name, array in golden.items()})


def test_golden_vectors_without_a_row_prove_nothing(bundle, refused, change_golden):
    golden = Bundle.open(bundle).golden()
    change_golden(**{name.replace(".", "__"): array[:0] for name, array in golden.items()})
    refused(bundle, "golden.npz is incomplete")


def _zip(entries, **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _npy(array, allow_pickle=False):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


class _Bomb:
    def __reduce__(self):
        return pytest.fail, ("the pickle ran",)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive",
        _npy(np.zeros(4)),
        _zip({"obs.npy": _npy(np.zeros(4))})[:-30],
        _zip({"obs.npy": b""}),
        _zip({"obs.npy": b"no array"}),
        _zip({"obs.npy": _npy(np.zeros((2, 4)))[:-8]}),
        _zip({"obs.npy": _npy(np.array([_Bomb()]), allow_pickle=True)}),
        _zip({"obs.npy": _npy(np.zeros((2, 4))).replace(b"(2, 4)", b"(2,9**99)"[:6])}),
        _zip({"obs.npy": _npy(np.zeros((10, 4))).replace(b"(10, 4), }         ", b"(10, 999999999999)}")}),
    ],
    ids=range(10),
)
def test_golden_vectors_that_are_no_arrays_are_refused(bundle, refused, put_file, data):
    put_file(bundle, GOLDEN, data)
    refused(bundle, "golden.npz is (damaged|incomplete)")


def test_golden_vectors_that_unpack_to_too_much_are_refused_unpacked(bundle, refused, put_file, monkeypatch):
    monkeypatch.setattr(bundle_module, "_GOLDEN_LIMIT", 100_000)
    put_file(bundle, GOLDEN, npz_bytes({"obs": np.zeros(100_000)}))
    refused(bundle, "golden.npz is damaged: got it unpacks to 800128 bytes, and 100000 is the most")


def test_a_file_over_the_limit_is_refused(bundle, refused, monkeypatch):
    monkeypatch.setattr(bundle_module, "_FILE_LIMIT", 10)
    refused(bundle, "is too large: expected at most 10 bytes")


@pytest.mark.parametrize(
    ("got", "expected", "error"),
    [
        ([[1.0, 2.0]], [[1.0, 2.0]], 0.0),
        ([[0.1]], [[0.2]], 0.1),
        ([[110.0]], [[100.0]], 0.1),
        ([[100.0, 1.0]], [[100.0, 2.0]], 0.01),
        ([[0.0], [3.0]], [[0.5], [2.0]], 0.5),
        ([1.0, 5.0], [1.0, 4.0], 0.25),
        ([[3]], [[1]], 2.0),
    ],
)
def test_the_error_of_a_row_is_relative_to_its_largest_magnitude(got, expected, error):
    assert row_error(np.array(got), np.array(expected)) == pytest.approx(error)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_never_within_a_tolerance(wrong):
    for got, expected in (([[wrong]], [[0.0]]), ([[0.0]], [[wrong]]), ([[wrong]], [[wrong]])):
        assert not row_error(np.array(got), np.array(expected)) <= 1e9
