"""Opening a bundle: nothing of it is trusted before its hashes and its golden vectors hold."""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paddleport import sealed
from paddleport.errors import ArtifactError, UsageError
from paddleport.manifest import GOLDEN, MANIFEST, SCHEMA_VERSION, Manifest, PrecisionInfo, check_name
from paddleport.onnx_file import keeps_data_elsewhere
from paddleport.session import DEFAULT_PROVIDERS, Session
from paddleport.spaces import OBSERVATION, Array, Box, Discrete, MultiBinary, MultiDiscrete, Space, leaf_spaces

_TENSOR_TYPES = {
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64"),
}
_TRANSFORMS: dict[type, tuple[str, ...]] = {
    Discrete: ("argmax",),
    MultiDiscrete: ("argmax",),
    MultiBinary: ("threshold",),
    Box: ("affine", "tanh", "clip"),
}
_FILE_LIMIT = 2**30
_GOLDEN_LIMIT = 256 * 2**20
_RESTORE = "Export it again, or restore it from a copy"
_QUANTIZE = "Quantize the run and export it again"
_MISSING = {"int8": _QUANTIZE, "int8-trt": _QUANTIZE, "fp16": "Export the run again with --fp16"}


class Bundle:
    """An opened bundle, its files checked against the manifest.

    Attributes:
        path: the bundle's folder.
        manifest: what it says of itself.
    """

    def __init__(self, path: Path, manifest: Manifest, contents: dict[str, bytes]) -> None:
        self.path = path
        self.manifest = manifest
        self._contents = contents

    @classmethod
    def open(cls, path: str | Path, *, replay: bool = True) -> Bundle:
        """Open and verify a bundle.

        Args:
            path: a bundle's folder, or a policy's folder (the newest version in it is taken).
            replay: whether to run every precision on the golden observations as well.

        Raises:
            ArtifactError: anything in it is missing, damaged, unlisted or does not give the golden outputs.
        """
        folder = locate(path)
        manifest = sealed.unseal(folder / MANIFEST, Manifest, SCHEMA_VERSION)
        bundle = cls(folder, manifest, _verified_contents(folder, manifest))
        for info in manifest.precisions.values():
            _check_whole(folder / info.file, bundle.contents(info.file))
        if replay:
            for precision in manifest.precisions:
                replay_golden(bundle, precision, bundle.session(precision))
        return bundle

    def precision(self, name: str) -> PrecisionInfo:
        """The description of one precision; UsageError where the bundle has no such file."""
        if name not in self.manifest.precisions:
            raise UsageError(
                f"{self.path} has no {name} policy",
                expected=f"one of {', '.join(self.manifest.precisions)}",
                got=name,
                todo=_MISSING.get(name),
            )
        return self.manifest.precisions[name]

    def session(
        self, precision: str = "float32", providers: Sequence[str] = DEFAULT_PROVIDERS, threads: int = 1
    ) -> Session:
        """A session on the bytes that were verified (never on what the file may hold by now)."""
        return Session(self.onnx(precision), providers, threads)

    def onnx(self, precision: str = "float32") -> bytes:
        """The verified bytes of a precision's ONNX file."""
        return self._contents[self.precision(precision).file]

    def contents(self, file: str) -> bytes:
        """The bytes of a listed file, as they were verified."""
        return self._contents[file]

    def golden(self) -> dict[str, Array]:
        """The golden vectors: the graph's inputs, and `<precision>.<output>` for each precision and output.

        Raises:
            ArtifactError: one of them is missing, or they are not equally many, at least one.
        """
        vectors = _load_npz(self.path / GOLDEN, self._contents[GOLDEN])
        manifest = self.manifest
        recorded = [f"{precision}.{output.name}" for precision in manifest.precisions for output in manifest.outputs]
        names = [*(given.name for given in manifest.inputs), *recorded]
        rows = {name: len(vectors[name]) if name in vectors and vectors[name].ndim else 0 for name in names}
        if min(rows.values()) != max(rows.values()) or not all(rows.values()):
            expected = f"as many rows, at least one, of {', '.join(names)}"
            raise ArtifactError(f"{self.path / GOLDEN} is incomplete", expected=expected, got=rows, todo=_RESTORE)
        return vectors


def locate(path: str | Path) -> Path:
    """The bundle's folder that `path` means.

    Raises:
        ArtifactError: there is none.
    """
    folder = Path(path)
    if (folder / MANIFEST).is_file():
        return folder
    versions = versions_in(folder)
    if not versions:
        raise ArtifactError(
            f"{folder} is no bundle",
            expected=f"a folder with a {MANIFEST}, or with numbered versions of a policy",
            got="an existing folder without either" if folder.is_dir() else "no such folder",
            todo="Make one with: paddleport export RUN_DIR --name NAME --models models",
        )
    return folder / str(versions[-1])


def versions_in(path: str | Path) -> list[int]:
    """The versions of a policy's folder, oldest first: sub-folders named by a positive integer."""
    folder = Path(path)
    if not folder.is_dir():
        return []
    names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    return sorted(int(name) for name in names if re.fullmatch(r"[1-9][0-9]{0,8}", name))


def replay_golden(bundle: Bundle, precision: str, session: Session) -> float:
    """Run a session on the golden observations; returns the largest difference, in the measure of `row_error`.

    Raises:
        ArtifactError: an output is not what the exporter recorded, beyond the precision's tolerance.
    """
    golden = bundle.golden()
    names = [output.name for output in bundle.manifest.outputs]
    feeds = {given.name: golden[given.name] for given in bundle.manifest.inputs}
    for given in bundle.manifest.inputs:
        recorded = feeds[given.name]
        if (str(recorded.dtype), recorded.shape[1:]) != (given.dtype, given.shape):
            raise _not_golden(bundle, precision, given.name, f"type {recorded.dtype} and shape {recorded.shape}")
    tolerance = bundle.precision(precision).tolerance
    largest = 0.0
    outputs = dict(zip(names, session.run(feeds, names), strict=True))
    for name, got in outputs.items():
        expected = golden[f"{precision}.{name}"]
        if (got.shape, got.dtype) != (expected.shape, expected.dtype):
            raise _not_golden(bundle, precision, name, f"shape {got.shape} and type {got.dtype}")
    for name, got in outputs.items():
        expected = golden[f"{precision}.{name}"]
        if expected.dtype.kind == "i":
            values = golden.get(f"{precision}.logits", golden.get(f"{precision}.q_values"))
            if (got != expected)[decided(bundle.manifest.action_space, values, tolerance, len(got))].any():
                raise _not_golden(bundle, precision, name, "another action")
            continue
        worst = row_error(got, expected)
        if not worst <= tolerance:
            raise _not_golden(bundle, precision, name, f"{worst:.3g} where {tolerance:.3g} is allowed")
        largest = max(largest, worst)
    return largest


def row_error(got: Array, expected: Array) -> float:
    """Largest |got - expected| over max(1, largest magnitude in the row): the measure of parity.

    Args:
        got: [batch, …].
        expected: the same shape; its magnitudes set the scale.
    """
    rows = expected.reshape(len(expected), -1).astype(np.float64)
    scale = np.maximum(1.0, np.abs(rows).max(axis=1, initial=0.0))
    with np.errstate(invalid="ignore"):  # of infinities; the NaN that comes out is within no tolerance
        difference = np.abs(got.reshape(len(got), -1).astype(np.float64) - rows).max(axis=1, initial=0.0)
        return float((difference / scale).max(initial=0.0))


def decided(space: Space, values: Array | None, tolerance: float, count: int) -> Array:
    """Rows, bool [batch], whose choice leads by more than the tolerance allows to move: there it must not turn.

    Args:
        space: the action space.
        values: `logits` or `q_values` [batch, …]; None where there are none, and every row counts as decided.
        tolerance: in the measure of `row_error`.
        count: how many rows there are.
    """
    if values is None:
        return np.ones(count, dtype=bool)
    numbers = values.astype(np.float64)
    if isinstance(space, MultiBinary):
        margin = np.abs(numbers).min(axis=1)
    else:
        splits: Array = np.cumsum(space.nvec)[:-1] if isinstance(space, MultiDiscrete) else np.zeros(0, dtype=int)
        margin = np.min([_lead(part) for part in np.split(numbers, splits, axis=1)], axis=0)
    led: Array = margin > 2 * tolerance * np.maximum(1.0, np.abs(numbers).max(axis=1))
    return led


def _lead(values: Array) -> Array:
    """By how much the largest of each row leads, [batch]."""
    ordered = np.sort(values, axis=1)
    return ordered[:, -1] - ordered[:, -2] if values.shape[1] > 1 else np.full(len(values), np.inf)


def _verified_contents(folder: Path, manifest: Manifest) -> dict[str, bytes]:
    present = {entry.name for entry in folder.iterdir()} - {MANIFEST}
    if unlisted := present - manifest.files.keys():
        raise ArtifactError(
            f"{folder} holds files that its manifest does not list",
            expected=f"{MANIFEST}, {', '.join(sorted(manifest.files))}",
            got=f"{', '.join(sorted(unlisted)[:5])} besides",
            todo="Move them out of the bundle",
        )
    _check_completeness(folder, manifest)
    return {
        name: sealed.read_listed(folder, name, info, _FILE_LIMIT, _RESTORE) for name, info in manifest.files.items()
    }


def _check_completeness(folder: Path, manifest: Manifest) -> None:
    try:
        check_name(manifest.name)
    except UsageError as error:
        raise ArtifactError(
            f"{folder / MANIFEST} has a name that no policy can have",
            expected=error.expected,
            got=error.got,
            todo=_RESTORE,
        ) from error
    if not 0 < manifest.version < 10**9:
        raise ArtifactError(
            f"{folder / MANIFEST} has a version that none can have",
            expected="1 to 999999999",
            got=manifest.version,
            todo=_RESTORE,
        )
    if not manifest.precisions or not manifest.inputs or "action" not in {output.name for output in manifest.outputs}:
        expected = "at least one precision, one input and the output 'action'"
        raise ArtifactError(f"{folder / MANIFEST} describes no policy", expected=expected, todo=_RESTORE)
    for tensor in (*manifest.inputs, *manifest.outputs):
        if tensor.dtype not in _TENSOR_TYPES:
            got = f"{tensor.name} of type {tensor.dtype!r}"
            raise ArtifactError(f"{folder / MANIFEST} describes a tensor of no known type", got=got, todo=_RESTORE)
    leaves = leaf_spaces(manifest.observation_space)
    wanted = {name: (leaf.dtype, leaf.shape) for name, leaf in leaves.items()}
    if {given.name: (given.dtype, given.shape) for given in manifest.inputs} != wanted:
        expected = ", ".join(f"{name} of {dtype}{list(shape)}" for name, (dtype, shape) in wanted.items())
        raise ArtifactError(
            f"{folder / MANIFEST} describes inputs that are not its observations", expected=expected, todo=_RESTORE
        )
    _check_outputs(folder, manifest)
    needed = {GOLDEN} | {info.file for info in manifest.precisions.values()}
    if missing := needed - manifest.files.keys():
        raise ArtifactError(f"{folder / MANIFEST} does not list {', '.join(sorted(missing))}", todo=_RESTORE)


def _check_outputs(folder: Path, manifest: Manifest) -> None:
    """The outputs that we know have to be those of the action space, and so does the way from them to an action."""
    space = manifest.action_space
    transforms = _TRANSFORMS.get(type(space))
    if transforms is None:
        got = type(space).__name__
        raise ArtifactError(f"{folder / MANIFEST} has an action space that no policy has", got=got, todo=_RESTORE)
    action = leaf_spaces(space)[OBSERVATION]
    size = math.prod(action.shape)
    choices = sum(space.nvec) if isinstance(space, MultiDiscrete) else getattr(space, "n", size)
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {
        "action": (action.dtype, action.shape),
        "value": ("float32", ()),
        **dict.fromkeys(("mean", "log_std"), ("float32", (size,))),
        **dict.fromkeys(("logits", "q_values"), ("float32", (choices,))),
    }
    names = [output.name for output in manifest.outputs]
    wrong = [
        f"{output.name} of {output.dtype}{list(output.shape)}"
        for output in manifest.outputs
        if names.count(output.name) > 1 or (output.dtype, output.shape) != wanted.get(output.name)
    ]
    if wrong:
        expected = ", ".join(
            f"{name} of {wanted[name][0]}{list(wanted[name][1])}" for name in dict.fromkeys(names) if name in wanted
        )
        raise ArtifactError(
            f"{folder / MANIFEST} describes outputs that are not those of its action space",
            expected=f"{expected}, each once",
            got=", ".join(wrong),
            todo=_RESTORE,
        )
    if manifest.action_transform.kind not in transforms:
        raise ArtifactError(
            f"{folder / MANIFEST} leads to its actions in a way that its action space does not have",
            expected=" or ".join(transforms),
            got=manifest.action_transform.kind,
            todo=_RESTORE,
        )


def _check_whole(path: Path, model: bytes) -> None:
    """An ONNX file must hold all its weights: ONNX Runtime would read others from wherever it says."""
    try:
        elsewhere = keeps_data_elsewhere(model)
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged", expected="an ONNX file", got=error, todo=_RESTORE) from error
    if elsewhere:
        raise ArtifactError(f"{path} keeps weights in other files", expected="one file that holds all", todo=_RESTORE)


def _load_npz(path: Path, data: bytes) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            total = sum(entry.file_size for entry in archive.infolist())
        if total > _GOLDEN_LIMIT:
            raise ValueError(f"it unpacks to {total} bytes, and {_GOLDEN_LIMIT} is the most")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: np.asarray(arrays[name]) for name in arrays.files}
    except Exception as error:  # a broken archive fails in a dozen ways, from zlib to NumPy's header
        raise ArtifactError(f"{path} is damaged", got=error, todo=_RESTORE) from error


def _not_golden(bundle: Bundle, precision: str, output: str, difference: str) -> ArtifactError:
    return ArtifactError(
        f"{bundle.path} does not act as it was exported: its {precision} {output!r} differs from the golden "
        f"vectors by {difference}",
        todo="Export it again on this machine, or compare its ONNX Runtime with the one in the manifest",
    )
