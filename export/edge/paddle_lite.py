"""The target `paddle-lite`: Paddle's inference model, and the commands that make it one for Paddle Lite.

Paddle Lite's optimizer runs on no Python that Paddle 3 supports, so the last step is one for another machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from export.edge.target import Request, Written
from export.edge.templates import filled
from paddleport.bundle import Bundle, row_error
from paddleport.checkpoint import Checkpoint, Run
from paddleport.errors import ArtifactError, GateError, UsageError
from paddleport.spaces import Array
from train.runtime import load_paddle

_STEM = "model"
_FILES = ("model.json", "model.pdiparams")
_NOTE = "Paddle Lite itself was not run: README.md says what to do on a machine that has it."


def write(request: Request) -> Written:
    """Write the policy as Paddle's inference model, with the ONNX file beside it.

    Raises:
        UsageError: the run was not named, or the precision is not float32.
        ArtifactError: the run is not the one that the bundle was exported from.
        GateError: Paddle does not give the golden vectors when it loads what was written.
    """
    if request.precision != "float32":
        expected = "--precision float32; Paddle Lite quantizes by itself"
        raise UsageError("The target paddle-lite has no such precision", expected=expected, got=request.precision)
    checkpoint = _source(request)
    load_paddle()
    from export.paddle_child import save
    from train.network import network_of

    bundle = request.bundle
    with tempfile.TemporaryDirectory(prefix="paddleport-edge-") as name:
        folder = Path(name)
        network = network_of(checkpoint, trust_code=request.trust_code)
        save(network, checkpoint.state.observation_space, folder)
        _check(bundle, folder, network.output_names)
        files = {file: (folder / file).read_bytes() for file in _FILES}
    files["policy.onnx"] = bundle.onnx()
    files["README.md"] = _readme(bundle).encode()
    return Written(files, "cat {out}/README.md", notes=(_NOTE,))


def _source(request: Request) -> Checkpoint:
    """The checkpoint that the bundle was exported from."""
    manifest = request.bundle.manifest
    wanted = manifest.provenance.checkpoint_sha256
    if request.run_dir is None:
        raise UsageError(
            "The target paddle-lite writes Paddle's own weights, which a bundle does not hold",
            expected=f"--run-dir, the run {manifest.provenance.run_id}",
        )
    checkpoint = Run(request.run_dir).checkpoint(request.checkpoint or None)
    if checkpoint.sha256 != wanted:
        raise ArtifactError(
            "This checkpoint is not the one that the bundle was exported from",
            expected=f"{wanted[:12]}, step {manifest.provenance.step}",
            got=f"{checkpoint.sha256[:12]}, step {checkpoint.state.step}",
            todo=f"Add --checkpoint step-{manifest.provenance.step}",
        )
    return checkpoint


def _check(bundle: Bundle, folder: Path, outputs: tuple[str, ...]) -> None:
    """Load what was written, as a program on another machine would, and ask it the golden vectors."""
    golden = bundle.golden()
    answers = dict(zip(outputs, run_written(folder / _STEM, golden), strict=True))
    tolerance = bundle.precision("float32").tolerance
    for name, got in answers.items():
        error = row_error(got, golden[f"float32.{name}"])
        if got.dtype.kind == "f" and not error <= tolerance:
            expected = f"at most {tolerance:.3g}"
            raise GateError(f"Paddle's inference model gives another {name!r}", expected=expected, got=f"{error:.3g}")


def run_written(stem: Path, feeds: dict[str, Array]) -> list[Array]:
    """Evaluate an inference model in Paddle, with the arrays among `feeds` that it asks for."""
    import paddle

    paddle.enable_static()
    try:
        executor: Any = paddle.static.Executor(paddle.CPUPlace())
        with paddle.static.scope_guard(paddle.static.Scope()):
            program, names, fetched = paddle.static.load_inference_model(str(stem), executor)
            results: list[Array] = executor.run(program, {name: feeds[name] for name in names}, fetched)
    finally:
        paddle.disable_static()
    return results


def _readme(bundle: Bundle) -> str:
    import paddle

    manifest = bundle.manifest
    words = {"@TITLE@": f"{manifest.name}, version {manifest.version}", "@PADDLE@": paddle.__version__}
    return filled("paddle_lite_README.md", words | {"@ENVIRONMENT@": manifest.environment.id})
