"""A tree ensemble's score as ONNX nodes: constant + TreeEnsembleRegressor(numbers, codes of texts)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from accountant.system.lazy_import import later
from models.features.features import MISSING_TEXT, CategoricalFeature, Feature, NumericFeature
from models.onnx.nodes import Branch, Graph, Inputs, Namer, Walk, check_exact, coded, regressor, tensor
from models.parts.trees import Leaf, Split, Tree, heaviest, splits

if TYPE_CHECKING:
    from onnx import helper
else:
    helper = later("onnx.helper")


def tree_scores(
    trees: Sequence[Tree], constant: int, features: Sequence[Feature], inputs: Inputs, name: Namer, target: str
) -> Graph:
    """Build the nodes that turn raw values into scores: `target` (N, 1)."""
    grown, always = merged(trees), name("constant")
    check_exact(abs(constant) + sum(map(heaviest, grown)))
    used = sorted({split.feature for tree in trees for split in splits(tree)}) or [0]
    codes = {}
    for i in used:
        if isinstance(feature := features[i], CategoricalFeature):
            listed = {value: float(code) for value, code in zip(feature.values, feature.codes, strict=True)}
            codes[i] = {**listed, MISSING_TEXT: _missing(feature)}, float(feature.other)
    encoding, found = coded(inputs, codes, name)
    summed = name("tree_votes")
    walks = [_walk(tree, features, found) for tree in grown]
    nodes = (regressor(walks, found.numbers, summed), helper.make_node("Sum", [always, summed], [target]))
    return encoding + Graph(nodes, (tensor(np.array([[constant]], np.float32), always),))


def _missing(feature: CategoricalFeature) -> float:
    """Return the number that stands for a missing text: below all others where these are compared."""
    return -1.0 if feature.cuts else float(feature.missing)


def merged(trees: Sequence[Tree]) -> list[Tree]:
    """Add up trees of the same splits, so that one walk does for several. Without trees, return a leaf of weight 0."""
    found: dict[Tree, Tree] = {}
    for tree in trees:
        form = _form(tree)
        found[form] = _sum(found[form], tree) if form in found else tree
    return list(found.values()) or [Leaf(0)]


def _form(tree: Tree) -> Tree:
    if isinstance(tree, Leaf):
        return Leaf(0)
    return Split(tree.test, tree.feature, tree.code, _form(tree.yes), _form(tree.no))


def _sum(one: Tree, other: Tree) -> Tree:
    """Add up two trees of the same form."""
    if isinstance(one, Split) and isinstance(other, Split):
        return Split(one.test, one.feature, one.code, _sum(one.yes, other.yes), _sum(one.no, other.no))
    assert isinstance(one, Leaf)
    assert isinstance(other, Leaf)
    return Leaf(one.weight + other.weight)


def _walk(tree: Tree, features: Sequence[Feature], found: Inputs) -> Walk:
    if isinstance(tree, Leaf):
        return (tree.weight,)
    feature, column = features[tree.feature], found.columns[tree.feature]
    yes, no = _walk(tree.yes, features, found), _walk(tree.no, features, found)
    if isinstance(feature, CategoricalFeature):
        if tree.test == "above":
            return Branch(column, "BRANCH_GT", tree.code + 0.5, yes, no)
        code = _missing(feature) if tree.code == feature.missing else float(tree.code)
        return Branch(column, "BRANCH_EQ", code, yes, no)
    if tree.code == feature.missing and tree.test == "is":
        return Branch(column, "BRANCH_LEQ", inf, no, yes)  # NaN alone is not below infinity
    if isinstance(feature, NumericFeature):
        return Branch(column, "BRANCH_GT", feature.edges[tree.code], yes, no)
    return Branch(column, "BRANCH_GT" if tree.code == 1 else "BRANCH_LEQ", 0.5, yes, no)
