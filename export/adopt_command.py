"""`paddleport adopt`: an ONNX policy that another tool wrote, as a bundle."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import tyro
from rich.console import Console

from paddleport import files, options
from paddleport.errors import UsageError
from paddleport.manifest import ReturnStatistics, check_name
from paddleport.options import Flag
from train.runtime import load_paddle

if TYPE_CHECKING:
    from export.adopting import Outcome

_DESCRIPTION = """Make a bundle of an ONNX policy that another tool wrote: stable-baselines3, CleanRL, rsl_rl, d3rlpy …

It is checked as an exported policy is, but for its equality with a trainer that is not here; what could not be checked
stands in the bundle. The environment gives the spaces, and the golden vectors are what the policy meets in it."""
_LIMIT = 2**30


@dataclass(frozen=True)
class Options:
    """What to adopt, and where to."""

    policy: Annotated[str, tyro.conf.Positional]
    """The ONNX file. Its weights have to be inside it."""
    env: str
    """The environment that it acts in: a Gymnasium id, module:Id, or path/to/file.py:ClassName."""
    name: str = ""
    """What to call the policy; left out, the file's name."""
    models: str = "models"
    """The models folder; the bundle appears in it as NAME/<next integer>."""
    output: tuple[str, ...] = ()
    """What the graph's outputs are, NAME:ROLE for each, such as actions:action or 34:logits.
    Roles: action, logits, q_values, mean, log_std, value.
    Left out, they go by their names, and a single output is the action."""
    actions: Literal["env", "unit"] = "env"
    """Of real-valued actions: env, in the environment's units (they are clipped at its bounds),
    or unit, in [-1, 1] (they are mapped to its bounds)."""
    algorithm: str = "adopted"
    """What the policy was trained with, for its description."""
    episodes: int = 20
    """Episodes to play with it."""
    seed: int = 7
    """Seed of the first episode."""
    json: Flag = False
    """Print the result as JSON on stdout; progress goes to stderr."""


class Result(msgspec.Struct, frozen=True):
    """What was published."""

    bundle: str
    name: str
    version: int
    outputs: tuple[str, ...]
    returns: ReturnStatistics
    not_checked: tuple[str, ...]
    seconds: float


def parse(argv: Sequence[str]) -> Options:
    """Read the command line."""
    return options.parse(Options, "adopt", argv, _DESCRIPTION)


def run(chosen: Options) -> Result:
    """Adopt a policy.

    Raises:
        ArtifactError: the file is missing, no ONNX file, or keeps weights elsewhere.
        UsageError: it does not fit the environment, or which output is the action cannot be told.
        GateError: it does not act as a policy has to.
    """
    began = time.monotonic()
    path = Path(chosen.policy)
    name = check_name(chosen.name or path.name.removesuffix(".onnx"))
    if chosen.episodes < 2:
        raise UsageError("--episodes is too small", expected="at least 2", got=chosen.episodes)
    if chosen.seed < 0:
        raise UsageError("--seed is negative", expected="0 or more", got=chosen.seed)
    data = files.read_bytes(path, _LIMIT)
    load_paddle()  # what proves exports is shared with policies that have a trainer
    from export import adopting

    outcome = adopting.adopt_file(
        adopting.Request(
            data=data,
            environment=chosen.env,
            name=name,
            models=Path(chosen.models),
            outputs=chosen.output,
            scale=chosen.actions,
            algorithm=chosen.algorithm,
            episodes=chosen.episodes,
            seed=chosen.seed,
        )
    )
    return _result(outcome, time.monotonic() - began)


def show(result: Result) -> None:
    """Print what was published."""
    console = Console(emoji=False, markup=False, highlight=False)
    played = result.returns
    console.print(
        f"{result.bundle}: {played.mean:.1f} ± {played.std:.1f} over {played.episodes} episodes; outputs "
        f"{', '.join(result.outputs)}. {result.seconds} s.",
        soft_wrap=True,
    )
    console.print("Not checked:")
    for sentence in result.not_checked:
        console.print(f"- {sentence}", soft_wrap=True)
    console.print(f"Next: paddleport serve --models {Path(result.bundle).parent.parent}", soft_wrap=True)


def _result(outcome: Outcome, seconds: float) -> Result:
    manifest = outcome.manifest
    return Result(
        bundle=str(outcome.path),
        name=manifest.name,
        version=manifest.version,
        outputs=tuple(output.name for output in manifest.outputs),
        returns=outcome.returns,
        not_checked=manifest.not_checked,
        seconds=round(seconds, 2),
    )
