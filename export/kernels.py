"""What ONNX Runtime makes of an int8 file: whether its layers run on integers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

_FLOAT_LINEAR = frozenset({"Gemm", "FusedGemm", "MatMul", "FusedMatMul", "Conv", "FusedConv"})


def optimized(model: bytes) -> onnx.ModelProto:
    """The graph that ONNX Runtime runs on this CPU, after its own optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "optimized.onnx"
        options.optimized_model_filepath = str(target)
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return onnx.load(target)


def float_layers(model: bytes) -> list[str]:
    """Linear layers that ONNX Runtime would still run on floats behind DequantizeLinear; none is what int8 is for."""
    graph = optimized(model).graph
    dequantized = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    found = [node for node in graph.node if node.op_type in _FLOAT_LINEAR and dequantized & set(node.input)]
    return [node.name.removeprefix("fused ") for node in found]
