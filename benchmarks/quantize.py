"""float32 against int8, by every observer, by QAT, and by ONNX Runtime's own quantizer: size, return, latency.

    make bench-quantize          # every run in runs/
    .venv/bin/python -P benchmarks/quantize.py RUN_DIR … [--episodes 100] [--out benchmarks/results/quantize.md]

-P keeps this file's folder off the path, where its name would hide the stage's. Every policy plays the same episodes.
Latencies are of one call on one thread, each int8 file taking turns with float32.
Runs are read, not written: what QAT keeps while it trains goes to a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from train.runtime import load_paddle

load_paddle()

from export import paddle_child  # noqa: E402 - Paddle reads its settings when it is first imported
from export.canonical import canonicalize, constants_of  # noqa: E402
from export.convert import OPSET, read_converted  # noqa: E402
from export.half import half  # noqa: E402
from export.kernels import float_layers  # noqa: E402
from export.latency import latencies  # noqa: E402
from export.parity import run_onnx  # noqa: E402
from export.qdq import TENSORRT, quantized  # noqa: E402
from paddleport.checkpoint import Checkpoint, Run  # noqa: E402
from paddleport.session import Session  # noqa: E402
from paddleport.spaces import Leaves, batch_size, leaf_spaces, rows_of  # noqa: E402
from quantize import calibration, gate, pipeline, ptq, qat  # noqa: E402
from quantize.comparison import Reference, answers, play_stage  # noqa: E402
from quantize.fake import fake_quantized  # noqa: E402
from train.episodes import Episodes, play  # noqa: E402
from train.network import PolicyNetwork, network_of, state_arrays  # noqa: E402

CALIBRATION_EPISODES, SEED = 10, 7
PEAK_SIZE = 512
HEAD = ("policy", "bytes", "of float32", "agreement", "mean return", "95 %", "batch 1", "batch 64", "")


@dataclass(frozen=True)
class Case:
    """A run's policy, what it does in float32, and its graph."""

    name: str
    checkpoint: Checkpoint
    network: PolicyNetwork
    reference: Reference
    model: onnx.ModelProto
    observations: Leaves

    @property
    def bytes(self) -> int:
        """Size of the float32 file."""
        return len(self.model.SerializeToString())


def open_case(path: Path, episodes: int) -> Case:
    """Open a run, play its policy in Paddle, and convert it."""
    checkpoint = Run(path).checkpoint()
    state, network = checkpoint.state, network_of(checkpoint)
    reference = Reference.play(network, state.environment.id, episodes, SEED)
    keep = calibration.most_rows(state.observation_space)
    seed = SEED + pipeline.CALIBRATION_SEEDS
    shown = play_stage("Calibrating", network, state.environment.id, CALIBRATION_EPISODES, seed, keep=keep)
    with tempfile.TemporaryDirectory() as folder:
        paddle_child.save(network, state.observation_space, Path(folder))
        paddle_child.to_onnx(Path(folder), OPSET)
        converted = read_converted(Path(folder))
    model = canonicalize(converted, leaf_spaces(state.observation_space), network.output_names)
    name = f"{state.algorithm.upper()} on {state.environment.id}"
    return Case(name, checkpoint, network, reference, model, shown.observations)


def variants(case: Case, observers: Sequence[str]) -> Iterator[tuple[str, onnx.ModelProto, str]]:
    """Every int8 form of a policy: what to call it, the model, and a remark."""
    weights = state_arrays(case.network)
    for observer in observers:
        began = time.monotonic()
        layers = ptq.calibrate(case.network, case.observations, observer)
        model = quantized(case.model, layers, weights)
        yield f"int8, PTQ {observer}", model, f"{time.monotonic() - began:.1f} s; {fidelity(case, layers, model)}"
    began = time.monotonic()
    learnt = train_student(case)
    seconds = time.monotonic() - began
    model = quantized(case.model, learnt.layers, learnt.weights)
    own = network_of(case.checkpoint, learnt.weights)
    yield "int8, QAT", model, f"{seconds:.0f} s; {fidelity(case, learnt.layers, model, own)}"
    trt = quantized(case.model, learnt.layers, learnt.weights, form=TENSORRT)
    yield "int8-trt, QAT (run on the CPU)", trt, "for TensorRT; here ONNX Runtime emulates it"
    yield "float16 (run on the CPU)", half(case.model), "for GPUs; here ONNX Runtime casts"
    began = time.monotonic()
    yield "int8, ONNX Runtime's quantize_static", by_onnxruntime(case), f"{time.monotonic() - began:.1f} s"


def fidelity(case: Case, layers: dict, model: onnx.ModelProto, own: PolicyNetwork | None = None) -> str:
    """How the file agrees with fake-quantized Paddle, and how many of its layers would run on floats."""
    obs = case.reference.observations
    expected = answers(fake_quantized(own or case.network, layers), obs)["action"]
    got = run_onnx(Session(model.SerializeToString()), obs, ("action",))["action"]
    agreement = gate.action_agreement(case.network.action_space, expected, got)
    return f"as Paddle {agreement:.4f}, float layers {len(float_layers(model.SerializeToString()))}"


def train_student(case: Case) -> qat.Learnt:
    """QAT with the command's own settings, as `paddleport quantize --method qat` has them."""
    request = pipeline.Request(
        Path(), case.checkpoint, "qat", "absmax", CALIBRATION_EPISODES, len(case.reference.episodes.returns), SEED
    )
    layers = ptq.calibrate(case.network, case.observations, "absmax")
    settings = pipeline.qat_settings(request, case.reference, case.observations, "absmax")
    with tempfile.TemporaryDirectory() as folder:
        return qat.train(Path(folder), case.reference, layers, case.observations, settings, resume=False)


def by_onnxruntime(case: Case) -> onnx.ModelProto:
    """ONNX Runtime's static quantization of the same float file, shown the same observations: MinMax, a channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            rows = calibration.thinned(case.observations, 2048)
            self._batches = iter(
                [rows_of(rows, slice(start, start + 256)) for start in range(0, batch_size(rows), 256)]
            )

        def get_next(self) -> dict | None:
            return next(self._batches, None)

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        onnx.save(case.model, source)
        quantize_static(
            str(source),
            str(target),
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(target)


def measure(case: Case, model: onnx.ModelProto, episodes: int) -> tuple[float, Episodes, dict[str, float]]:
    """Agreement, episodes, and latency over float32's by batch size."""
    session, exact = Session(model.SerializeToString()), Session(case.model.SerializeToString())
    reference = case.reference
    got = run_onnx(session, reference.observations, ("action",))["action"]
    agreement = gate.action_agreement(case.network.action_space, reference.outputs["action"], got)
    played = play(lambda obs: session.run(obs, ("action",))[0], reference.env_id, episodes, SEED)
    times = latencies({"float32": exact, "other": session}, reference.observations)
    return agreement, played, {batch: times["other"][batch] / time_ for batch, time_ in times["float32"].items()}


def table(case: Case, episodes: int, observers: Sequence[str]) -> list[str]:
    """One policy's rows."""
    played = case.reference.episodes
    times = latencies({"float32": Session(case.model.SerializeToString())}, case.reference.observations)["float32"]
    cells = [f"{times['1']:.0f} µs", f"{times['64']:.0f} µs"]
    lines = [f"## {case.name}", "", line(HEAD), line(["---"] * len(HEAD))]
    lines.append(line(["float32", f"{case.bytes:,}", "1", "1", *returns(played), *cells, ""]))
    for name, model, remark in variants(case, observers):
        agreement, other, ratios = measure(case, model, episodes)
        size = len(model.SerializeToString())
        figures = [f"{size:,}", f"{size / case.bytes:.3f}", f"{agreement:.4f}", *returns(other)]
        lines.append(line([name, *figures, *(f"{ratio:.2f}×" for ratio in ratios.values()), remark]))
        print(lines[-1], flush=True)
    return [*lines, "", *kernel_rate(case), ""]


def returns(played: Episodes) -> list[str]:
    """Mean return and the half width of its 95 % interval."""
    statistics = played.statistics
    return [f"{statistics.mean:.2f}", f"±{gate.half_width(statistics.std, statistics.episodes) or 0:.2f}"]


def kernel_rate(case: Case) -> list[str]:
    """Multiplications a second of the float32 and the int8 file, beside those of large matrices on this processor."""
    layers = ptq.calibrate(case.network, case.observations, "absmax")
    model = quantized(case.model, layers, state_arrays(case.network))
    products = multiplications(case.model, rows_of(case.reference.observations, slice(1)))
    sessions = {"float32": Session(case.model.SerializeToString()), "int8": Session(model.SerializeToString())}
    measured = latencies(sessions, case.reference.observations)
    peaks = {name: peak(kind) for name, kind in (("float32", _float_product), ("int8", _int8_product))}
    lines = [f"{products / 1e6:.2f} million multiplications an observation. Billions a second, on one thread:", ""]
    lines += [line(["", "batch 1", "batch 64", f"{PEAK_SIZE}³ matrix product"]), line(["---"] * 4)]
    for name, each in measured.items():
        rates = [f"{products * int(batch) / us / 1e3:.1f}" for batch, us in each.items()]
        lines.append(line([name, *rates, f"{peaks[name]:.1f}"]))
    return lines


def multiplications(model: onnx.ModelProto, obs: Leaves) -> int:
    """Multiplications by weights for one observation: of each layer, weights × positions that it looks at."""
    constants, linear = constants_of(model), [n for n in model.graph.node if n.op_type in ("Gemm", "Conv", "MatMul")]
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    names = [node.output[0] for node in linear]
    probe.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    shapes = [array.shape for array in Session(probe.SerializeToString()).run(obs, names)]
    return sum(
        int(constants[node.input[1]].size) * int(np.prod(shape[2:])) for node, shape in zip(linear, shapes, strict=True)
    )


def peak(make: Callable[[], onnx.ModelProto]) -> float:
    """Billions of multiplications a second of a large matrix product on one thread: the best of several."""
    session = Session(make().SerializeToString())
    rows = {"x": np.random.default_rng(0).normal(size=(PEAK_SIZE, PEAK_SIZE)).astype(np.float32)}
    best = min(_seconds(session, rows) for _ in range(20))
    return PEAK_SIZE**3 / best / 1e9


def _seconds(session: Session, rows: Leaves) -> float:
    began = time.perf_counter()
    session.run(rows, None)
    return time.perf_counter() - began


def _float_product() -> onnx.ModelProto:
    weight = np.random.default_rng(1).normal(size=(PEAK_SIZE, PEAK_SIZE)).astype(np.float32)
    return _product([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight})


def _int8_product() -> onnx.ModelProto:
    numbers = np.random.default_rng(1).integers(-127, 128, (PEAK_SIZE, PEAK_SIZE)).astype(np.int8)
    constants = {
        "w": numbers,
        "scale": np.asarray(0.03, np.float32),
        "scales": np.full(PEAK_SIZE, 0.01, np.float32),
        "zero": np.asarray(128, np.uint8),
        "zeros": np.zeros(PEAK_SIZE, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["f"]),
        helper.make_node("DequantizeLinear", ["w", "scales", "zeros"], ["v"], axis=1),
        helper.make_node("Gemm", ["f", "v"], ["y"]),
    ]
    return _product(nodes, constants)


def _product(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [PEAK_SIZE, PEAK_SIZE]) for name in ("x", "y")]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "product", values[:1], values[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def processor() -> str:
    """The processor's name and what it has for int8."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [row.partition(":")[2].strip() for row in text.splitlines() if row.startswith("model name")]
    kinds = [kind for kind in ("avx2", "avx512f", "avx512_vnni", "avx_vnni") if f" {kind}" in text]
    return f"{names[0] if names else platform.processor()} ({', '.join(kinds)})"


def line(cells: list[str] | tuple[str, ...]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure the runs and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run directories, made by paddleport train")
    parser.add_argument("--episodes", type=int, default=100)
    names = list(ptq.OBSERVERS)
    parser.add_argument("--observers", nargs="*", choices=names, default=names, help="which of PaddleSlim's; all")
    parser.add_argument("--out", type=Path, default=Path("build") / "bench" / "quantize.md")
    chosen = parser.parse_args()
    began = time.monotonic()
    sections: list[str] = []
    for path in chosen.runs:
        sections += table(open_case(path, chosen.episodes), chosen.episodes, chosen.observers)
        minutes = (time.monotonic() - began) / 60
        write(chosen.out, [*head(chosen.runs, chosen.episodes, minutes), *sections])
    print(f"Written to {chosen.out}")


def head(runs: list[Path], episodes: int, minutes: float) -> list[str]:
    """What was run, and where."""
    command = f".venv/bin/python -P benchmarks/quantize.py {' '.join(map(str, runs))} --episodes {episodes}"
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    where = f"{minutes:.0f} minutes on {processor()}, one thread a session; load averages at the end {load}."
    return ["# int8 against float32", "", f"`{command}`", "", where, ""]


def write(path: Path, lines: list[str]) -> None:
    """Write the report, so far as it goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
