"""Runs and checkpoints as every stage reads them: what lies where, and what a checkpoint says of itself.

RUN/  config.yaml  metrics.jsonl  logs/
checkpoints/step-000100000/{state.json, policy.safetensors, optimizer.safetensors}
checkpoints/replay/rows-….safetensors  rows of a replay memory, listed by all checkpoints that need them
checkpoints/last, checkpoints/best     one line: the name of a checkpoint
quantized/<method>/{quantization.json, policy.safetensors}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from paddleport import files, sealed
from paddleport.errors import ArtifactError, MissingExtraError, UsageError
from paddleport.manifest import EnvironmentInfo, FileInfo, ReturnStatistics
from paddleport.spaces import Array, Space

SCHEMA_VERSION = 1
STATE = "state.json"
POLICY = "policy.safetensors"
OPTIMIZER = "optimizer.safetensors"
REPLAY = "replay.safetensors"
REPLAY_ROWS = "replay"
QUANTIZATION = "quantization.json"
_TENSOR_LIMIT = 8 * 2**30
_POINTER_LIMIT = 256
_STEP = re.compile(r"step-([0-9]{1,18})")
_OTHER_CHECKPOINT = "Use another checkpoint of the run with --checkpoint step-N"


class NetworkInfo(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to rebuild the policy network, weights aside."""

    hidden_sizes: tuple[int, ...]
    activation: Literal["tanh", "relu"]
    normalize_obs: bool
    kind: Literal["actor_critic", "q_values"] = "actor_critic"
    """What the heads are: a distribution's parameters and a value, or a value for each action."""
    dueling: bool = False
    """Whether Q-values are a state's value plus each action's advantage over the mean."""
    shared_trunk: bool = False
    """Whether actor and critic stand on one trunk."""
    squash: bool = False
    """Whether a Box's mean goes through tanh instead of being clipped."""
    trunk_class: str = ""
    """A user's own trunk, `module:Class`; empty for Paddleport's."""


class CheckpointState(msgspec.Struct, frozen=True, kw_only=True):
    """`state.json`: everything of a checkpoint that is no tensor."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    algorithm: str
    step: int
    """Environment steps taken (transitions learnt from; resets count as none)."""
    seed: int
    config: dict[str, Any]
    environment: EnvironmentInfo
    observation_space: Space
    action_space: Space
    network: NetworkInfo
    counters: dict[str, int]
    """What the algorithm counts besides, such as its updates."""
    rng: dict[str, Any]
    """State of the one NumPy generator that sampling and shuffling draw from."""
    normalizer_count: float
    """How many observations the normaliser has seen; its moments are in the tensor files."""
    amp_scaler: dict[str, float] = {}
    """State of mixed precision's loss scaler; empty where the loss is not scaled."""
    evaluation: ReturnStatistics | None
    best_mean_return: float | None
    versions: dict[str, str]
    created: str
    files: dict[str, FileInfo]
    replay_files: dict[str, FileInfo] = {}
    """Files in `checkpoints/replay/` that hold the replay's rows, oldest first. They are read to resume, for nothing
    else."""


class Checkpoint:
    """One verified checkpoint.

    Attributes:
        path: its folder.
        state: its `state.json`.
    """

    def __init__(self, path: Path, state: CheckpointState) -> None:
        self.path = path
        self.state = state

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Read `state.json` and check every file against it.

        Raises:
            ArtifactError: something is missing or damaged.
        """
        checkpoint = cls(path, sealed.unseal(path / STATE, CheckpointState, SCHEMA_VERSION))
        for name in sorted({POLICY, OPTIMIZER, *checkpoint.state.files}):
            checkpoint._read(name)
        return checkpoint

    @property
    def sha256(self) -> str:
        """Identity of the policy in this checkpoint: the hash of its weights file."""
        return self.state.files[POLICY].sha256

    def policy_tensors(self) -> dict[str, Array]:
        """The policy's weights and normaliser, by structural path."""
        return _tensors(self.path / POLICY, self._read(POLICY))

    def optimizer_tensors(self) -> dict[str, Array]:
        """The optimizer's accumulators, by structural path."""
        return _tensors(self.path / OPTIMIZER, self._read(OPTIMIZER))

    def replay_tensors(self) -> dict[str, Array]:
        """The replay memory without its rows; empty where the algorithm has none."""
        return _tensors(self.path / REPLAY, self._read(REPLAY)) if REPLAY in self.state.files else {}

    def replay_rows(self) -> Iterator[dict[str, Array]]:
        """The rows of the replay memory, file by file, oldest first.

        Raises:
            ArtifactError: a file is missing or damaged.
        """
        for name in self.state.replay_files:
            yield _tensors(self._replay_folder / name, self._read_rows(name))

    def check_replay(self) -> None:
        """Read every file of replay rows, which `open` does not, since they may be gigabytes.

        Raises:
            ArtifactError: one is missing or damaged.
        """
        for name in self.state.replay_files:
            self._read_rows(name)

    @property
    def _replay_folder(self) -> Path:
        return self.path.parent / REPLAY_ROWS

    def _read_rows(self, name: str) -> bytes:
        listed = self.state.replay_files[name]
        return sealed.read_listed(self._replay_folder, name, listed, _TENSOR_LIMIT, _OTHER_CHECKPOINT)

    def _read(self, name: str) -> bytes:
        """A file's bytes, checked again at every reading: it may have changed since the checkpoint was opened."""
        if name not in self.state.files:
            raise ArtifactError(f"{self.path / STATE} does not list {name}", todo=_OTHER_CHECKPOINT)
        return sealed.read_listed(self.path, name, self.state.files[name], _TENSOR_LIMIT, _OTHER_CHECKPOINT)


class Run:
    """A run directory.

    Raises:
        ArtifactError: there is no run at this path.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "config.yaml").is_file():
            raise ArtifactError(
                f"{self.path} is no run directory",
                expected="a folder with a config.yaml, made by paddleport train",
                got="a folder without one" if self.path.is_dir() else "no such folder",
                todo="Make one with: paddleport train --run-dir RUN_DIR",
            )

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints lie."""
        return self.path / "checkpoints"

    def steps(self) -> list[int]:
        """Steps of the checkpoints on disk, oldest first."""
        if not self.checkpoints.is_dir():
            return []
        names = (_STEP.fullmatch(entry.name) for entry in self.checkpoints.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def checkpoint(self, which: str | None = None) -> Checkpoint:
        """Open a checkpoint.

        Args:
            which: `best`, `last`, `step-N`, or None for the best one, or the last where there is no best.

        Raises:
            ArtifactError: the run has no such checkpoint, or it is damaged.
            UsageError: `which` is none of these words.
        """
        if not self.steps():
            raise ArtifactError(
                f"{self.path} has no checkpoint yet",
                todo="Train on with: paddleport train --run-dir RUN_DIR --resume",
            )
        if which is None:
            which = "best" if (self.checkpoints / "best").is_file() else "last"
        if which in ("best", "last"):
            return Checkpoint.open(self.checkpoints / self._pointed(which))
        step = _STEP.fullmatch(which)
        if not step:
            raise UsageError("Unknown checkpoint", expected="best, last or step-N", got=repr(which))
        if int(step[1]) not in self.steps():
            raise ArtifactError(
                f"{self.path} has no checkpoint {which}",
                expected="one of " + ", ".join(f"step-{step}" for step in self.steps()),
                got=which,
                todo="Leave --checkpoint out for the best one",
            )
        return Checkpoint.open(self.checkpoints / step_name(int(step[1])))

    def _pointed(self, pointer: str) -> str:
        name = files.read_bytes(self.checkpoints / pointer, _POINTER_LIMIT).decode("utf-8", "replace").strip()
        if not _STEP.fullmatch(name):
            raise ArtifactError(
                f"{self.checkpoints / pointer} is damaged",
                expected="one line, step-N",
                got=repr(name),
                todo="Name a checkpoint yourself with --checkpoint step-N",
            )
        return name


def step_name(step: int) -> str:
    """Name of a checkpoint's folder."""
    return f"step-{step:09d}"


def load_tensors(path: Path) -> dict[str, Array]:
    """Tensors of a safetensors file as NumPy arrays.

    Raises:
        ArtifactError: the file is missing or damaged.
    """
    return _tensors(path, files.read_bytes(path, _TENSOR_LIMIT))


def _tensors(path: Path, data: bytes) -> dict[str, Array]:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load
    except ImportError as error:
        raise MissingExtraError("safetensors", "train") from error
    try:
        tensors: dict[str, Array] = load(data)
    except SafetensorError as error:
        raise ArtifactError(f"{path} is damaged", got=error) from error
    return tensors
