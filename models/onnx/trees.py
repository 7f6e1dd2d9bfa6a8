"""A tree ensemble's score as ONNX nodes: constant + TreeEnsembleRegressor(numbers, codes of texts)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np
from onnx import helper

from models.features import MISSING_TEXT, CategoricalFeature, Feature, NumericFeature
from models.onnx.nodes import Branch, Graph, Inputs, Namer, Walk, check_exact, coded, regressor, tensor
from models.trees import Leaf, Split, Tree, TreeEnsemble


def used_by_trees(ensemble: TreeEnsemble) -> list[int]:
    """Positions of the features that a split asks (the first one when none does, so that N is known to the graph)."""
    return sorted({split.feature for tree in ensemble.trees for split in splits(tree)}) or [0]


def splits(tree: Tree) -> Iterator[Split]:
    if isinstance(tree, Split):
        yield tree
        yield from splits(tree.yes)
        yield from splits(tree.no)


def tree_scores(ensemble: TreeEnsemble, inputs: Inputs, name: Namer, target: str) -> Graph:
    """Raw values -> `target` (N, 1)."""
    trees, always = merged(ensemble.trees), name("constant")
    check_exact(abs(ensemble.constant) + sum(map(heaviest, trees)))
    features = dict(enumerate(ensemble.features))
    codes = {i: _codes(f) for i in used_by_trees(ensemble) if isinstance(f := features[i], CategoricalFeature)}
    encoding, found = coded(inputs, codes, name)
    summed = name("tree_votes")
    walks = [_walk(tree, ensemble.features, found) for tree in trees]
    nodes = (regressor(walks, found.numbers, summed), helper.make_node("Sum", [always, summed], [target]))
    return encoding + Graph(nodes, (tensor(np.array([[ensemble.constant]], np.float32), always),))


def merged(trees: Sequence[Tree]) -> list[Tree]:
    """Trees of the same splits added up: one walk instead of several. Without trees, a leaf of weight 0."""
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
    """Of two trees of the same form."""
    if isinstance(one, Split) and isinstance(other, Split):
        return Split(one.test, one.feature, one.code, _sum(one.yes, other.yes), _sum(one.no, other.no))
    assert isinstance(one, Leaf)
    assert isinstance(other, Leaf)
    return Leaf(one.weight + other.weight)


def heaviest(tree: Tree) -> int:
    """The size of the largest weight."""
    return abs(tree.weight) if isinstance(tree, Leaf) else max(heaviest(tree.yes), heaviest(tree.no))


def _codes(feature: CategoricalFeature) -> tuple[dict[str, float], float]:
    listed = {value: float(code) for code, value in enumerate(feature.values)}
    return {**listed, MISSING_TEXT: float(feature.missing)}, float(len(feature.values))


def _walk(tree: Tree, features: Sequence[Feature], found: Inputs) -> Walk:
    if isinstance(tree, Leaf):
        return (tree.weight,)
    feature, column = features[tree.feature], found.columns[tree.feature]
    yes, no = _walk(tree.yes, features, found), _walk(tree.no, features, found)
    if isinstance(feature, CategoricalFeature):
        return Branch(column, "BRANCH_EQ", float(tree.code), yes, no)
    if tree.code == feature.missing and tree.test == "is":
        return Branch(column, "BRANCH_LEQ", inf, no, yes)  # NaN alone is not below infinity
    if isinstance(feature, NumericFeature):
        return Branch(column, "BRANCH_GT", feature.edges[tree.code], yes, no)
    return Branch(column, "BRANCH_GT" if tree.code == 1 else "BRANCH_LEQ", 0.5, yes, no)
