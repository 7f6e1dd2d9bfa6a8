"""Parts that every exported ensemble is made of: constants, decision trees as one ONNX node, and texts as codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.system.lazy_import import later
from dpserve_verify.errors import ModelInvalid
from models.features.features import MISSING_TEXT

if TYPE_CHECKING:
    import onnx
    from onnx import NodeProto, TensorProto, helper, numpy_helper
else:
    onnx = later("onnx")
    helper = later("onnx.helper")
    numpy_helper = later("onnx.numpy_helper")

ML = "ai.onnx.ml"
EXACT = 1 << 24  # float32 holds every integer below this

Namer = Callable[[str], str]


@dataclass(frozen=True)
class Graph:
    """Nodes in order, and the constants they read."""

    nodes: tuple[NodeProto, ...] = ()
    constants: tuple[TensorProto, ...] = ()

    def __add__(self, other: Graph) -> Graph:
        return Graph((*self.nodes, *other.nodes), (*self.constants, *other.constants))


@dataclass(frozen=True)
class Inputs:
    """Where the numbers are found; keys are positions in `ensemble.features`.

    `numbers` is one (N, K) double tensor and `columns` says which feature is where in it (all K of them); `texts` names
    one (N, 1) string tensor per categorical feature.
    """

    numbers: str
    columns: Mapping[int, int]
    texts: Mapping[int, str]


@dataclass(frozen=True)
class Branch:
    """To `yes` where the column's value compares so with the threshold, else to `no`. NaN compares with nothing."""

    column: int
    mode: Literal["BRANCH_LEQ", "BRANCH_GT", "BRANCH_EQ"]
    threshold: float
    yes: Walk
    no: Walk


Weights = tuple[float, ...]  # of a leaf, one per output
Walk = Branch | Weights


@dataclass(frozen=True)
class _Node:
    mode: str
    column: int = 0
    threshold: float = 0.0
    yes: int = 0
    no: int = 0
    weights: Weights = ()


def regressor(
    walks: Sequence[Walk], source: str, target: str, owners: Sequence[int] | None = None, outputs: int = 0
) -> NodeProto:
    """Return the sum of decision trees over the columns of `source` (N, K), double: `target` (N, outputs), float,
    summed in double. With `owners`, the first output of tree i is output owners[i] of `outputs`, and what no tree owns
    is 0.
    """
    grown: list[list[_Node]] = [[] for _ in walks]
    for tree, walk in zip(grown, walks, strict=True):
        _grow(tree, walk)
    first = owners or [0] * len(walks)
    nodes = [(number, at, node) for number, tree in enumerate(grown) for at, node in enumerate(tree)]
    votes = [(tree, at, *vote) for tree, at, node in nodes for vote in enumerate(node.weights, first[tree])]
    return helper.make_node(
        "TreeEnsembleRegressor",
        [source],
        [target],
        domain=ML,
        n_targets=outputs or max(output for _, _, output, _ in votes) + 1,
        aggregate_function="SUM",
        post_transform="NONE",
        nodes_treeids=[tree for tree, _, _ in nodes],
        nodes_nodeids=[at for _, at, _ in nodes],
        nodes_modes=[node.mode for _, _, node in nodes],
        nodes_featureids=[node.column for _, _, node in nodes],
        nodes_values_as_tensor=tensor(np.array([node.threshold for _, _, node in nodes]), "thresholds"),
        nodes_truenodeids=[node.yes for _, _, node in nodes],
        nodes_falsenodeids=[node.no for _, _, node in nodes],
        nodes_missing_value_tracks_true=[0 for _ in nodes],
        target_treeids=[tree for tree, _, _, _ in votes],
        target_nodeids=[at for _, at, _, _ in votes],
        target_ids=[output for _, _, output, _ in votes],
        target_weights_as_tensor=tensor(np.array([weight for *_, weight in votes], np.float64), "votes"),
    )


def _grow(nodes: list[_Node], walk: Walk) -> None:
    """Append in preorder: children follow their parent, the first one at once."""
    at = len(nodes)
    nodes.append(_Node("LEAF", weights=walk if isinstance(walk, tuple) else ()))
    if isinstance(walk, Branch):
        _grow(nodes, walk.yes)
        no = len(nodes)
        _grow(nodes, walk.no)
        nodes[at] = _Node(walk.mode, walk.column, walk.threshold, at + 1, no)


def dictionary(values: Mapping[str, float], other: float, source: str, target: str) -> NodeProto:
    """Build a node that maps texts to numbers. Texts with the same number as `other` are left out; the missing one
    stays, so that the node is never empty.
    """
    kept = {text: number for text, number in values.items() if number != other or text == MISSING_TEXT}
    return helper.make_node(
        "LabelEncoder",
        [source],
        [target],
        domain=ML,
        keys_strings=list(kept),
        values_floats=list(kept.values()),
        default_float=other,
    )


Codes = Mapping[int, tuple[Mapping[str, float], float]]  # feature -> code of each text, code of all others


def coded(inputs: Inputs, codes: Codes, name: Namer) -> tuple[Graph, Inputs]:
    """Return texts turned into codes beside the numbers, so that trees can walk over all of it."""
    if not codes:
        return Graph(), inputs
    each, beside, all_codes, together = name("code"), name("codes_float"), name("codes"), name("coded")
    parts = {i: f"{each}_{i}" for i in codes}
    columns = {i: len(inputs.columns) + column for column, i in enumerate(codes)}
    nodes = (
        *(dictionary(*codes[i], inputs.texts[i], part) for i, part in parts.items()),
        helper.make_node("Concat", list(parts.values()), [beside], axis=1),
        helper.make_node("Cast", [beside], [all_codes], to=onnx.TensorProto.DOUBLE),
        helper.make_node("Concat", [*([inputs.numbers] if inputs.columns else []), all_codes], [together], axis=1),
    )
    return Graph(nodes), Inputs(together, {**inputs.columns, **columns}, {})


def check_exact(largest: int) -> None:
    """Raise ModelInvalid where float32 could round a score. `largest`: the size that no score can exceed."""
    if largest >= EXACT:
        raise ModelInvalid(f"largest score={largest}: must be below {EXACT}, or float32 would round it")


def tensor(values: NDArray[np.generic], name: str) -> TensorProto:
    """Return an array as a constant of the graph."""
    return numpy_helper.from_array(values, name)
