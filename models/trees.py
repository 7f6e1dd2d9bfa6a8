"""A released sum of decision trees with integer leaves. It never sees a row of the training data.

score(x) = constant + sum over trees of the weight of the leaf that x reaches; two classes, answered as in
`models.answers`. A split sends x to `yes` where its test holds, as a vote's does: a missing value is never `above`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.errors import ModelInvalid
from models.answers import ClassLabel, check_head, head_from_json, labels_of, probabilities_of
from models.features import Columns, Feature, NumericFeature, encode_columns

MAX_DEPTH = 32
MAX_WEIGHT = 1 << 53  # of a leaf or a constant: what JSON carries exactly everywhere


@dataclass(frozen=True)
class Leaf:
    """Where a walk ends, and what it adds to the score."""

    weight: int


@dataclass(frozen=True)
class Split:
    """One test of one feature's code: `above`: code > `code` of an ordered feature; `is`: code == `code`."""

    test: Literal["above", "is"]
    feature: int
    code: int
    yes: Tree
    no: Tree


Tree = Leaf | Split


def holds(test: str, code: int, bins: int) -> NDArray[np.bool_]:
    """For every code of a feature, whether the test holds: (bins,). The last code is the missing value's."""
    codes = np.arange(bins)
    if test == "above":
        return (codes > code) & (codes < bins - 1)
    return codes == code if test == "is" else np.ones(bins, dtype=bool)


def route(tree: Tree, codes: Sequence[NDArray[Any]], widths: Sequence[int]) -> NDArray[np.int64]:
    """The weight of the leaf that each row reaches: (n,). `codes`: (features, n); `widths`: bins per feature."""
    found = np.empty(len(codes[0]), dtype=np.int64)
    waiting: list[tuple[Tree, NDArray[np.intp]]] = [(tree, np.arange(found.size))]
    while waiting:
        at, rows = waiting.pop()
        if isinstance(at, Leaf):
            found[rows] = at.weight
            continue
        passes = holds(at.test, at.code, widths[at.feature])[codes[at.feature][rows]]
        waiting += [(at.yes, rows[passes]), (at.no, rows[~passes])]
    return found


@dataclass(frozen=True)
class TreeEnsemble:
    """A frozen classifier of two classes. Scores are exact integers."""

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ...]
    trees: tuple[Tree, ...]
    constant: int
    link: float

    def __post_init__(self) -> None:
        check_head(self.features, self.classes, self.link)
        if len(self.classes) != 2:
            raise ModelInvalid(f"classes={self.classes}: trees tell two classes apart")
        _check_weight(self.constant)
        for tree in self.trees:
            _check(tree, self.features, MAX_DEPTH)

    @property
    def outputs(self) -> int:
        return 1

    def scores(self, columns: Columns) -> NDArray[np.int64]:
        """Raw columns -> scores (n, 1)."""
        return self.coded_scores(encode_columns(self.features, columns))

    def coded_scores(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Codes (features, n) -> scores (n, 1)."""
        widths = [feature.bins for feature in self.features]
        total = np.full(len(codes[0]), self.constant, dtype=np.int64)
        for tree in self.trees:
            total += route(tree, codes, widths)
        return total[:, np.newaxis]

    def probabilities(self, columns: Columns) -> NDArray[np.float64]:
        """(n, 2): p(class 0), p(class 1)."""
        return probabilities_of(self.scores(columns), self.link)

    def predict(self, columns: Columns) -> NDArray[Any]:
        return labels_of(self.classes, self.scores(columns))

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "trees",
            "target": self.target,
            "classes": list(self.classes),
            "link": self.link,
            "features": [feature.to_json() for feature in self.features],
            "constant": self.constant,
            "trees": [tree_to_json(tree) for tree in self.trees],
        }


def tree_to_json(tree: Tree) -> Any:
    """A leaf is its weight; a split is [test, feature, code, yes, no]."""
    if isinstance(tree, Leaf):
        return tree.weight
    return [tree.test, tree.feature, tree.code, tree_to_json(tree.yes), tree_to_json(tree.no)]


def tree_from_json(body: Any, depth: int = MAX_DEPTH) -> Tree:
    """Inverse of `tree_to_json`; raises ModelInvalid. What its numbers mean is checked by `TreeEnsemble`."""
    if not isinstance(body, list):
        return Leaf(body)
    if len(body) != 5 or depth == 0:
        raise ModelInvalid(f"tree: a split is [test, feature, code, yes, no], at most {MAX_DEPTH} deep")
    test, feature, code, yes, no = body
    return Split(test, feature, code, tree_from_json(yes, depth - 1), tree_from_json(no, depth - 1))


def trees_from_json(body: Mapping[str, Any]) -> TreeEnsemble:
    """Inverse of `TreeEnsemble.to_json`; KeyError, TypeError, ValueError or ModelInvalid where it is not one."""
    features, target, classes, link = head_from_json(body, {"trees", "constant"})
    if type(body["trees"]) is not list:
        raise ModelInvalid("trees: must be a list")
    trees = tuple(tree_from_json(tree) for tree in body["trees"])
    return TreeEnsemble(features, target, classes, trees, body["constant"], link)


def _check(tree: Tree, features: Sequence[Feature], depth: int) -> None:
    if isinstance(tree, Leaf):
        return _check_weight(tree.weight)
    if {type(tree.feature), type(tree.code)} != {int} or not 0 <= tree.feature < len(features) or depth == 0:
        raise ModelInvalid(
            f"split.feature={tree.feature!r}: one of {len(features)} features, at most {MAX_DEPTH} splits deep"
        )
    owner = features[tree.feature]
    if tree.code not in _codes(tree.test, owner):
        raise ModelInvalid(f"split {tree.test!r} {tree.code}: {owner.name} has no such test")
    _check(tree.yes, features, depth - 1)
    _check(tree.no, features, depth - 1)


def _codes(test: str, feature: Feature) -> range:
    """Codes that a test may name. Of a number's single values, only the missing one: a bin takes two splits."""
    if test == "above":
        return range(feature.cuts)
    first = feature.missing if isinstance(feature, NumericFeature) else 0
    return range(first, feature.bins) if test == "is" else range(0)


def _check_weight(weight: object) -> None:
    if type(weight) is not int or abs(weight) > MAX_WEIGHT:
        raise ModelInvalid(f"weight={weight!r}: must be an integer, at most {MAX_WEIGHT} in size")
