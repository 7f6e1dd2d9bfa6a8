"""What the graph check refuses, each made from a good model by one change; and that damage of any kind is refused."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dpserve_verify.errors import ModelInvalid
from models.features.features import CategoricalFeature, NumericFeature
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.onnx.check import MAX_BYTES, MAX_NODES, check_graph
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel
from models.parts.trees import Leaf, Split
from models.parts.votes import Vote

FEATURES = (NumericFeature("age", (18.0, 27.5, 65.0)), CategoricalFeature("work", ("Private", "State")))
VOTES = (Vote("above", 0, 1, 2), Vote("above", 0, 0, 1), Vote("is", 1, 0, 1))
GOOD = to_onnx(VotingEnsemble(FEATURES, "income", ("<=50K", ">50K"), VOTES, 0.4), {"a": "b"})


MANY = to_onnx(
    VotingEnsemble(FEATURES, "t", ("a", "b", "c"), (Vote("above", 0, 1, 2, 2), Vote("is", 1, 0, 1, 1)), 0.4), {"a": "b"}
)
SPLIT = Split("above", 0, 1, Split("is", 1, 0, Leaf(3), Leaf(-1)), Leaf(2))
TREES = to_onnx(TreeEnsemble(FEATURES, "t", (0, 1), (SPLIT,), 1, 0.4), {"a": "b"})


def one_node(operator, *, domain="", inputs=("x",), **attributes):
    """A model of one operator over a (N, 1) float input."""
    node = helper.make_node(operator, list(inputs), ["y"], domain=domain, **attributes)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 1]) for name in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def refused(model, match):
    raw = model if isinstance(model, bytes) else model.SerializeToString()
    with pytest.raises(ModelInvalid, match=match):
        check_graph(raw)
    with pytest.raises(ModelInvalid):
        OnnxModel(raw)


def changed(change, good=GOOD):
    model = onnx.load_from_string(good)
    change(model)
    return model


def tree(model):
    return next(node for node in model.graph.node if node.op_type == "TreeEnsembleRegressor")


def attribute(node, name):
    return next(each for each in node.attribute if each.name == name)


def test_the_good_models_pass():
    for good in (GOOD, MANY, TREES):
        check_graph(good)
    check_graph(one_node("Identity").SerializeToString())


def test_constant_of_shape_bomb():
    shape = numpy_helper.from_array(np.array([1 << 17, 1 << 17], np.int64), "shape")
    graph = helper.make_graph(
        [helper.make_node("ConstantOfShape", ["shape"], ["y"])],
        "bomb",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1 << 17, 1 << 17])],
        [shape],
    )
    bomb = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert len(bomb.SerializeToString()) < 200
    refused(bomb, "axes|ConstantOfShape")
    del bomb.graph.output[0].type.tensor_type.shape.dim[:]
    refused(bomb, "ConstantOfShape: not in the allow-list")


def branch():
    value = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])
    constant = helper.make_node("Constant", [], ["z"], value_floats=[1.0])
    return helper.make_graph([constant], "branch", [], [value])


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (one_node("If", then_branch=branch(), else_branch=branch()), "If: not in the allow-list"),
        (one_node("Loop", body=branch()), "Loop: not in the allow-list"),
        (one_node("Identity", body=branch()), "attribute type"),
        (one_node("Tile"), "Tile: not in"),
        (one_node("Expand"), "Expand: not in"),
        (one_node("Reshape"), "Reshape: not in"),
        (one_node("MyOp", domain="com.example"), r"com\.example\.MyOp: not in"),
        (one_node("FusedConv", domain="com.microsoft"), "not in the allow-list"),
        (one_node("LabelEncoder"), "not in the allow-list"),
        (one_node("Cast", to=1 << 40), "at most"),
    ],
)
def test_refused_operators(model, match):
    refused(model, match)


def external(model):
    constant = model.graph.initializer[0]
    constant.ClearField("raw_data")
    constant.data_location = TensorProto.EXTERNAL
    constant.external_data.add(key="location", value="/etc/passwd")


def external_attribute(model):
    tensor = attribute(tree(model), "nodes_values_as_tensor").t
    tensor.data_location = TensorProto.EXTERNAL


def location_only(model):
    model.graph.initializer[0].external_data.add(key="location", value="../weights")


@pytest.mark.parametrize("change", [external, external_attribute, location_only])
def test_refused_external_data(change):
    refused(changed(change), "outside the file")


def sparse(model):
    model.graph.sparse_initializer.add()


def functions(model):
    model.functions.add(name="f", domain="local")


def training(model):
    model.training_info.add()


def foreign_opset(model):
    model.opset_import.add(domain="com.microsoft", version=1)


def future_opset(model):
    model.opset_import[0].version = 99


def double_opset(model):
    model.opset_import.add(domain="ai.onnx", version=17)


def no_opset(model):
    del model.opset_import[:]


def old_ir(model):
    model.ir_version = 1


def sequence_input(model):
    value = helper.make_tensor_sequence_value_info("more", TensorProto.FLOAT, None)
    model.graph.input.append(value)


def deep_input(model):
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [1, 1, 1]))


def complex_input(model):
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.COMPLEX128, [1]))


def great_constant(model):
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1 << 16) + 1, np.float32), "great"))


def negative_constant(model):
    model.graph.initializer[0].dims[:] = [-1, -1]


def short_constant(model):
    model.graph.initializer[0].dims[:] = [100, 100]


def many_nodes(model):
    model.graph.node.extend([model.graph.node[0]] * MAX_NODES)


def many_targets(model):
    attribute(tree(model), "n_targets").i = 1 << 40


def no_targets(model):
    attribute(tree(model), "n_targets").i = 0


def target_outside(model):
    attribute(tree(model), "target_ids").ints[0] = attribute(tree(model), "n_targets").i


def circle(model):
    attribute(tree(model), "nodes_truenodeids").ints[0] = 0


def child_outside(model):
    attribute(tree(model), "nodes_falsenodeids").ints[0] = 1000


def shuffled(model):
    ids = attribute(tree(model), "nodes_nodeids").ints
    ids[0], ids[1] = ids[1], ids[0]


def short_list(model):
    del attribute(tree(model), "nodes_modes").strings[-1]


def foreign_mode(model):
    attribute(tree(model), "nodes_modes").strings[0] = b"BRANCH_NEQ"


def no_trees(model):
    tree(model).attribute.remove(attribute(tree(model), "nodes_treeids"))


def twice(model):
    tree(model).attribute.append(attribute(tree(model), "n_targets"))


def reference(model):
    attribute(tree(model), "n_targets").ref_attr_name = "n"


def loose_input(model):
    model.graph.node[-1].input[0] = "nowhere"


def same_output(model):
    model.graph.node[1].output[0] = model.graph.node[0].output[0]


CHANGES = [
    (sparse, "sparse_initializer"),
    (functions, "functions"),
    (training, "training_info"),
    (foreign_opset, "com.microsoft"),
    (future_opset, "99"),
    (double_opset, "each domain once"),
    (no_opset, "opset"),
    (old_ir, "ir_version"),
    (sequence_input, "only tensors"),
    (deep_input, "axes"),
    (complex_input, "element type"),
    (great_constant, "elements"),
    (negative_constant, "shape"),
    (short_constant, "model.onnx"),
    (many_nodes, "nodes"),
    (many_targets, "n_targets"),
    (no_targets, "n_targets"),
    (target_outside, "n_targets"),
    (circle, "follow"),
    (child_outside, "follow"),
    (shuffled, "in order"),
    (short_list, "length"),
    (foreign_mode, "nodes_modes"),
    (no_trees, "length"),
    (twice, "twice"),
    (reference, "attribute type"),
    (loose_input, "nowhere"),
    (same_output, "model.onnx"),
]


@pytest.mark.parametrize(("change", "match"), CHANGES, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("good", [GOOD, MANY, TREES], ids=["two", "many", "trees"])
def test_refused_changes(change, match, good):
    refused(changed(change, good), match)


def test_size_cap_comes_before_parsing():
    refused(bytes(MAX_BYTES + 1), "bytes; at most")


@pytest.mark.parametrize("raw", [b"", b"\0", b"not a model", os.urandom(4096)])
def test_other_bytes(raw):
    refused(raw, "model.onnx")


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_truncated(share):
    refused(GOOD[: int(len(GOOD) * share)], "model.onnx")


@given(st.binary(max_size=300))
def test_random_bytes_never_pass(raw):
    with pytest.raises(ModelInvalid):
        check_graph(raw)


@given(st.sampled_from([GOOD, MANY, TREES]), st.integers(0, 1 << 16), st.integers(0, 7))
def test_one_flipped_bit_is_refused_or_harmless(good, place, bit):
    """A flip may leave a valid model (another number; the certificate finds that), but nothing may crash or hang."""
    raw = bytearray(good)
    raw[place % len(raw)] ^= 1 << bit
    try:
        model = OnnxModel(bytes(raw))
    except ModelInvalid:
        return
    assert set(model.inputs.values()) <= {"tensor(double)", "tensor(string)", "tensor(float)", "tensor(int64)"}


@pytest.mark.parametrize(("good", "bad"), [(b'["<=50K"', b'\xdb"<=50K"'), (b"\x12\x01b", b"\x12\x01\xdb")])
def test_metadata_is_text(good, bad):
    assert GOOD.count(good) == 1
    with pytest.raises(ModelInvalid, match="UTF-8"):
        OnnxModel(GOOD.replace(good, bad))


def test_runtime_wants_our_outputs():
    with pytest.raises(ModelInvalid, match="classes"):
        OnnxModel(one_node("Identity").SerializeToString())
    model = one_node("Identity")
    helper.set_model_props(model, {"classes": '["a", "b"]'})
    with pytest.raises(ModelInvalid, match="outputs"):
        OnnxModel(model.SerializeToString())


@pytest.mark.parametrize("classes", ["", "{", "3", '{"a": 1}', "[null]", "[1.5]"])
def test_runtime_wants_plain_classes(classes):
    def change(model):
        helper.set_model_props(model, {"classes": classes})

    with pytest.raises(ModelInvalid, match="classes"):
        OnnxModel(changed(change).SerializeToString())
