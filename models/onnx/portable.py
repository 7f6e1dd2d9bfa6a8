"""An exported model in plain ONNX operators, for runtimes that know no trees and no texts (tract, `onnx.reference`).

Same inputs and outputs, but that texts are whole numbers: an input of a category is the place of its text among the
feature's `values`, one more for every other text, two more for a missing one; a label that is a text is its place among
the classes. `codes_of` says which, for a program that asks.

A tree ensemble becomes a walk of all trees at a time, one level a step: each node asks whether its value lies between
two bounds, which NaN never does, and leaves lead to themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from math import inf, nextafter
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dpserve_verify.errors import ModelInvalid
from models.features.features import CategoricalFeature
from models.onnx.export import LABEL, input_name
from models.onnx.nodes import ML, Graph, tensor
from models.parts.released import Released

Attributes = Mapping[str, Any]
FILES = ("portable.onnx", "portable.json")
SOURCE = "portable_of"  # key of the metadata, and of portable.json: the sha256 of model.onnx
ROOT = "of"  # part of the names of what stands for a node: <its output>/of/<part>


def to_portable(ensemble: Released, model_bytes: bytes) -> bytes:
    """Return what `to_onnx` has made of this ensemble, in plain operators; the same bytes for the same model. Raises
    ModelInvalid where a node of it is unknown here.
    """
    model = ModelProto.FromString(model_bytes)
    graph = model.graph
    sizes = {input_name(f.name): f for f in ensemble.features if isinstance(f, CategoricalFeature)}
    for value in graph.input:
        if value.name in sizes:
            value.type.tensor_type.elem_type = TensorProto.INT64
    for value in graph.output:
        if value.name == LABEL[0]:
            value.type.tensor_type.elem_type = TensorProto.INT64
    nodes: list[NodeProto] = []
    constants = [_without_texts(constant, ensemble.classes) for constant in graph.initializer]
    for node in graph.node:
        plain = _plain(node, sizes, ensemble.classes)
        nodes += plain.nodes
        constants += plain.constants
    graph.ClearField("node")
    graph.ClearField("initializer")
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
    opsets = [opset for opset in model.opset_import if opset.domain != ML]
    model.ClearField("opset_import")
    model.opset_import.extend(opsets)
    known = {each.key: each.value for each in model.metadata_props}
    known[SOURCE] = hashlib.sha256(model_bytes).hexdigest()
    helper.set_model_props(model, dict(sorted(known.items())))
    raw: bytes = model.SerializeToString(deterministic=True)
    onnx.checker.check_model(raw, full_check=True)
    return raw


def portable_files(ensemble: Released, model_bytes: bytes) -> dict[str, bytes]:
    """Return the files of a portable export by their names: the graph, and what its numbers mean. They are no part of
    what is certified; the graph names the model that it was made of, and anybody can make it again.
    """
    codes = {**codes_of(ensemble), SOURCE: hashlib.sha256(model_bytes).hexdigest()}
    text = json.dumps(codes, indent=1, ensure_ascii=False) + "\n"
    return dict(zip(FILES, (to_portable(ensemble, model_bytes), text.encode()), strict=True))


def codes_of(ensemble: Released) -> dict[str, Any]:
    """Return what the numbers of a portable model mean: for each input its name, and of a category the code of each
    text, of all others, and of a missing one; and the classes in the order of the labels.
    """
    inputs = []
    for feature in ensemble.features:
        body: dict[str, Any] = {"input": input_name(feature.name), "feature": feature.to_json()}
        if isinstance(feature, CategoricalFeature):
            codes = {value: code for code, value in enumerate(feature.values)}
            body["codes"] = {"texts": codes, "other": len(codes), "missing": len(codes) + 1}
        inputs.append(body)
    return {"inputs": inputs, "target": ensemble.target, "classes": list(ensemble.classes)}


def _plain(node: NodeProto, texts: Mapping[str, CategoricalFeature], classes: Sequence[Any]) -> Graph:
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    [output] = node.output
    if node.domain != ML:
        return Graph((node,))
    if node.op_type == "TreeEnsembleRegressor":
        return _walks(attributes, node.input[0], output)
    if node.op_type == "ArrayFeatureExtractor":
        return Graph((helper.make_node("Gather", node.input, [output], axis=1),))
    if node.op_type == "LabelEncoder" and "keys_strings" in attributes:
        feature = texts[node.input[0]]
        known = dict(zip(attributes["keys_strings"], attributes["values_floats"], strict=True))
        other = attributes["default_float"]
        numbers = [*(known.get(value.encode(), other) for value in feature.values), other, known.get(b"", other)]
        return _look_up(np.array(numbers, np.float32), node.input[0], output)
    if node.op_type == "LabelEncoder" and "keys_int64s" in attributes:
        labels = range(len(classes)) if isinstance(classes[0], str) else classes  # texts as their places
        return _look_up(np.array(labels, np.int64), node.input[0], output)
    raise ModelInvalid(f"model.onnx: {node.op_type} has no plain form")


def _look_up(table: NDArray[Any], source: str, output: str) -> Graph:
    """Build the nodes that replace each number by its entry in a table."""
    entries = f"{output}/{ROOT}/table"
    return Graph((helper.make_node("Gather", [entries, source], [output]),), (tensor(table, entries),))


def _without_texts(constant: TensorProto, classes: Sequence[Any]) -> TensorProto:
    """Return a constant, which is a whole number where it was the text of a class."""
    if constant.data_type != TensorProto.STRING:
        return constant
    text = numpy_helper.to_array(constant).item()
    text = text.decode() if isinstance(text, bytes) else text
    return tensor(np.array(list(classes).index(text), np.int64), constant.name)


# ---- trees


def _walks(trees: Attributes, source: str, output: str) -> Graph:
    """Build the nodes that sum decision trees in double: `output` (N, targets), float."""
    table = _Table(trees)
    nodes, constants = list[NodeProto](), dict[str, NDArray[Any]]()

    def name(part: str) -> str:
        return f"{output}/{ROOT}/{part}"

    def keep(part: str, values: NDArray[Any]) -> str:
        constants[name(part)] = values
        return name(part)

    def add(operator: str, inputs: Sequence[str], part: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [name(part)], **attributes))
        return name(part)

    fields = {part: keep(part, values) for part, values in table.fields.items() if table.depth > 1}
    at_roots = {part: keep(f"root_{part}", values[table.roots]) for part, values in table.fields.items()}
    at = ""
    for level in range(table.depth or 1):
        if not at:  # every record is at the roots
            here, values = at_roots, add("Gather", [source, at_roots["column"]], "value_0", axis=1)
        else:
            here = {part: add("Gather", [fields[part], at], f"{part}_{level}") for part in fields}
            values = add("GatherElements", [source, here["column"]], f"value_{level}", axis=1)
        above = add("GreaterOrEqual", [values, here["low"]], f"above_{level}")
        below = add("LessOrEqual", [values, here["high"]], f"below_{level}")
        inside = add("And", [above, below], f"inside_{level}")
        at = add("Where", [inside, here["yes"], here["no"]], f"at_{level}")
    weights = keep("weights", table.weights)
    leaves = add("Gather", [weights, at], "leaves")
    if table.owners is None:  # (N, trees, targets)
        summed = add("ReduceSum", [leaves, keep("axis", np.array([1], np.int64))], "summed", keepdims=0)
    else:  # (N, trees)
        summed = add("MatMul", [leaves, keep("owners", table.owners)], "summed")
    nodes.append(helper.make_node("Cast", [summed], [output], to=TensorProto.FLOAT))
    return Graph(tuple(nodes), tuple(tensor(values, part) for part, values in constants.items()))


class _Table:
    """The nodes of all trees in one table. A node leads to `yes` where `low` <= its column <= `high`, else to `no`."""

    def __init__(self, trees: Attributes) -> None:
        ids = np.array(trees["nodes_treeids"])
        self.roots = np.flatnonzero(np.array(trees["nodes_nodeids"]) == 0)
        first = self.roots[ids]
        modes, count = trees["nodes_modes"], len(ids)
        thresholds = numpy_helper.to_array(trees["nodes_values_as_tensor"])
        bounds = np.array([_bounds(mode, float(at)) for mode, at in zip(modes, thresholds, strict=True)])
        is_leaf = np.array([mode == b"LEAF" for mode in modes])
        leads = {part: np.array(trees[f"nodes_{part}nodeids"]) + first for part in ("true", "false")}
        self.fields = {
            "column": np.array(trees["nodes_featureids"], np.int64),
            "low": bounds[:, 0].copy(),
            "high": bounds[:, 1].copy(),
            "yes": np.where(is_leaf, np.arange(count), leads["true"]).astype(np.int64),
            "no": np.where(is_leaf, np.arange(count), leads["false"]).astype(np.int64),
        }
        self.depth = _depth(self.fields["yes"], self.fields["no"], self.roots)
        targets = np.array(trees["target_ids"])
        votes = numpy_helper.to_array(trees["target_weights_as_tensor"])
        places = first[np.searchsorted(ids, np.array(trees["target_treeids"]))] + np.array(trees["target_nodeids"])
        whole = np.zeros((count, trees["n_targets"]))
        whole[places, targets] = votes
        owner = dict(zip(ids[places].tolist(), targets.tolist(), strict=True))
        alone = len(set(zip(ids[places].tolist(), targets.tolist(), strict=True))) == len(owner)
        self.weights = whole.sum(axis=1) if alone else whole
        self.owners = None if not alone else np.zeros((len(self.roots), trees["n_targets"]))
        if self.owners is not None:
            self.owners[list(owner), list(owner.values())] = 1


def _bounds(mode: bytes, threshold: float) -> tuple[float, float]:
    bounds = {
        b"BRANCH_LEQ": (-inf, threshold),
        b"BRANCH_GT": (nextafter(threshold, inf), inf),
        b"BRANCH_EQ": (threshold, threshold),
        b"LEAF": (0.0, 0.0),
    }
    return bounds[mode]


def _depth(yes: NDArray[np.int64], no: NDArray[np.int64], roots: NDArray[np.int64]) -> int:
    """Return how many steps lead to the deepest leaf."""
    depth, at = 0, np.unique(roots)
    while not (yes[at] == at).all():
        depth, at = depth + 1, np.unique(np.concatenate([yes[at], no[at]]))
    return depth
