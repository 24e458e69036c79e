import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleport import sealed
from paddleport.errors import ArtifactError
from paddleport.files import sha256_bytes
from paddleport.manifest import FileInfo
from paddleport.spaces import Box, Space


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    schema_version: int = 1
    text: str = "a é"
    number: float = 0.1
    large: int = 2**127 + 1
    nested: dict[str, object] = msgspec.field(default_factory=lambda: {"b": [1, 2.5e-7, None], "a": True})


class Described(msgspec.Struct):
    space: Space
    schema_version: int = 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _refuse(path, match, kind=Note, newest=1):
    with pytest.raises(ArtifactError, match=match) as raised:
        sealed.unseal(path, kind, newest)
    assert "\n" not in str(raised.value)
    assert raised.value.todo


@pytest.fixture
def path(tmp_path):
    return tmp_path / "note.json"


def test_the_document_is_json_that_a_person_can_read(path):
    path.write_bytes(sealed.seal(Note()))
    assert msgspec.json.decode(path.read_bytes())["text"] == "a é"
    assert len(path.read_text().splitlines()) > 5


@settings(deadline=None, max_examples=50)
@given(
    text=st.text(),
    number=st.floats(allow_nan=False, allow_infinity=False),
    large=st.integers(-(2**128), 2**128),
    nested=st.dictionaries(st.text(), _JSON, max_size=4),
)
def test_what_was_sealed_comes_back(tmp_path_factory, text, number, large, nested):
    path = tmp_path_factory.getbasetemp() / "note.json"
    note = Note(text=text, number=number, large=large, nested=nested)
    path.write_bytes(sealed.seal(note))
    assert sealed.unseal(path, Note, 1) == note


def test_every_flipped_bit_is_refused_or_harmless(path):
    whole = sealed.seal(Note())
    opened = []
    for position in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                assert sealed.unseal(path, Note, 1) == Note()
            except ArtifactError:
                continue
            opened.append((chr(whole[position]), chr(damaged[position])))
    assert set(opened) <= {("e", "E"), ("\n", "\r"), ("\n", "\t"), (" ", "\t")}


def test_every_changed_digit_or_letter_is_refused_or_harmless(path):
    whole = sealed.seal(Note())
    for position in range(len(whole)):
        for other in b"09a ":
            damaged = whole[:position] + bytes([other]) + whole[position + 1 :]
            path.write_bytes(damaged)
            try:
                assert sealed.unseal(path, Note, 1) == Note()
            except ArtifactError:
                continue


def test_a_document_cut_anywhere_is_refused(path):
    whole = sealed.seal(Note())
    for length in range(len(whole.rstrip())):
        path.write_bytes(whole[:length])
        _refuse(path, "is damaged")


def test_a_field_added_renamed_or_removed_is_refused(path):
    content = msgspec.json.decode(sealed.seal(Note()))
    without = {key: value for key, value in content.items() if key != "text"}
    for changed in ({**content, "more": 1}, without, {**without, "Text": content["text"]}):
        path.write_bytes(msgspec.json.encode(changed))
        _refuse(path, "digest does not match")


def test_a_rightly_sealed_document_of_another_kind_is_refused(path):
    path.write_bytes(sealed.seal(Described(Box((2,), "float32", None, None))))
    _refuse(path, "is damaged")


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "object"},
        {"dtype": "float32; import os"},
        {"shape": [-4]},
        {"low": [0.0, 1.0, 2.0]},
        {"names": ["only one"]},
        {"type": "dict"},
    ],
)
def test_a_space_that_cannot_be_is_refused(path, change):
    space = {**msgspec.to_builtins(Box((2,), "float32", None, None)), **change}
    content = msgspec.defstruct("Forged", [("space", dict), ("schema_version", int, 1)])(space)
    path.write_bytes(sealed.seal(content))
    _refuse(path, "is damaged", Described)


@pytest.mark.parametrize("digest", [None, 1, "", "0" * 64, {}])
def test_a_wrong_digest_is_refused(path, digest):
    content = {**msgspec.to_builtins(Note()), "digest": digest}
    path.write_bytes(msgspec.json.encode(content))
    _refuse(path, "digest does not match")


def test_a_newer_schema_is_named_before_anything_else_is_said(path):
    path.write_bytes(b'{"schema_version": 7, "unknown": {"shape": 1}}')
    _refuse(path, r"newer Paddleport: expected schema version 2 or older, got version 7\. Upgrade", newest=2)


def test_a_newer_reader_accepts_an_older_schema(path):
    path.write_bytes(sealed.seal(Note(schema_version=1)))
    assert sealed.unseal(path, Note, 3).schema_version == 1


@pytest.mark.parametrize("version", ["null", "0", "-1", '"1"', "1.5", "[]"])
def test_a_document_without_a_schema_version_is_refused(path, version):
    path.write_text(f'{{"schema_version": {version}}}')
    _refuse(path, "names no schema_version")


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"\x00",
            b"{",
            b"[]",
            b"null",
            b"1",
            b'"text"',
            b"\xef\xbb\xbf{}",
            b'{"a": "\xff"}',
            b'{"a": "\\ud800"}',
        ),
        *(b'{"a": NaN}', b'{"a": 1e999}', b"[" * 100_000, b'{"a":' * 100_000, b'{"a":' + b"9" * 10_000 + b"}"),
    ],
    ids=range(15),
)
def test_what_is_no_json_object_is_refused(path, data):
    path.write_bytes(data)
    _refuse(path, "is damaged: ")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_refused_where_it_is_written(number):
    for note, where in ((Note(number=number), "Note.number"), (Note(nested={"a": [1, number]}), "Note.nested.a.1")):
        with pytest.raises(ArtifactError, match=rf"{where} = .* cannot be written"):
            sealed.seal(note)


def test_a_missing_document_and_a_link_to_one_are_refused(path, tmp_path):
    _refuse(path, "nothing there")
    (tmp_path / "elsewhere.json").write_bytes(sealed.seal(Note()))
    path.symlink_to("elsewhere.json")
    _refuse(path, "a link")


def test_a_huge_document_is_refused_unread(path):
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ArtifactError, match="too large"):
        sealed.unseal(path, Note, 1)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", ".", "", ".hidden", "a/b", "a\\b", "a\0b", "a\n"])
def test_a_listed_file_outside_the_folder_is_refused(tmp_path, name):
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    listed = FileInfo(sha256=sha256_bytes(b"secret"), size=6)
    with pytest.raises(ArtifactError, match="outside"):
        sealed.read_listed(folder, name, listed, 100, "Make it again")


def test_a_listed_file_is_read_when_it_is_the_one_that_was_listed(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert sealed.read_listed(tmp_path, "a", FileInfo(sha256=sha256_bytes(b"12345"), size=5), 100, "") == b"12345"
    for other in (b"12346", b"1234", b"123456", b""):
        listed = FileInfo(sha256=sha256_bytes(other), size=len(other))
        with pytest.raises(ArtifactError, match=rf"a is damaged: expected {len(other)} bytes .* got 5 bytes .*Make it"):
            sealed.read_listed(tmp_path, "a", listed, 100, "Make it again")
