"""Configurations: what can be chosen, what a preset chooses, and what a run was made with."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
import yaml

from paddleport.errors import ArtifactError, UsageError
from paddleport.files import read_bytes, write_atomic
from paddleport.options import Flag

Schedule: TypeAlias = Literal["constant", "linear"]
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


@dataclass(frozen=True)
class RunOptions:
    """What every algorithm is told."""

    algo: Literal["ppo", "a2c", "dqn"] = "ppo"
    """The algorithm."""
    env: str = "CartPole-v1"
    """A Gymnasium id, module:id where a module of yours registers it, or path/to/file.py:ClassName; a relative path is
    relative to the current folder."""
    seed: int = 0
    """Seed of everything random. The same seed gives the same weights on the same machine."""
    total_steps: int = 100_000
    """Environment steps to train for."""
    run_dir: str = ""
    """Folder for the run; runs/<algo>-<env>-<seed> where it is left out."""
    checkpoint_every: int = 0
    """Steps between checkpoints, each with an evaluation; 0 is a tenth of the total."""
    keep_checkpoints: int = 5
    """How many of the newest checkpoints to keep, beside the best one and those that were quantized; at least two are
    kept, since a damaged last one falls back to the one before it; 0 keeps all. It can be changed with --resume."""
    evaluation_episodes: int = 10
    """Episodes that each checkpoint is evaluated on, to choose the best one."""
    engine: Literal["auto", "compiled", "eager"] = "auto"
    """How updates run: one compiled program, Paddle's eager mode, or whichever suits the device."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where updates run; auto takes a GPU where Paddle sees one."""
    vector: Literal["auto", "sync", "async", "own", "envpool"] = "auto"
    """How environments step together: in turn (sync), in a process each (async, for slow ones), in the environment's
    own vector form, or in EnvPool. auto is sync, and for Atari ale-py's own."""
    step_limit_seconds: float = 60.0
    """Seconds that one environment step may take before the run stops with a message; 0 waits for ever."""
    amp: Literal["off", "O1", "O2"] = "off"
    """Mixed precision on a GPU, in the eager engine: O1 computes matrix products and convolutions in 16 bits, O2 keeps
    the weights in 16 bits too, beside float32 masters. Losses, advantages and the optimizer stay float32."""
    amp_dtype: Literal["float16", "bfloat16"] = "float16"
    """The 16 bits of --amp: float16 is finer and needs its loss scaled, bfloat16 has float32's range and needs a GPU of
    compute capability 8."""
    recompute: Flag = False
    """Compute the trunks' activations again in the backward pass, in the eager engine, instead of keeping them: less
    memory, more time, the same gradients."""
    threads: int = 1
    """Threads within one operator on the CPU; more than one pays from about 256 units wide."""
    resume: Flag = False
    """Continue the run in --run-dir from its last checkpoint, exactly."""
    json: Flag = False
    """Print the result as JSON on stdout; progress goes to stderr."""


@dataclass(frozen=True)
class OnPolicyConfig:
    """What algorithms share that learn from what the present policy does, once, and forget it."""

    num_envs: int = 8
    """Environments that step side by side."""
    n_steps: int = 128
    """Steps that each environment takes between updates."""
    gamma: float = 0.99
    """Discount."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation; 1 is the n-step return."""
    learning_rate: float = 3e-4
    """The optimizer's step size at the start."""
    learning_rate_schedule: Schedule = "constant"
    """Whether the learning rate stays or falls linearly to zero."""
    value_coef: float = 0.5
    """Weight of the squared value error in the loss."""
    entropy_coef: float = 0.0
    """Weight of the entropy in the loss."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this global norm."""
    normalize_advantage: bool = True
    """Whether advantages are standardised within each minibatch."""
    normalize_obs: bool = True
    """Whether the policy normalises observations by their running mean and variance; images and choices never are."""
    normalize_reward: bool = False
    """Whether learning sees rewards divided by the running deviation of discounted returns."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of the actor's and of the critic's network; behind the convolutions for images."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Non-linearity after each hidden layer."""
    trunk: Literal["auto", "separate", "shared"] = "auto"
    """Whether actor and critic have a network each or one for both; auto shares it where there are images."""
    trunk_class: str = ""
    """A trunk of your own, module:Class, a paddle.nn.Layer made with the features' shapes by name."""
    squash: bool = False
    """Whether Box actions go through tanh instead of being clipped at their bounds."""
    log_std_init: float = 0.0
    """Logarithm of the Gaussian's standard deviation at the start, in [-1, 1] coordinates."""


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """Proximal policy optimisation (Schulman et al. 2017)."""

    batch_size: int = 256
    """Rows in a minibatch."""
    epochs: int = 10
    """Passes over each rollout."""
    clip_range: float = 0.2
    """How far the probability ratio may move, at the start."""
    clip_range_schedule: Schedule = "constant"
    """Whether the clip range stays or falls linearly to zero."""
    value_clip_range: float = 0.0
    """How far a value may move in an update of its rollout; 0 leaves it free."""
    target_kl: float = 0.0
    """A rollout's updates end when the approximate KL divergence is half again as large as this; 0 never ends them."""
    adam_epsilon: float = 1e-5
    """Adam's ε."""


@dataclass(frozen=True)
class A2CConfig(OnPolicyConfig):
    """Advantage actor-critic, the synchronous form of A3C (Mnih et al. 2016)."""

    n_steps: int = 5
    """Steps that each environment takes between updates."""
    gae_lambda: float = 1.0
    """λ of generalised advantage estimation; 1 is the n-step return."""
    learning_rate: float = 7e-4
    """The optimizer's step size at the start."""
    normalize_advantage: bool = False
    """Whether advantages are standardised within each update."""
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """RMSProp as in the paper, or Adam."""
    rmsprop_decay: float = 0.99
    """Decay of RMSProp's mean square."""
    optimizer_epsilon: float = 1e-5
    """The optimizer's ε."""


@dataclass(frozen=True)
class DQNConfig:
    """Deep Q-learning (Mnih et al. 2015) with the double, dueling, n-step and prioritised forms."""

    num_envs: int = 1
    """Environments that step side by side."""
    train_every: int = 4
    """Environment steps between learning phases."""
    gradient_steps: int = -1
    """Updates in a learning phase; -1 is one for each environment step."""
    batch_size: int = 64
    """Transitions in an update."""
    gamma: float = 0.99
    """Discount."""
    n_steps: int = 1
    """Steps that a return looks ahead."""
    learning_rate: float = 6.3e-4
    """Adam's step size at the start."""
    learning_rate_schedule: Schedule = "constant"
    """Whether the learning rate stays or falls linearly to zero."""
    target_every: int = 100
    """Environment steps between updates of the network that targets come from."""
    target_tau: float = 1.0
    """How far it then moves to the network that learns: 1 copies it, less is a soft update."""
    learning_starts: int = 1000
    """Environment steps before the first update."""
    exploration_start: float = 1.0
    """Share of random actions at the start."""
    exploration_end: float = 0.05
    """Share of random actions in the end."""
    exploration_fraction: float = 0.1
    """Share of the training over which it falls, linearly."""
    double: bool = True
    """Whether the network that learns chooses the next action and the target network values it."""
    dueling: bool = False
    """Whether Q-values are a state's value plus each action's advantage over the mean."""
    replay_capacity: int = 1_000_000
    """Transitions that the replay memory holds; memory is taken as it fills."""
    prioritized: bool = False
    """Whether transitions are drawn in proportion to their TD errors."""
    priority_exponent: float = 0.6
    """α: how much priorities count."""
    importance_start: float = 0.4
    """β at the start: how far importance weights undo the priorities; it rises linearly to 1."""
    max_grad_norm: float = 10.0
    """Gradients are scaled down to this global norm."""
    adam_epsilon: float = 1e-8
    """Adam's ε."""
    normalize_obs: bool = False
    """Whether the policy normalises observations by their running mean and variance; images and choices never are."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers; behind the convolutions for images."""
    activation: Literal["tanh", "relu"] = "relu"
    """Non-linearity after each hidden layer."""
    trunk_class: str = ""
    """A trunk of your own, module:Class, a paddle.nn.Layer made with the features' shapes by name."""


AlgorithmConfig: TypeAlias = PPOConfig | A2CConfig | DQNConfig
C = TypeVar("C", bound=AlgorithmConfig, covariant=True)


@dataclass(frozen=True)
class TrainConfig(Generic[C]):
    """A training run, fully resolved."""

    run: RunOptions
    algorithm: C


ALGORITHMS: dict[str, type[AlgorithmConfig]] = {"ppo": PPOConfig, "a2c": A2CConfig, "dqn": DQNConfig}
NOT_SAVED = ("run_dir", "resume", "json", "step_limit_seconds")
"""Options of a command, not of a run: a run can be moved."""
_CHANGEABLE = ("keep_checkpoints",)
"""Options that a resumed run may change, since nothing that is computed depends on them."""


def preset(algo: str, env_id: str) -> AlgorithmConfig:
    """The algorithm's configuration for an environment: its preset where there is one, else the defaults.

    Raises:
        UsageError: there is no such algorithm.
    """
    if algo not in ALGORITHMS:
        raise UsageError("Unknown algorithm", expected=f"one of {', '.join(ALGORITHMS)}", got=repr(algo))
    path = _PRESETS / f"{env_id}.yaml"
    known = {entry.name for entry in _PRESETS.glob("*.yaml")}
    chosen = yaml.safe_load(path.read_text(encoding="utf-8")) if path.name in known else {}
    return from_mapping(ALGORITHMS[algo], chosen.get(algo, {}), str(path))


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
    keys = [key for key in [*before, *(key for key in after if key not in before)] if key not in _CHANGEABLE]
    return [f"{key} {before.get(key)!r} → {after.get(key)!r}" for key in keys if before.get(key) != after.get(key)]


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
    kind = ALGORITHMS[values["algo"]]
    own = {entry.name for entry in dataclasses.fields(RunOptions)}
    run = from_mapping(RunOptions, {key: value for key, value in values.items() if key in own}, str(path))
    rest = {key: value for key, value in values.items() if key not in own}
    return TrainConfig(run, from_mapping(kind, rest, str(path))), run_id


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
        ("keep_checkpoints", run.keep_checkpoints, run.keep_checkpoints >= 0, "0 or more"),
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
    if isinstance(config.algorithm, PPOConfig):
        rows, size = values["num_envs"] * values["n_steps"], values["batch_size"]
        rules.append(("batch_size", size, 2 <= size <= rows, f"2 … num-envs × n-steps = {rows}"))
    if run.amp == "O2" and "optimizer" in values:
        # Paddle's RMSProp kernel takes no float32 gradient for a weight of 16 bits, and in 16 bits the norm overflows.
        rules.append(("optimizer", values["optimizer"], values["optimizer"] == "adam", "adam with --amp O2"))
    for option, value, holds, expected in rules:
        if not holds:
            raise UsageError(f"--{option.replace('_', '-')} is out of range", expected=expected, got=value)
