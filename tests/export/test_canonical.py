"""The plain form of a converted graph: structural names, few nodes, the same bytes each time."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.canonical import canonicalize, check, constants_of, tensor_infos
from export.convert import Converted
from paddleport.errors import GateError
from policies import KINDS, build, convert_here


def test_input_and_outputs_have_the_contracts_names_types_and_batch(examples):
    model = examples["box-asymmetric"].model
    described = [(info.name, info.dtype, info.shape) for info in tensor_infos(model.graph.output)]
    assert described == [
        ("action", "float32", (4,)),
        ("mean", "float32", (4,)),
        ("log_std", "float32", (4,)),
        ("value", "float32", ()),
    ]
    discrete = examples["discrete-from-5"].model
    assert [info.name for info in tensor_infos(discrete.graph.output)] == ["action", "logits", "value"]
    assert tensor_infos(discrete.graph.input)[0].dtype == "float64"
    for value in [*model.graph.input, *model.graph.output, *discrete.graph.input, *discrete.graph.output]:
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"


def test_each_linear_layer_is_one_gemm_named_by_its_path(example):
    gemms = {node.name: list(node.input[1:]) for node in example.model.graph.node if node.op_type == "Gemm"}
    depth = range(len(example.kind.hidden_sizes))
    trunks = [f"{side}_trunk.layers.{layer}" for side in ("policy", "value") for layer in depth]
    assert gemms == {path: [f"{path}.weight", f"{path}.bias"] for path in [*trunks, "policy_head", "value_head"]}
    kinds = {node.op_type for node in example.model.graph.node}
    assert not kinds & {"Constant", "Identity", "MatMul"}


def test_weights_are_initializers_under_their_structural_paths(example):
    constants = constants_of(example.model)
    for path, weight in example.weights.items():
        name = f"{path}.parameter" if path in example.names else path
        assert np.array_equal(constants[name], weight)


def test_old_runtimes_can_read_it(example):
    assert example.model.opset_import[0].version == 13
    assert example.model.ir_version <= 8
    onnx.checker.check_model(example.model, full_check=True)


def test_the_same_policy_gives_the_same_bytes_whatever_paddle_calls_its_parameters(tmp_path):
    kind = KINDS["box-asymmetric"]
    first, second = (
        convert_here(build(kind), kind.observation_space, tmp_path / name).SerializeToString(deterministic=True)
        for name in ("first", "second")
    )
    assert first == second


def test_a_graph_that_draws_random_numbers_is_refused():
    node = helper.make_node("RandomNormal", [], ["y"], shape=[2])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    with pytest.raises(GateError, match="RandomNormal"):
        check(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))


def test_outputs_that_are_the_input_a_constant_or_one_tensor_twice_stay_apart():
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones((1, 2), np.float32))),
        helper.make_node("Add", ["obs", "c"], ["sum"]),
        *(helper.make_node("Identity", [source], [f"fetch_{source}"]) for source in ("obs", "sum")),
        helper.make_node("Identity", ["fetch_sum"], ["again"]),
    ]
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2]) for n in ("fetch_obs", "fetch_sum", "again")
    ]
    given = helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["n", 2])
    raw = helper.make_model(
        helper.make_graph(nodes, "g", [given], values), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    model = canonicalize(Converted(raw.SerializeToString(), {}), ["obs"], ("action", "logits", "value"))
    results = onnx.reference.ReferenceEvaluator(model).run(None, {"obs": np.zeros((3, 2), np.float32)})
    assert [float(array.mean()) for array in results] == [0, 1, 1]


def test_a_damaged_model_is_refused(examples):
    data = examples["box"].model.SerializeToString()
    with pytest.raises(GateError, match="damaged"):
        canonicalize(Converted(data[: len(data) // 2], {}), ["obs"], examples["box"].names)
    with pytest.raises(GateError, match="signature"):
        canonicalize(Converted(b"", {}), ["obs"], examples["box"].names)
    with pytest.raises(GateError, match="signature"):
        canonicalize(Converted(data, {}), ["obs"], ("action",))
