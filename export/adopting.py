"""From a foreign ONNX file to a published bundle: wrap, play, prove what can be proven, publish."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import onnx

from export import golden, parity
from export.adopt import Adopted, Scale, adopt, parse_outputs, read_model
from export.canonical import tensor_infos
from export.metadata import describe_itself
from export.model_card import model_card
from export.observations import ObservationSets, observation_sets, plainest
from export.precisions import FILES, play_stage
from export.publish import npz_bytes, publish
from paddleport import __version__
from paddleport.bundle import decided, row_error
from paddleport.errors import ArtifactError, GateError, UsageError
from paddleport.features import statistics_of
from paddleport.files import sha256_bytes
from paddleport.manifest import (
    GOLDEN,
    ActionTransform,
    EnvironmentInfo,
    Manifest,
    PrecisionInfo,
    Provenance,
    ReturnStatistics,
)
from paddleport.sampling import to_action
from paddleport.session import Session
from paddleport.spaces import Box, Discrete, Leaves, Space, batch_size, joined, rows_of
from train.checkpointing import now
from train.environments import describe_environment
from train.episodes import Episodes

CARD = "README.md"
_VISITED = 1024
_NAME = FILES["float32"]


@dataclass(frozen=True)
class Request:
    """What to adopt, and where to."""

    data: bytes
    environment: str
    name: str
    models: Path
    outputs: Sequence[str]
    scale: Scale
    algorithm: str
    episodes: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """A published bundle."""

    path: Path
    manifest: Manifest
    returns: ReturnStatistics


def adopt_file(request: Request) -> Outcome:
    """Publish a foreign policy as the next version of `request.name`.

    Raises:
        ArtifactError: the file is no ONNX file, or keeps weights elsewhere.
        UsageError: it does not fit the environment, or which output is the action cannot be told.
        GateError: it does not act as a policy has to; nothing is published.
    """
    source = read_model(request.data)
    environment, observation, action = describe_environment(request.environment)
    adopted = adopt(source, observation, action, parse_outputs(request.outputs, source, action), request.scale)
    describe_itself(
        adopted.model,
        algorithm=request.algorithm,
        environment=environment,
        observation_space=observation,
        action_space=action,
        run_id="",
    )
    data = bytes(adopted.model.SerializeToString(deterministic=True))
    session = Session(data)
    one = plainest(observation)
    check_shapes(session, adopted, joined([one, one]))

    def act(obs: Leaves) -> object:
        given = session.run(obs, ("action",))[0]
        parity.check_actions(action, {"action": given}, "adopted")  # lest the environment be blamed
        return given

    played = play_stage("the policy", act, request.environment, request.episodes, request.seed, keep=_VISITED)
    sets = observation_sets(observation, played.observations, request.seed)
    prove(session, adopted.outputs, action, sets)
    check_agreement(parity.run_onnx(session, sets.everything, adopted.outputs), adopted.transform, action)
    draft = _manifest(request, source, adopted, (environment, observation, action), played)
    rows = golden.golden_observations(observation, played.observations)
    files = {_NAME: data, GOLDEN: npz_bytes(golden.golden_arrays(rows, {"float32": session}, adopted.outputs))}
    sizes = {name: len(content) for name, content in files.items()}

    def with_card(manifest: Manifest) -> dict[str, bytes]:
        return {**files, CARD: model_card(manifest, sizes, rows_of(rows, -1)).encode()}

    path = publish(request.models, draft, with_card)
    return Outcome(path, msgspec.structs.replace(draft, version=int(path.name)), played.statistics)


def check_shapes(session: Session, adopted: Adopted, obs: Leaves) -> None:
    """Run the graph once: what it declares need not be what it gives.

    Args:
        session: of the wrapped graph.
        adopted: what it declares.
        obs: two observations.

    Raises:
        UsageError: it gives too many numbers for each observation, or too few.
    """
    count = batch_size(obs)
    try:
        given = dict(zip(adopted.outputs, session.run(obs, adopted.outputs), strict=True))
    except ArtifactError as error:
        raise UsageError(
            "The graph does not run on observations of this environment, or its outputs have other sizes than an "
            "action has here",
            got=error.got or error,
            todo="Look at its inputs and outputs, and say by --output which is what",
        ) from error
    for output in tensor_infos(adopted.model.graph.output):
        shape = given[output.name].shape
        if shape != (count, *output.shape):
            raise UsageError(
                f"The output taken as {output.name!r} has another size",
                expected=f"{math.prod(output.shape)} numbers for each observation",
                got=f"{given[output.name].size} for {count} observations",
                todo="Say by --output NAME:ROLE which output is what",
            )


def check_agreement(outputs: parity.Outputs, kind: str, space: Space) -> None:
    """The action has to be the one that the other outputs lead to, or a drawn action would come from elsewhere.

    Raises:
        GateError: it is another one.
    """
    values = outputs.get("logits", outputs.get("q_values"))
    if isinstance(space, Discrete) and values is not None:
        wrong = (values.argmax(axis=1) + space.start != outputs["action"]) & decided(
            space, values, parity.TOLERANCE, len(values)
        )
    elif isinstance(space, Box) and "mean" in outputs:
        expected = to_action(space, outputs["mean"].astype(np.float64), kind)
        wrong = ~np.isclose(outputs["action"], expected, rtol=1e-4, atol=1e-4).reshape(len(expected), -1).all(axis=1)
    else:
        return
    if wrong.any():
        raise GateError(
            "The policy's action is not the one that its other outputs lead to",
            expected="the largest of logits or Q-values" if values is not None else f"its mean, by {kind!r}",
            got=f"another one on {int(wrong.sum())} of {len(wrong)} observations",
            todo="Take the outputs that belong together by --output, and the right --actions env or unit",
        )


def prove(session: Session, names: Sequence[str], action: Space, sets: ObservationSets) -> None:
    """What holds of every policy: finite, inside the bounds, repeatable, and each row answered by itself.

    Raises:
        GateError: it does not.
    """
    everything = sets.everything
    alone = parity.run_onnx(session, everything, names, 1)
    parity.check_actions(action, alone, "adopted")
    parity.check_repeatable(session, everything, names, "adopted")
    values = alone.get("logits", alone.get("q_values"))
    for batch in parity.BATCHES[1:]:
        together = parity.run_onnx(session, everything, names, batch)
        for name, expected in alone.items():
            if expected.dtype.kind == "f":
                wrong = not row_error(together[name], expected) <= parity.TOLERANCE
            else:
                clear = decided(action, values, parity.TOLERANCE, len(expected))
                wrong = values is not None and bool(((expected != together[name]) & clear).any())
            if wrong:
                raise GateError(
                    f"The policy's {name!r} depends on what else is in its batch",
                    expected=f"the same in batches of 1 and of {batch}",
                    got="another one",
                    todo="Export it in evaluation mode, with a dynamic batch",
                )


def _manifest(
    request: Request,
    source: onnx.ModelProto,
    adopted: Adopted,
    described: tuple[EnvironmentInfo, Space, Space],
    played: Episodes,
) -> Manifest:
    environment, observation, action = described
    model = adopted.model
    producer = f"{source.producer_name} {source.producer_version}".strip()
    return Manifest(
        name=request.name,
        version=0,
        algorithm=request.algorithm,
        environment=environment,
        observation_space=observation,
        action_space=action,
        action_transform=ActionTransform(kind=adopted.transform),
        inputs=tensor_infos(model.graph.input),
        outputs=tensor_infos(model.graph.output),
        opset=max(entry.version for entry in model.opset_import),
        ir_version=model.ir_version,
        precisions={
            "float32": PrecisionInfo(file=_NAME, tolerance=golden.FLOAT32_TOLERANCE, measured_return=played.statistics)
        },
        files={},
        provenance=Provenance(
            run_id="",
            checkpoint_sha256=sha256_bytes(request.data),
            step=0,
            seed=request.seed,
            config={"adopted": {"outputs": list(request.outputs), "actions": request.scale}},
            versions={"paddleport": __version__, **({"producer": producer} if producer else {})},
            created=now(),
        ),
        not_checked=adopted.not_checked,
        observation_statistics=statistics_of(observation, played.observations),
    )
