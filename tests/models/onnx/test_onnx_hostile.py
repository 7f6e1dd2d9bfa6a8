"""A hostile file for every rule of the allow-list: each place that refuses is reached by a file of its own, and a place
that no file reaches fails the last test. What else a check must refuse is in test_onnx_check.py."""

from __future__ import annotations

import ast
import traceback
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, SparseTensorProto, TensorProto, helper, numpy_helper

from dpserve_verify.errors import ModelInvalid
from models.features.features import CategoricalFeature, NumericFeature
from models.forms.trees import TreeEnsemble
from models.onnx import check
from models.onnx.check import MAX_BYTES, MAX_CONSTANT, MAX_ELEMENTS, MAX_INTEGER, MAX_NODES, MAX_VALUES, check_graph
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel
from models.parts.trees import Leaf, Split

FEATURES = (NumericFeature("age", (18.0, 27.5, 65.0)), CategoricalFeature("work", ("Private", "State")))
SPLIT = Split("above", 0, 1, Split("is", 1, 0, Leaf(3), Leaf(-1)), Leaf(2))
GOOD = to_onnx(TreeEnsemble(FEATURES, "t", (0, 1), (SPLIT, SPLIT), 1, 0.4), {"a": "b"})


def value(name, kind=TensorProto.FLOAT, shape=(1,)):
    return helper.make_tensor_value_info(name, kind, list(shape))


def tree(model):
    return next(node for node in model.graph.node if node.op_type == "TreeEnsembleRegressor")


def of_tree(model, name):
    return next(each for each in tree(model).attribute if each.name == name)


def attribute(kind, **fields):
    """Adds an attribute to the trees."""
    return lambda model: tree(model).attribute.append(AttributeProto(name="more", type=kind, **fields))


def constant(**fields):
    """Adds a constant of one float, changed."""

    def change(model):
        found = numpy_helper.from_array(np.zeros(1, np.float32), "more")
        for name, content in fields.items():
            setattr(found, name, content)
        model.graph.initializer.append(found)

    return change


def added(field, item, count=1):
    """Adds so many of an item to a field of the graph."""
    return lambda model: getattr(model.graph, field).extend([item] * count)


def listed(name, place, content):
    """Another number in one of the trees' lists."""
    return lambda model: of_tree(model, name).ints.__setitem__(place, content)


def into(field):
    """Adds an empty message to a repeated field of the model or its graph."""
    return lambda model: (getattr(model, field) if hasattr(model, field) else getattr(model.graph, field)).add()


def opset(domain, version):
    def change(model):
        del model.opset_import[:]
        model.opset_import.extend([helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)])
        next(each for each in model.opset_import if each.domain == domain).version = version

    return change


def segment(model):
    constant()(model)
    model.graph.initializer[-1].segment.begin = 0


def outside(model):
    constant(data_location=TensorProto.EXTERNAL)(model)


def elsewhere(model):
    constant()(model)
    model.graph.initializer[-1].external_data.add(key="location", value="../weights")


def no_nodes(model):
    for name in ("nodes_treeids", "nodes_nodeids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_modes"):
        tree(model).attribute.remove(of_tree(model, name))


ONE = value("more")
LOOP = helper.make_node("Loop", [], ["y"])
HOSTILE = {
    "ir too old": lambda model: setattr(model, "ir_version", 2),
    "ir too new": lambda model: setattr(model, "ir_version", 14),
    "opset twice": lambda model: model.opset_import.append(helper.make_opsetid("ai.onnx", 17)),
    "opset too old": opset("", 12),
    "opset too new": opset("", 24),
    "opset of trees too new": opset("ai.onnx.ml", 5),
    "opset of others": lambda model: model.opset_import.append(helper.make_opsetid("com.microsoft", 1)),
    "functions": into("functions"),
    "training": into("training_info"),
    "configuration": into("configuration"),
    "sparse constants": into("sparse_initializer"),
    "quantization": into("quantization_annotation"),
    "many nodes": lambda model: model.graph.node.extend([model.graph.node[0]] * MAX_NODES),
    "many inputs": added("input", ONE, MAX_VALUES),
    "many outputs": added("output", ONE, MAX_VALUES),
    "many values": added("value_info", ONE, MAX_VALUES + 1),
    "many constants": added("initializer", numpy_helper.from_array(np.zeros(1, np.float32)), MAX_VALUES + 1),
    "sequence": added("input", helper.make_tensor_sequence_value_info("more", TensorProto.FLOAT, None)),
    "value of no type": added("value_info", onnx.ValueInfoProto(name="more")),
    "output of complex numbers": added("output", value("more", TensorProto.COMPLEX64)),
    "value of halves": added("value_info", value("more", TensorProto.FLOAT16)),
    "three axes": added("input", value("more", shape=(1, 1, 1))),
    "long axis": added("output", value("more", shape=(MAX_CONSTANT + 1,))),
    "negative axis": added("value_info", value("more", shape=(-1,))),
    "large product": added("value_info", value("more", shape=(1 << 9, 1 << 8))),
    "constant outside": outside,
    "constant elsewhere": elsewhere,
    "constant in segments": segment,
    "constant of bytes": constant(data_type=TensorProto.UINT8),
    "large constant": added("initializer", numpy_helper.from_array(np.zeros(MAX_CONSTANT + 1, np.float32), "more")),
    "loop": added("node", LOOP),
    "operator of others": added("node", helper.make_node("Cast", [], ["y"], domain="com.microsoft")),
    "operator of the other domain": added("node", helper.make_node("Cast", [], ["y"], domain="ai.onnx.ml")),
    "overload": lambda model: setattr(tree(model), "overload", "other"),
    "devices": lambda model: tree(model).device_configurations.add(),
    "attribute twice": lambda model: tree(model).attribute.append(of_tree(model, "n_targets")),
    "graph": attribute(AttributeProto.GRAPH, g=onnx.GraphProto()),
    "graphs": attribute(AttributeProto.GRAPHS, graphs=[onnx.GraphProto()]),
    "tensors": attribute(AttributeProto.TENSORS, tensors=[TensorProto()]),
    "sparse tensor": attribute(AttributeProto.SPARSE_TENSOR, sparse_tensor=SparseTensorProto()),
    "type": attribute(AttributeProto.TYPE_PROTO, tp=onnx.TypeProto()),
    "no type": attribute(AttributeProto.UNDEFINED),
    "reference": lambda model: setattr(of_tree(model, "n_targets"), "ref_attr_name", "n"),
    "large integer": attribute(AttributeProto.INT, i=MAX_INTEGER + 1),
    "large negative integer": attribute(AttributeProto.INT, i=-(1 << 62)),
    "many integers": attribute(AttributeProto.INTS, ints=[0] * (MAX_ELEMENTS + 1)),
    "many floats": attribute(AttributeProto.FLOATS, floats=[0] * (MAX_ELEMENTS + 1)),
    "many strings": attribute(AttributeProto.STRINGS, strings=[b""] * (MAX_ELEMENTS + 1)),
    "tensor outside": attribute(AttributeProto.TENSOR, t=TensorProto(data_type=1, data_location=1)),
    "tensor of bytes": attribute(AttributeProto.TENSOR, t=TensorProto(data_type=TensorProto.UINT8, dims=[1])),
    "large tensor": attribute(AttributeProto.TENSOR, t=TensorProto(data_type=1, dims=[MAX_ELEMENTS + 1])),
    "lists of two lengths": lambda model: of_tree(model, "nodes_modes").strings.append(b"LEAF"),
    "trees of no nodes": no_nodes,
    "mode of others": lambda model: of_tree(model, "nodes_modes").strings.__setitem__(0, b"BRANCH_MEMBER"),
    "first tree is no 0": lambda model: of_tree(model, "nodes_treeids").ints.__setitem__(slice(None), [1] * 10),
    "first node is no 0": listed("nodes_nodeids", 0, 1),
    "trees that skip": listed("nodes_treeids", -1, 7),
    "nodes that skip": listed("nodes_nodeids", 2, 9),
    "child before its parent": listed("nodes_truenodeids", 0, 0),
    "child outside": listed("nodes_falsenodeids", 0, 1000),
    "target outside": lambda model: listed("target_ids", 0, of_tree(model, "n_targets").i)(model),
    "target below 0": listed("target_ids", 0, -1),
    "input from nowhere": lambda model: model.graph.node[-1].input.__setitem__(0, "nowhere"),
}  # fmt: skip
RAW = {"too large": bytes(MAX_BYTES + 1), "no ONNX": b"\xff" * 100}


def hostile(name):
    if name in RAW:
        return RAW[name]
    model = onnx.load_from_string(GOOD)
    HOSTILE[name](model)
    return model.SerializeToString()


def refusing(raw):
    """Where in the check a file is refused: its line there."""
    with pytest.raises(ModelInvalid) as caught:
        check_graph(raw)
    frames = [frame for frame in traceback.extract_tb(caught.tb) if frame.filename == check.__file__]
    return next(frame.lineno for frame in reversed(frames) if frame.name != "_refuse")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RAW, *HOSTILE])
def test_refused(name):
    raw = hostile(name)
    refusing(raw)
    with pytest.raises(ModelInvalid):
        OnnxModel(raw)


def test_the_file_that_was_changed_is_good():
    check_graph(GOOD)
    assert OnnxModel(GOOD).inputs


@pytest.mark.slow
def test_every_rule_refuses_a_file_of_its_own():
    lines = set()
    for node in ast.walk(ast.parse(Path(check.__file__).read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_refuse":
            lines.add(node.lineno)
    reached = {refusing(hostile(name)) for name in (*RAW, *HOSTILE)}
    assert lines <= reached, f"no file is refused by lines {sorted(lines - reached)} of check.py"
    assert len(reached - lines) == 2  # what is no ONNX, and what ONNX's own checker finds


def graph(nodes, constants=()):
    """A graph of these nodes over a record's one number, small in bytes."""
    ends = [value("x", TensorProto.DOUBLE, ("N", 1))], [value("y", TensorProto.DOUBLE, ())]
    body = helper.make_graph(nodes, "g", *ends, [
        numpy_helper.from_array(array, name) for name, array in constants
    ])  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(body, opset_imports=opsets, ir_version=8).SerializeToString()


def chain(operator, count, **attributes):
    """Each twice the one before it, and the last one times the record."""
    names = ["a", *(f"t{number}" for number in range(count))]
    nodes = [helper.make_node(operator, [name, name], [made], **attributes) for name, made in pairwise(names)]
    return [*nodes, helper.make_node("Mul", ["x", names[-1]], ["y"])]


COLUMN, ROW = np.ones((8192, 1)), np.ones((1, 8192))
GROWING = {  # a few kB each, within the list of operators; the largest asked for 25 GB
    "constants multiplied": ([helper.make_node("Mul", ["a", "b"], ["c"]), helper.make_node("Mul", ["x", "c"], ["y"])],
                             [("a", COLUMN), ("b", ROW)]),
    "a constant joined with itself": (chain("Concat", 10, axis=1), [("a", ROW)]),
    "a record joined with itself": (
        [helper.make_node("Identity", ["x"], ["a"]), *chain("Concat", 25, axis=1)], []),
    "many of one record": (
        [helper.make_node("Mul", ["x", "a"], [f"w{n}" if n else "y"]) for n in range(300)], [("a", ROW)]),
    "records by records": (
        [helper.make_node("Squeeze", ["x", "i"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])],
        [("i", np.array([1]))]),
    "records by a column": ([helper.make_node("Mul", ["x", "a"], ["y"])], [("a", COLUMN)]),
    "records joined": ([helper.make_node("Concat", ["x", "x"], ["y"], axis=0)], []),
    "records joined, without an axis": (
        [helper.make_node("Squeeze", ["x", "i"], ["s"]), helper.make_node("Concat", ["s", "s"], ["y"], axis=0)],
        [("i", np.array([1]))]),
    "picked": (
        [helper.make_node("ArrayFeatureExtractor", ["x", f"i{n}"], [f"w{n}" if n else "y"], domain="ai.onnx.ml")
         for n in range(40)], [(f"i{n}", np.zeros(60_000, np.int64)) for n in range(40)]),
    "of all records": ([helper.make_node("ArgMax", ["x"], ["y"], axis=0)], []),
}  # fmt: skip


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_is_refused_before_it_is_computed(name):
    nodes, constants = GROWING[name]
    with pytest.raises(ModelInvalid) as caught:
        check_graph(graph(nodes, constants))
    assert caught.traceback[-1].path.name == "sizes.py"


def test_what_stays_small_is_not():
    nodes = [helper.make_node("Identity", ["x"], ["a"]), *chain("Concat", 10, axis=1)]
    check_graph(graph(nodes))
    check_graph(graph([helper.make_node("Mul", ["x", "a"], ["y"])], [("a", ROW)]))
