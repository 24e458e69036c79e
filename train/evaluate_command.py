"""`paddleport evaluate`: whole episodes with a run's or a bundle's deterministic policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import tyro
from rich.console import Console

from paddleport import options
from paddleport.bundle import versions_in
from paddleport.checkpoint import Run
from paddleport.errors import ArtifactError, UsageError
from paddleport.manifest import MANIFEST, ReturnStatistics
from paddleport.options import Flag
from paddleport.progress import stage
from paddleport.spaces import Space, describe, leaf_spaces
from train.configuration import check_environment_named
from train.environments import describe_environment
from train.episodes import BatchPolicy, play
from train.outputs import check_output
from train.recording import MOST_STEPS, Camera, check_recordable

Spaces: TypeAlias = tuple[Space, Space]
_DESCRIPTION = """Play whole episodes with the deterministic policy of a run directory or of a bundle.

Episode k is seeded with seed + k, so that two policies with the same --seed meet the same episodes."""


@dataclass(frozen=True)
class Options:
    """What to evaluate."""

    path: Annotated[str, tyro.conf.Positional]
    """A run directory, a bundle's folder, or a policy's folder (its newest version is taken)."""
    episodes: int = 100
    """How many episodes to play."""
    seed: int = 7
    """Seed of the first episode."""
    checkpoint: str = ""
    """Of a run: best, last or step-N; left out, the best one, or the last where there is no best."""
    precision: Literal["float32", "int8"] | None = None
    """Of a bundle: which of its policies plays; left out, float32."""
    env: str = ""
    """Another environment than the one the policy was trained in."""
    record: str = ""
    """Record the first episode as an animated GIF in this file, such as out.gif. The environment draws it: it has to
    have the render mode rgb_array, or a render() that returns pixels. Atari shows the console's screen."""
    record_steps: int = 500
    """With --record, how many steps of the episode to record; it is played to its end all the same."""
    trust_code: Flag = False
    """Import the trunk that a run names, where it names one of its maker's own: that runs its code."""
    json: Flag = False
    """Print the result as JSON on stdout; progress goes to stderr."""


class Recording(msgspec.Struct, frozen=True):
    """A GIF of an episode."""

    path: str
    steps: int
    """Steps that it shows."""
    episode_steps: int
    """Steps that the episode had."""


class Evaluation(msgspec.Struct, frozen=True):
    """Returns of whole episodes, and whose they are."""

    mean: float
    std: float
    min: float
    max: float
    episodes: int
    seed: int
    environment: str
    policy: str
    """What played: the checkpoint's or bundle's folder, and the precision."""
    recording: Recording | None = None
    """Of the first episode, where it was asked for."""


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "evaluate", argv, _DESCRIPTION)


def run(chosen: Options) -> Evaluation:
    """Play the episodes.

    Raises:
        ArtifactError: there is no run or bundle at the path, or it is damaged.
        UsageError: an option that does not go with it.
    """
    _check_options(chosen)
    policy, environment, label, spaces = _load(chosen)
    if chosen.env:
        environment = chosen.env
        _check_spaces(environment, spaces)
    camera = None
    if chosen.record:
        check_recordable(environment, chosen.seed)
        camera = Camera(chosen.record_steps)
    with stage(f"{environment}, {label}", chosen.episodes) as advance:
        played = play(policy, environment, chosen.episodes, chosen.seed, on_episode=advance, watch=camera)
    statistics: ReturnStatistics = played.statistics
    recording = _write_recording(camera, Path(chosen.record)) if camera else None
    return Evaluation(**msgspec.structs.asdict(statistics), environment=environment, policy=label, recording=recording)


def show(evaluation: Evaluation) -> None:
    """Print the returns."""
    console = Console(markup=False, emoji=False, highlight=False)
    many = "1 episode" if evaluation.episodes == 1 else f"{evaluation.episodes} episodes"
    console.print(
        f"{evaluation.policy} on {evaluation.environment}: {evaluation.mean:.1f} ± {evaluation.std:.1f} "
        f"(from {evaluation.min:.1f} to {evaluation.max:.1f}, {many}, seed {evaluation.seed})",
        soft_wrap=True,
    )
    if recording := evaluation.recording:
        part = f"the first {recording.steps} of" if recording.steps < recording.episode_steps else "all"
        console.print(
            f"{recording.path} shows {part} {recording.episode_steps} steps of the first episode", soft_wrap=True
        )


def _check_options(chosen: Options) -> None:
    rules = [
        ("episodes", chosen.episodes, chosen.episodes >= 1, "1 or more"),
        ("seed", chosen.seed, chosen.seed >= 0, "0 or more"),
        ("record-steps", chosen.record_steps, 1 <= chosen.record_steps <= MOST_STEPS, f"1 … {MOST_STEPS}"),
    ]
    for option, value, holds, expected in rules:
        if not holds:
            raise UsageError(f"--{option} is out of range", expected=expected, got=value)
    if chosen.record:
        check_output(Path(chosen.record), ".gif", "--record")


def _write_recording(camera: Camera, path: Path) -> Recording:
    camera.write(path)
    return Recording(path=str(path), steps=camera.recorded, episode_steps=camera.steps)


def _check_spaces(environment: str, spaces: Spaces) -> None:
    _, *found = describe_environment(environment)
    for what, expected, got in zip(("observations", "actions"), spaces, found, strict=True):
        if _form(expected) != _form(got):
            raise UsageError(
                f"The policy does not fit {environment}: other {what}", expected=describe(expected), got=describe(got)
            )


def _form(space: Space) -> dict[str, tuple[type, tuple[int, ...]]]:
    """Kind and shape of each array: what has to be alike for a policy to be played."""
    return {name: (type(leaf), leaf.shape) for name, leaf in leaf_spaces(space).items()}


def _load(chosen: Options) -> tuple[BatchPolicy, str, str, Spaces]:
    """The policy, the environment it was trained in, a label for it, and its spaces."""
    path = Path(chosen.path)
    if (path / "config.yaml").is_file():
        if chosen.precision not in (None, "float32"):
            raise UsageError("A run plays in float32", got=f"--precision {chosen.precision}", todo="Evaluate a bundle")
        return _load_run(path, chosen.checkpoint or None, trust_code=chosen.trust_code)
    if not (path / MANIFEST).is_file() and not versions_in(path):
        raise ArtifactError(
            f"There is nothing to evaluate at {path}",
            expected="a run directory (with a config.yaml) or a bundle (with a manifest.json)",
            got="a folder with neither" if path.is_dir() else "no such folder",
        )
    if chosen.checkpoint:
        raise UsageError("A bundle has no checkpoints", got=f"--checkpoint {chosen.checkpoint}")
    return _load_bundle(path, chosen.precision or "float32")


def _load_run(path: Path, which: str | None, *, trust_code: bool) -> tuple[BatchPolicy, str, str, Spaces]:
    checkpoint = Run(path).checkpoint(which)
    check_environment_named(Run(path), checkpoint)
    from train.runtime import load_paddle  # only for a run: a bundle plays without Paddle

    load_paddle()
    from train.network import network_of, run_network

    network = network_of(checkpoint, trust_code=trust_code)
    state = checkpoint.state
    spaces = state.observation_space, state.action_space
    return (lambda obs: run_network(network, obs)["action"]), state.environment.id, str(checkpoint.path), spaces


def _load_bundle(path: Path, precision: str) -> tuple[BatchPolicy, str, str, Spaces]:
    from paddleport.policy import Policy

    policy = Policy.load(path, precision=precision)
    manifest = policy.manifest
    label = f"{manifest.name} version {manifest.version} {precision}"
    return policy.act_checked, manifest.environment.id, label, (manifest.observation_space, manifest.action_space)
