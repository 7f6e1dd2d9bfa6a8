"""Decision trees with integer leaves over codes: their walk, their JSON and their words.

A split sends x to `yes` where its test holds, as a vote's does: a missing value is never `above`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import ModelInvalid
from models.features.features import Feature, NumericFeature
from models.parts.votes import describe

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


@dataclass(frozen=True, eq=False)
class Walk:
    """A tree as arrays, an entry for each node, breadth first: `feature`, the `first` code that passes and `count` of
    them; `after` (2 nodes,): where what fails, and what passes, goes on, which is itself at a leaf; `weight` of leaves.
    """

    feature: NDArray[np.int64]
    first: NDArray[np.int64]
    count: NDArray[np.uint64]
    after: NDArray[np.intp]
    weight: NDArray[np.int64]
    depth: int

    def weights_of(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """Return the weight of the leaf that each row of `codes` (features, n) reaches: (n,)."""
        rows = codes.shape[1]
        flat, place, node = codes.ravel(), np.arange(rows), np.zeros(rows, np.intp)
        for _ in range(self.depth):
            beyond = flat.take(self.feature.take(node) * rows + place) - self.first.take(node)
            passes = beyond.view(np.uint64) < self.count.take(node)  # what is below the first is a huge number
            node = self.after.take(2 * node + passes)
        return self.weight.take(node)


def walk_of(tree: Tree, widths: Sequence[int]) -> Walk:
    """Make the walk of a tree. `widths`: bins per feature, the last code of each is the missing value's."""
    nodes, depths, lines = [tree], [0], list[tuple[int, ...]]()
    for at, node in enumerate(nodes):  # which grows meanwhile
        if isinstance(node, Leaf):
            lines.append((0, 0, 0, at, at, node.weight))
            continue
        above = node.test == "above"
        passing = (node.code + 1, widths[node.feature] - 2 - node.code) if above else (node.code, 1)
        lines.append((node.feature, *passing, len(nodes) + 1, len(nodes), 0))
        nodes += [node.yes, node.no]
        depths += [depths[at] + 1] * 2
    table = np.array(lines, np.int64)
    feature, first, count, _, _, weight = np.ascontiguousarray(table.T)
    return Walk(feature, first, count.astype(np.uint64), table[:, 3:5].astype(np.intp).ravel(), weight, max(depths))


def route(tree: Tree, codes: Sequence[NDArray[Any]], widths: Sequence[int]) -> NDArray[np.int64]:
    """Return the weight of the leaf that each row reaches: (n,). `codes`: (features, n); `widths`: bins per feature."""
    return walk_of(tree, widths).weights_of(np.stack(codes))


def splits(tree: Tree) -> Iterator[Split]:
    """Yield every split, a parent before its children."""
    if isinstance(tree, Split):
        yield tree
        yield from splits(tree.yes)
        yield from splits(tree.no)


def leaves(tree: Tree) -> Iterator[int]:
    """Yield every leaf's weight, `yes` before `no`."""
    if isinstance(tree, Leaf):
        yield tree.weight
    else:
        yield from leaves(tree.yes)
        yield from leaves(tree.no)


def heaviest(tree: Tree) -> int:
    """Return the size of the largest weight."""
    return max(map(abs, leaves(tree)))


def tree_to_json(tree: Tree) -> Any:
    """Return a leaf as its weight, and a split as [test, feature, code, yes, no]."""
    if isinstance(tree, Leaf):
        return tree.weight
    return [tree.test, tree.feature, tree.code, tree_to_json(tree.yes), tree_to_json(tree.no)]


def tree_from_json(body: Any, depth: int = MAX_DEPTH) -> Tree:
    """Read what `tree_to_json` wrote; raises ModelInvalid. What its numbers mean is checked by `check_tree`."""
    if not isinstance(body, list):
        return Leaf(body)
    if len(body) != 5 or depth == 0:
        raise ModelInvalid(f"tree: a split is [test, feature, code, yes, no], at most {MAX_DEPTH} deep")
    test, feature, code, yes, no = body
    return Split(test, feature, code, tree_from_json(yes, depth - 1), tree_from_json(no, depth - 1))


def tree_text(tree: Tree, features: Sequence[Feature], indent: str = "", lead: str = "") -> list[str]:
    """Return a tree as lines: tests as questions, leaves as what they add to the score."""
    if isinstance(tree, Leaf):
        return [f"{indent}{lead}{tree.weight:+d}"]
    deeper = indent + "  "
    yes, no = tree_text(tree.yes, features, deeper, "yes: "), tree_text(tree.no, features, deeper, "no: ")
    return [f"{indent}{lead}{describe(tree, features)}?", *yes, *no]


def codes_of_tests(features: Sequence[Feature]) -> list[dict[str, range]]:
    """Return, for each feature, the codes that each test may ask for. Of a number's single values, only the missing
    one: a bin takes two splits.
    """
    first = [owner.missing if isinstance(owner, NumericFeature) else 0 for owner in features]
    return [
        {"above": range(owner.cuts), "is": range(low, owner.bins)} for owner, low in zip(features, first, strict=True)
    ]


def check_tree(
    tree: Tree, features: Sequence[Feature], allowed: Sequence[dict[str, range]], depth: int = MAX_DEPTH
) -> None:
    """Raise ModelInvalid unless every split asks a test that its feature has (`codes_of_tests`), and every weight is an
    exact integer.
    """
    if isinstance(tree, Leaf):
        return check_weight(tree.weight)
    are_integers = type(tree.feature) is int and type(tree.code) is int
    if not are_integers or not 0 <= tree.feature < len(features) or depth == 0:
        raise ModelInvalid(
            f"split.feature={tree.feature!r}: one of {len(features)} features, at most {MAX_DEPTH} splits deep"
        )
    if tree.code not in allowed[tree.feature].get(tree.test, ()):
        raise ModelInvalid(f"split {tree.test!r} {tree.code}: {features[tree.feature].name} has no such test")
    check_tree(tree.yes, features, allowed, depth - 1)
    check_tree(tree.no, features, allowed, depth - 1)


def check_weight(weight: object) -> None:
    """Raise ModelInvalid unless it is an integer of at most MAX_WEIGHT in size."""
    if type(weight) is not int or abs(weight) > MAX_WEIGHT:
        raise ModelInvalid(f"weight={weight!r}: must be an integer, at most {MAX_WEIGHT} in size")
