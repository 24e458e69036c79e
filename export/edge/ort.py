"""The target `ort`: a file for minimal builds of ONNX Runtime, what such a build needs, and a C++ example."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import numpy as np

from export.edge.program import C_TYPES
from export.edge.target import Request, Written
from export.edge.templates import filled
from paddleport.bundle import Bundle, replay_golden
from paddleport.errors import MissingExtraError
from paddleport.manifest import TensorInfo
from paddleport.session import Session
from paddleport.spaces import Array

MODEL = "policy.ort"
OPERATORS = "required_operators.config"


def write(request: Request) -> Written:
    """Write the policy in ONNX Runtime's own format; it has to give the golden vectors before it is written.

    Raises:
        ArtifactError: it does not give them.
        MissingExtraError: ONNX Runtime is not installed.
    """
    bundle, precision = request.bundle, request.precision
    with tempfile.TemporaryDirectory(prefix="paddleport-edge-") as folder:
        model, operators = _converted(bundle.onnx(precision), Path(folder))
    replay_golden(bundle, precision, Session(model))
    files = {
        MODEL: model,
        OPERATORS: operators.encode(),
        "main.cpp": _example(bundle, precision).encode(),
        "CMakeLists.txt": filled("ort_CMakeLists.txt", {}).encode(),
        "README.md": _readme(bundle, precision, model).encode(),
    }
    return Written(
        files, "cmake -S {out} -B {out}/build -DONNXRUNTIME=/path/to/onnxruntime && cmake --build {out}/build"
    )


def _converted(model: bytes, folder: Path) -> tuple[bytes, str]:
    """The policy as .ort, and the operators that it needs.

    ONNX Runtime's own converter makes a wrong int8 model on CPUs without VNNI. A session that saves what it runs does
    not; its optimizations stop before those that would fit this CPU alone.
    """
    try:
        import onnxruntime
        from onnxruntime.tools.ort_format_model import create_config_from_models
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "edge") from error

    target, operators = folder / MODEL, folder / OPERATORS
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.add_session_config_entry("session.x64quantprecision", "1")
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    logging.getLogger("ort_format_model.utils").setLevel(logging.WARNING)
    create_config_from_models([target], operators, True)
    lines = [line for line in operators.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return target.read_bytes(), "\n".join([f"# What {MODEL} needs of ONNX Runtime", *lines, ""])


def _example(bundle: Bundle, precision: str) -> str:
    """A program that acts on a golden observation and compares the action."""
    golden, manifest = bundle.golden(), bundle.manifest
    row = len(golden[f"{precision}.action"]) // 2
    inputs = "\n".join(_input(at, given, golden[given.name][row]) for at, given in enumerate(manifest.inputs))
    action = next(output for output in manifest.outputs if output.name == "action")
    expected = golden[f"{precision}.action"][row]
    words = {
        "@TITLE@": f"{manifest.name} version {manifest.version}, {precision}",
        "@INPUTS@": inputs,
        "@NAMES@": ", ".join(f'"{given.name}"' for given in manifest.inputs),
        "@POINTERS@": ", ".join(f"&value_{at}" for at, _ in enumerate(manifest.inputs)),
        "@TYPE@": C_TYPES[action.dtype],
        "@EXPECTED@": _braced(expected),
        "@TOLERANCE@": repr(bundle.precision(precision).tolerance),
    }
    return filled("ort_main.cpp", words)


def _input(at: int, given: TensorInfo, values: Array) -> str:
    kind, shape = C_TYPES[given.dtype], ", ".join(str(size) for size in (1, *given.shape))
    return (
        f"    std::vector<{kind}> data_{at} = {_braced(values)};\n"
        f"    const std::vector<std::int64_t> shape_{at} = {{{shape}}};\n"
        f"    Ort::Value value_{at} = Ort::Value::CreateTensor<{kind}>(\n"
        f"        memory, data_{at}.data(), data_{at}.size(),\n"
        f"        shape_{at}.data(), shape_{at}.size());"
    )


def _braced(values: Array) -> str:
    flat = np.asarray(values).reshape(-1)
    suffix = "f" if flat.dtype == np.float32 else ""
    return "{" + ", ".join(f"{value!r}{suffix}" for value in flat.tolist()) + "}"


def _readme(bundle: Bundle, precision: str, model: bytes) -> str:
    manifest = bundle.manifest
    return filled(
        "ort_README.md",
        {
            "@TITLE@": f"{manifest.name}, version {manifest.version}, {precision}",
            "@ENVIRONMENT@": manifest.environment.id,
            "@BYTES@": f"{len(model):,}",
            "@MODEL@": MODEL,
            "@OPERATORS@": OPERATORS,
        },
    )
