"""Decision trees with integer leaves over codes: their walk, their JSON and their words.

A split sends x to `yes` where its test holds, as a vote's does: a missing value is never `above`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.errors import ModelInvalid
from models.features import Feature, NumericFeature
from models.votes import describe, holds

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


def route(tree: Tree, codes: Sequence[NDArray[Any]], widths: Sequence[int]) -> NDArray[np.int64]:
    """The weight of the leaf that each row reaches: (n,). `codes`: (features, n); `widths`: bins per feature."""
    weights = np.empty(len(codes[0]), dtype=np.int64)
    waiting: list[tuple[Tree, NDArray[np.intp]]] = [(tree, np.arange(weights.size))]
    while waiting:
        at, rows = waiting.pop()
        if isinstance(at, Leaf):
            weights[rows] = at.weight
            continue
        passes = holds(at.test, at.code, widths[at.feature])[codes[at.feature][rows]]
        waiting += [(at.yes, rows[passes]), (at.no, rows[~passes])]
    return weights


def splits(tree: Tree) -> Iterator[Split]:
    """Every split, a parent before its children."""
    if isinstance(tree, Split):
        yield tree
        yield from splits(tree.yes)
        yield from splits(tree.no)


def heaviest(tree: Tree) -> int:
    """The size of the largest weight."""
    return abs(tree.weight) if isinstance(tree, Leaf) else max(heaviest(tree.yes), heaviest(tree.no))


def tree_to_json(tree: Tree) -> Any:
    """A leaf is its weight; a split is [test, feature, code, yes, no]."""
    if isinstance(tree, Leaf):
        return tree.weight
    return [tree.test, tree.feature, tree.code, tree_to_json(tree.yes), tree_to_json(tree.no)]


def tree_from_json(body: Any, depth: int = MAX_DEPTH) -> Tree:
    """Inverse of `tree_to_json`; raises ModelInvalid. What its numbers mean is checked by `check_tree`."""
    if not isinstance(body, list):
        return Leaf(body)
    if len(body) != 5 or depth == 0:
        raise ModelInvalid(f"tree: a split is [test, feature, code, yes, no], at most {MAX_DEPTH} deep")
    test, feature, code, yes, no = body
    return Split(test, feature, code, tree_from_json(yes, depth - 1), tree_from_json(no, depth - 1))


def tree_text(tree: Tree, features: Sequence[Feature], indent: str = "", lead: str = "") -> list[str]:
    """A tree as lines: tests as questions, leaves as what they add to the score."""
    if isinstance(tree, Leaf):
        return [f"{indent}{lead}{tree.weight:+d}"]
    deeper = indent + "  "
    yes, no = tree_text(tree.yes, features, deeper, "yes: "), tree_text(tree.no, features, deeper, "no: ")
    return [f"{indent}{lead}{describe(tree, features)}?", *yes, *no]


def check_tree(tree: Tree, features: Sequence[Feature], depth: int = MAX_DEPTH) -> None:
    """ModelInvalid unless every split asks a test that its feature has, and every weight is an exact integer. Of a
    number's single values, only the missing one may be asked for: a bin takes two splits."""
    if isinstance(tree, Leaf):
        return check_weight(tree.weight)
    if {type(tree.feature), type(tree.code)} != {int} or not 0 <= tree.feature < len(features) or depth == 0:
        raise ModelInvalid(
            f"split.feature={tree.feature!r}: one of {len(features)} features, at most {MAX_DEPTH} splits deep"
        )
    owner = features[tree.feature]
    first = owner.missing if isinstance(owner, NumericFeature) else 0
    codes = {"above": range(owner.cuts), "is": range(first, owner.bins)}.get(tree.test, range(0))
    if tree.code not in codes:
        raise ModelInvalid(f"split {tree.test!r} {tree.code}: {owner.name} has no such test")
    check_tree(tree.yes, features, depth - 1)
    check_tree(tree.no, features, depth - 1)


def check_weight(weight: object) -> None:
    """ModelInvalid unless it is an integer of at most MAX_WEIGHT in size."""
    if type(weight) is not int or abs(weight) > MAX_WEIGHT:
        raise ModelInvalid(f"weight={weight!r}: must be an integer, at most {MAX_WEIGHT} in size")
