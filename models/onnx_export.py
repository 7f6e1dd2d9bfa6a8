"""A voting ensemble as ONNX: raw records in, preprocessing inside the graph.

Inputs, one per feature, each (N, 1): numeric and boolean as double (NaN is missing; booleans 0 or 1), categorical as
string ("" is missing). Outputs: `label` (N,), string or int64 as the classes are, and `probabilities` (N, 2), float.

    score = constant + TreeEnsembleRegressor(numbers) + LabelEncoder(text) + ...       (integers, exact in float32)
    probabilities = Sigmoid([-link, link] * score)          label = classes[1] where score > 0, else classes[0]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from accountant.errors import ModelInvalid
from models.ensemble import VotingEnsemble
from models.features import MISSING_TEXT, CategoricalFeature, Feature, NumericFeature
from models.onnx_check import check_graph

ML = "ai.onnx.ml"
OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
EXACT = 1 << 24  # float32 holds every integer below this
CLASSES = "classes"

Table = NDArray[np.int64]


@dataclass(frozen=True)
class VoteGraph:
    """Nodes in order, and the constants they read."""

    nodes: tuple[NodeProto, ...]
    constants: tuple[TensorProto, ...]


@dataclass(frozen=True)
class Inputs:
    """Where the votes find the raw values; keys are positions in `ensemble.features`.

    `numbers` is one (N, K) double tensor and `columns` says which feature is where in it; `texts` names one (N, 1)
    string tensor per categorical feature.
    """

    numbers: str
    columns: Mapping[int, int]
    texts: Mapping[int, str]


def to_onnx(ensemble: VotingEnsemble, metadata: Mapping[str, str]) -> bytes:
    """Deterministic bytes: the same ensemble and metadata give the same file.

    `metadata` becomes metadata_props, beside `classes` (a JSON list), which is written here. Raises ModelInvalid when
    scores could leave what float32 holds exactly.
    """
    if CLASSES in metadata:
        raise ModelInvalid(f"metadata.{CLASSES}: is written by the export")
    numbers = [i for i, feature in enumerate(ensemble.features) if not isinstance(feature, CategoricalFeature)]
    texts = {i: feature.name for i, feature in enumerate(ensemble.features) if i not in numbers}
    used = [i for i in used_features(ensemble) if i in numbers]
    inputs = Inputs("/numbers", {i: column for column, i in enumerate(used)}, texts)
    graph = vote_graph(ensemble, inputs, lambda name: f"/{name}", ("label", "probabilities"))
    names = [ensemble.features[i].name for i in used]
    together = [helper.make_node("Concat", names, ["/numbers"], axis=1)] if names else []
    body = helper.make_graph(
        [*together, *graph.nodes], "votes", [_input(f) for f in ensemble.features], _outputs(ensemble), graph.constants
    )
    model = _model(body, {**metadata, CLASSES: json.dumps(ensemble.classes)})
    raw: bytes = model.SerializeToString(deterministic=True)
    check_graph(raw)
    return raw


def used_features(ensemble: VotingEnsemble) -> list[int]:
    """Positions of the features that move the score (the first one when none does, so that N is known to the graph)."""
    tables, _ = ensemble.tables()
    return [i for i, table in enumerate(tables) if table.any()] or [0]


def vote_graph(
    ensemble: VotingEnsemble, inputs: Inputs, name: Callable[[str], str], outputs: tuple[str, str]
) -> VoteGraph:
    """The votes as nodes, from raw values to `outputs` = (label, probabilities). `name` makes intermediates unique."""
    tables, constant = ensemble.tables()
    _check_exact(tables, constant)
    used = used_features(ensemble)
    parts = [name("constant")]
    nodes = []
    trees = [(inputs.columns[i], steps(ensemble.features[i], tables[i])) for i in used if i in inputs.columns]
    if trees:
        parts.append(name("number_votes"))
        nodes.append(_forest(trees, inputs.numbers, parts[-1]))
    for i in used:
        feature = ensemble.features[i]
        if isinstance(feature, CategoricalFeature):
            parts.append(name(f"votes_{i}"))
            nodes.append(_dictionary(feature, tables[i], inputs.texts[i], parts[-1]))
    score = name("score")
    nodes.append(helper.make_node("Sum", parts, [score]))
    tail = _answers(ensemble, score, name, outputs)
    return VoteGraph((*nodes, *tail.nodes), (_tensor(np.full((1, 1), constant, np.float32), parts[0]), *tail.constants))


def _answers(ensemble: VotingEnsemble, score: str, name: Callable[[str], str], outputs: tuple[str, str]) -> VoteGraph:
    """Label and probabilities from the score (N, 1)."""
    link, zero, axis, first, second = map(name, ("link", "zero", "axis", "class_0", "class_1"))
    scaled, positive, chosen = map(name, ("scaled", "positive", "chosen"))
    label, probabilities = outputs
    nodes = (
        helper.make_node("Mul", [score, link], [scaled]),
        helper.make_node("Sigmoid", [scaled], [probabilities]),
        helper.make_node("Greater", [score, zero], [positive]),
        helper.make_node("Squeeze", [positive, axis], [chosen]),
        helper.make_node("Where", [chosen, second, first], [label]),
    )
    constants = (
        _tensor(np.array([[-ensemble.link, ensemble.link]], np.float32), link),
        _tensor(np.zeros((), np.float32), zero),
        _tensor(np.array([1], np.int64), axis),
        *(_class(value, at) for value, at in zip(ensemble.classes, (first, second), strict=True)),
    )
    return VoteGraph(nodes, constants)


@dataclass(frozen=True)
class Steps:
    """Votes as a step function of a number: `values[number of edges < v]`, or `missing` for NaN."""

    edges: tuple[float, ...]
    values: tuple[int, ...]
    missing: int


def steps(feature: Feature, table: Table) -> Steps:
    """The table of a numeric or boolean feature, neighbouring bins of equal votes merged."""
    edges = feature.edges if isinstance(feature, NumericFeature) else (0.5,)
    *votes, missing = (int(vote) for vote in table)
    kept = [j for j, (left, right) in enumerate(pairwise(votes)) if left != right]
    return Steps(tuple(edges[j] for j in kept), (votes[0], *(votes[j + 1] for j in kept)), missing)


@dataclass(frozen=True)
class _Node:
    tree: int
    node: int
    column: int = 0
    threshold: float = 0.0
    right: int = 0
    weight: int | None = None  # of a leaf

    @property
    def mode(self) -> str:
        return "BRANCH_LEQ" if self.weight is None else "LEAF"


def _grow(nodes: list[_Node], tree: int, column: int, edges: tuple[float, ...], values: tuple[int, ...]) -> None:
    """Append to one tree's `nodes`, in preorder, a balanced tree over the sorted `edges`: a left child (value <= edge)
    follows its parent."""
    at, middle = len(nodes), len(edges) // 2
    if not edges:
        nodes.append(_Node(tree, at, weight=values[0]))
        return
    nodes.append(_Node(tree, at))
    _grow(nodes, tree, column, edges[:middle], values[: middle + 1])
    nodes[at] = _Node(tree, at, column, edges[middle], right=len(nodes))
    _grow(nodes, tree, column, edges[middle + 1 :], values[middle + 1 :])


def _forest(trees: list[tuple[int, Steps]], source: str, target: str) -> NodeProto:
    """One tree per column, thresholds and votes in double.

    Every tree ends its edges with infinity, which only NaN is not below: missing values reach a leaf of their own.
    """
    nodes: list[_Node] = []
    for tree, (column, shape) in enumerate(trees):
        grown: list[_Node] = []
        _grow(grown, tree, column, (*shape.edges, inf), (*shape.values, shape.missing))
        nodes += grown
    leaves = [node for node in nodes if node.weight is not None]
    return helper.make_node(
        "TreeEnsembleRegressor",
        [source],
        [target],
        domain=ML,
        n_targets=1,
        aggregate_function="SUM",
        post_transform="NONE",
        nodes_treeids=[node.tree for node in nodes],
        nodes_nodeids=[node.node for node in nodes],
        nodes_modes=[node.mode for node in nodes],
        nodes_featureids=[node.column for node in nodes],
        nodes_values_as_tensor=_tensor(np.array([node.threshold for node in nodes]), "thresholds"),
        nodes_truenodeids=[0 if node.weight is not None else node.node + 1 for node in nodes],
        nodes_falsenodeids=[node.right for node in nodes],
        nodes_missing_value_tracks_true=[0 for _ in nodes],
        target_treeids=[leaf.tree for leaf in leaves],
        target_nodeids=[leaf.node for leaf in leaves],
        target_ids=[0 for _ in leaves],
        target_weights_as_tensor=_tensor(np.array([leaf.weight for leaf in leaves], np.float64), "votes"),
    )


def _dictionary(feature: CategoricalFeature, table: Table, source: str, target: str) -> NodeProto:
    """Text -> votes. Categories that vote as `other` does are left out; the missing one stays, so it is never empty."""
    *votes, other, missing = (float(vote) for vote in table)
    kept = [(value, vote) for value, vote in zip(feature.values, votes, strict=True) if vote != other]
    return helper.make_node(
        "LabelEncoder",
        [source],
        [target],
        domain=ML,
        keys_strings=[*(value for value, _ in kept), MISSING_TEXT],
        values_floats=[*(vote for _, vote in kept), missing],
        default_float=other,
    )


def _check_exact(tables: list[Table], constant: int) -> None:
    largest = abs(constant) + sum(int(np.abs(table).max()) for table in tables)
    if largest >= EXACT:
        raise ModelInvalid(f"largest score={largest}: must be below {EXACT}, or float32 would round it")


def _tensor(values: NDArray[np.generic], name: str) -> TensorProto:
    return numpy_helper.from_array(values, name)


def _class(value: str | int, name: str) -> TensorProto:
    return _tensor(np.array(value, dtype=object if isinstance(value, str) else np.int64), name)


def _input(feature: Feature) -> ValueInfoProto:
    kind = TensorProto.STRING if isinstance(feature, CategoricalFeature) else TensorProto.DOUBLE
    return helper.make_tensor_value_info(feature.name, kind, ["N", 1])


def _outputs(ensemble: VotingEnsemble) -> list[ValueInfoProto]:
    kind = TensorProto.STRING if isinstance(ensemble.classes[0], str) else TensorProto.INT64
    return [
        helper.make_tensor_value_info("label", kind, ["N"]),
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 2]),
    ]


def _model(graph: GraphProto, metadata: Mapping[str, str]) -> ModelProto:
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="dpserve")
    helper.set_model_props(model, dict(sorted(metadata.items())))
    return model
