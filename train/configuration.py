"""Configurations as they are read, written, compared and checked."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from paddleport.checkpoint import Checkpoint, Run
from paddleport.errors import ArtifactError, UsageError
from paddleport.files import read_bytes, write_atomic
from train.config import ALGORITHMS, AlgorithmConfig, DQNConfig, OnPolicyConfig, PPOConfig, RunOptions, TrainConfig

T = TypeVar("T")

CONFIG = "config.yaml"
_LIMIT = 2**20
_COUNTS = ("num_envs", "n_steps", "batch_size", "epochs", "train_every", "target_every", "replay_capacity")
_ZERO_OR_MORE = ("value_clip_range", "target_kl", "entropy_coef", "value_coef", "learning_starts")
_SHARES = (
    *("gamma", "gae_lambda", "rmsprop_decay", "exploration_start", "exploration_end", "exploration_fraction"),
    *("priority_exponent", "importance_start", "target_tau"),
)
_POSITIVE = ("learning_rate", "clip_range", "max_grad_norm", "adam_epsilon", "optimizer_epsilon")
_PRESETS = Path(__file__).parent / "presets"
_ATARI = "Atari"


NOT_SAVED = ("run_dir", "resume", "json", "step_limit_seconds", "trust_code")
"""Options of a command, not of a run: a run can be moved."""
_CHANGEABLE = ("keep_checkpoints",)
"""Options that a resumed run may change, since nothing that is computed depends on them."""


def preset(algo: str, env_id: str) -> TrainConfig[AlgorithmConfig]:
    """The configuration for an environment: what its preset says where there is one, else the defaults.

    Raises:
        UsageError: there is no such algorithm.
    """
    if algo not in ALGORITHMS:
        raise UsageError("Unknown algorithm", expected=f"one of {', '.join(ALGORITHMS)}", got=repr(algo))
    path = _PRESETS / f"{_ATARI if _is_atari(env_id) else env_id}.yaml"
    known = {entry.name for entry in _PRESETS.glob("*.yaml")}
    chosen = yaml.safe_load(path.read_text(encoding="utf-8")) if path.name in known else {}
    return of_run({"algo": algo, "env": env_id, **chosen.get(algo, {})}, str(path))


def _is_atari(env_id: str) -> bool:
    """Whether an id is one of ale-py's: all games share a preset, as they do in the literature."""
    return env_id.startswith("ALE/") or env_id.endswith(("NoFrameskip-v0", "NoFrameskip-v4"))


def from_mapping(kind: type[T], values: Mapping[str, Any], source: str) -> T:
    """A dataclass from plain values; what `values` leaves out has its default.

    Raises:
        UsageError: an unknown key or a value of the wrong type; the message names `source`.
    """
    known = [entry.name for entry in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for key in map(str, values):
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            todo = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(known)}"
            raise UsageError(f"{source} has an unknown key", got=repr(key), todo=todo.rstrip("?"))
    try:
        return msgspec.convert(dict(values), kind, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source} has a wrong value", got=error) from error


def to_mapping(config: TrainConfig[AlgorithmConfig]) -> dict[str, Any]:
    """The run's configuration as one flat mapping of plain values."""
    flat = {**dataclasses.asdict(config.run), **dataclasses.asdict(config.algorithm)}
    kept = {key: value for key, value in flat.items() if key not in NOT_SAVED}
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(kept))  # as a checkpoint's state.json gives it back
    return plain


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The options that differ between two runs and have to be the same to resume, each as `name old → new`."""
    changed = [key for key in before if key not in _CHANGEABLE and before[key] != after.get(key)]
    return [f"{key} {before[key]!r} → {after.get(key)!r}" for key in changed]


def save(config: TrainConfig[AlgorithmConfig], run_id: str, path: Path) -> None:
    """Write `config.yaml`."""
    text = yaml.safe_dump({"run_id": run_id, **to_mapping(config)}, sort_keys=False)
    write_atomic(path, text.encode())


def load(path: Path) -> tuple[TrainConfig[AlgorithmConfig], str]:
    """Read `config.yaml`: the configuration and the run's id.

    Raises:
        ArtifactError: the file is missing or damaged.
        UsageError: a key or value is unknown.
    """
    try:
        values = yaml.safe_load(read_bytes(path, _LIMIT))
    except (yaml.YAMLError, ValueError) as error:  # a date that does not exist is a plain ValueError
        raise ArtifactError(f"{path} is damaged", got=" ".join(str(error).split())) from error
    if not isinstance(values, dict) or not isinstance(values.get("algo"), str) or values["algo"] not in ALGORITHMS:
        raise ArtifactError(f"{path} is damaged", expected="a mapping that names a known algo")
    run_id = str(values.pop("run_id", ""))
    return of_run(values, str(path)), run_id


def check_environment_named(run: Run, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that would be played elsewhere than `config.yaml` says: whoever read that trusted it.

    Raises:
        ArtifactError: the two name different environments.
    """
    config, _ = load(run.path / CONFIG)
    if config.run.env != checkpoint.state.environment.id:
        raise ArtifactError(
            f"{checkpoint.path} is not of the environment that {run.path / CONFIG} names",
            expected=config.run.env,
            got=checkpoint.state.environment.id,
            todo="Use another checkpoint of the run",
        )


def of_run(values: Mapping[str, Any], source: str) -> TrainConfig[AlgorithmConfig]:
    """A run's configuration from what `to_mapping` gave; options that are newer than it have their defaults.

    Raises:
        UsageError: a key or value is unknown; the message names `source`.
    """
    own = {entry.name for entry in dataclasses.fields(RunOptions)}
    run = from_mapping(RunOptions, {key: value for key, value in values.items() if key in own}, source)
    rest = {key: value for key, value in values.items() if key not in own}
    return TrainConfig(run, from_mapping(ALGORITHMS[run.algo], rest, source))


def check(config: TrainConfig[AlgorithmConfig]) -> None:
    """Refuse values that cannot work.

    Raises:
        UsageError: the message names the option and what it takes.
    """
    run, values = config.run, dataclasses.asdict(config.algorithm)
    rules = [
        ("seed", run.seed, 0 <= run.seed < 2**32, "0 … 2^32 - 1"),
        ("checkpoint_every", run.checkpoint_every, run.checkpoint_every >= 0, "0 or more"),
        ("step_limit_seconds", run.step_limit_seconds, run.step_limit_seconds >= 0, "0 or more"),
        (
            "keep_checkpoints",
            run.keep_checkpoints,
            run.keep_checkpoints == 0 or run.keep_checkpoints >= 2,
            "0, or 2 or more",
        ),
    ]
    counts = {name: getattr(run, name) for name in ("total_steps", "evaluation_episodes", "threads")}
    counts |= {name: values[name] for name in _COUNTS if name in values}
    rules += [(name, value, value >= 1, "at least 1") for name, value in counts.items()]
    rules += [(name, values[name], 0 <= values[name] <= 1, "0 … 1") for name in _SHARES if name in values]
    rules += [(name, values[name], values[name] > 0, "above 0") for name in _POSITIVE if name in values]
    rules += [(name, values[name], values[name] >= 0, "0 or more") for name in _ZERO_OR_MORE if name in values]
    sizes = values["hidden_sizes"]
    rules.append(("hidden_sizes", sizes, min(sizes, default=1) >= 1, "widths of at least 1 each"))
    if isinstance(config.algorithm, OnPolicyConfig):
        rules.append(("n_steps", values["n_steps"], values["n_steps"] >= 2, "at least 2"))
    if isinstance(config.algorithm, DQNConfig):
        chosen = config.algorithm
        # Of what the ring holds, these rows wait for their returns, or end the episodes that a checkpoint cut.
        least = chosen.batch_size + 2 * (chosen.n_steps + 1) * chosen.num_envs
        rules += [
            ("replay_capacity", chosen.replay_capacity, chosen.replay_capacity >= least, f"at least {least} here"),
            (
                "learning_starts",
                chosen.learning_starts,
                chosen.learning_starts < run.total_steps,
                "under --total-steps",
            ),
        ]
    if isinstance(config.algorithm, PPOConfig):
        rows, size = values["num_envs"] * values["n_steps"], values["batch_size"]
        rules.append(("batch_size", size, 2 <= size <= rows, f"2 … num-envs × n-steps = {rows}"))
    if run.amp == "O2" and "optimizer" in values:
        # Paddle's RMSProp kernel takes no float32 gradient for a weight of 16 bits, and in 16 bits the norm overflows.
        rules.append(("optimizer", values["optimizer"], values["optimizer"] == "adam", "adam with --amp O2"))
    for option, value, holds, expected in rules:
        if not holds:
            raise UsageError(f"--{option.replace('_', '-')} is out of range", expected=expected, got=value)
