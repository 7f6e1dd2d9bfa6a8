"""Rows seen by released trees: the score of each row, and the leaf it is in while one more tree grows.

A tree is its cuts in the order they were made: cut number i splits one leaf, whose rows with the test go to the new
leaf i + 1. The first leaf is 0. All of it is public; what the rows derive from it stays in `rows.memo`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError
from models.trees import Leaf, Split, Tree
from training.rows.kernels import trees as kernels
from training.rows.rows import Rows

Integers = NDArray[np.int64]
MEMO = "lazybb-tree"


@dataclass(frozen=True)
class Cut:
    """Splits `leaf` by one test of a feature's code, `above` or `is` as in `models.trees.Split`."""

    leaf: int
    test: Literal["above", "is"]
    feature: int
    code: int

    def interval(self, width: int) -> tuple[int, int]:
        """Lowest and highest code that pass: missing, the last code, is never above."""
        return (self.code + 1, width - 2) if self.test == "above" else (self.code, self.code)


@dataclass(frozen=True)
class Grown:
    """A released tree: its cuts, and the vote of each of its len(cuts) + 1 leaves."""

    cuts: tuple[Cut, ...]
    votes: tuple[int, ...]

    def tree(self) -> Tree:
        """The same as nested splits."""
        return _nested(self)


@lru_cache(maxsize=4096)  # every rehearsal grows the same trees
def _nested(grown: Grown) -> Tree:
    """From the last cut backwards: by then both sides are whole."""
    parts: list[Tree] = [Leaf(vote) for vote in grown.votes]
    for new, cut in reversed(list(enumerate(grown.cuts, 1))):
        parts[cut.leaf] = Split(cut.test, cut.feature, cut.code, parts[new], parts[cut.leaf])
    return parts[0]


@dataclass
class _Memory:
    """Kept in `rows.memo`: what was applied already, the leaf of each row, and its score."""

    leaves: NDArray[np.uint8]
    scores: NDArray[np.int32]
    trees: tuple[Grown, ...] = ()
    cuts: tuple[Cut, ...] = ()
    total: int = 0  # no score is larger, whatever the row


class TreeRows:
    """What rows know of released trees and of the cuts of the one that grows. Brought up to date by every question."""

    def __init__(self, rows: Rows) -> None:
        if MEMO not in rows.memo:
            rows.memo[MEMO] = _Memory(np.zeros(rows.size, np.uint8), np.zeros(rows.size, np.int32))
        self._rows, self._known = rows, rows.memo[MEMO]

    def score_counts(self, trees: Sequence[Grown], bound: int) -> Integers:
        """Rows per class and score: (2, 2 bound + 1), index score + bound; `bound` at least the sum of all votes."""
        self._bring_up_to(tuple(trees), (), bound)
        labels = self._rows.labels
        parts = self._rows.map(lambda part: kernels.count_scores(labels[part], self._known.scores[part], bound))
        return sum(parts, np.zeros((2, 2 * bound + 1), np.int64))

    def leaf_sums(self, trees: Sequence[Grown], cuts: tuple[Cut, ...], weights: Integers) -> Integers:
        """Weight per leaf and class: (leaves, 2). `weights` (2 bound + 1,) by margin + bound."""
        table, bound = _by_class(weights)
        self._bring_up_to(tuple(trees), cuts, bound)
        labels, leaves, scores, size = self._rows.labels, self._known.leaves, self._known.scores, len(cuts) + 1
        parts = self._rows.map(
            lambda part: kernels.weigh_leaves(labels[part], leaves[part], scores[part], table, bound, size)
        )
        return sum(parts, np.zeros((size, 2), np.int64))

    def histograms(self, trees: Sequence[Grown], cuts: tuple[Cut, ...], weights: Integers) -> Integers:
        """Weight per feature, leaf and class, and code: (features, 2 leaves, max width); see `kernels.trees`."""
        table, bound = _by_class(weights)
        self._bring_up_to(tuple(trees), cuts, bound)
        rows, leaves, scores = self._rows, self._known.leaves, self._known.scores
        size, width = len(cuts) + 1, max(rows.widths)
        parts = rows.map(
            lambda part: kernels.histograms(
                rows.bins[:, part], rows.labels[part], leaves[part], scores[part], table, bound, size, width
            )
        )
        return sum(parts[1:], parts[0])

    def _bring_up_to(self, trees: tuple[Grown, ...], cuts: tuple[Cut, ...], bound: int) -> None:
        del self._rows.memo[MEMO]  # what an exception leaves half done must not be found again
        known = len(self._known.trees)
        if trees[:known] != self._known.trees:
            self._known.scores[:] = 0
            self._known.total = known = 0
        for tree in trees[known:]:
            self._grow_to(tree.cuts)
            self._known.total += max(map(abs, tree.votes))
            self._add_votes(np.array(tree.votes, np.int32))
        self._known.trees = trees
        self._grow_to(cuts)
        self._rows.memo[MEMO] = self._known
        if self._known.total > bound:
            raise InputError(f"bound={bound}: must be at least the total weight of the votes of all trees")

    def _add_votes(self, votes: NDArray[np.int32]) -> None:
        self._rows.map(lambda part: kernels.add_votes(self._known.leaves[part], votes, self._known.scores[part]))

    def _grow_to(self, cuts: tuple[Cut, ...]) -> None:
        known = len(self._known.cuts)
        if cuts[:known] != self._known.cuts:
            self._known.leaves[:] = 0
            known = 0
        while known < len(cuts):  # as many at once as split leaves that are there already, and each of them once
            batch = _batch(cuts, known)
            table = np.full((known + 1, 4), -1, np.int64)
            for new, cut in enumerate(batch, known + 1):
                table[cut.leaf] = (cut.feature, *cut.interval(self._rows.widths[cut.feature]), new)
            self._descend(table)
            known += len(batch)
        self._known.cuts = cuts

    def _descend(self, table: Integers) -> None:
        self._rows.map(lambda part: kernels.descend(self._rows.bins[:, part], self._known.leaves[part], table))


def _batch(cuts: tuple[Cut, ...], known: int) -> tuple[Cut, ...]:
    seen: set[int] = set()
    for end in range(known, len(cuts)):
        if cuts[end].leaf in seen or cuts[end].leaf > known:
            return cuts[known:end]
        seen.add(cuts[end].leaf)
    return cuts[known:]


def _by_class(weights: Integers) -> tuple[Integers, int]:
    """By margin + bound -> by class and score + bound: the margin of class 0 is the score turned round."""
    return np.stack([weights[::-1], weights]), len(weights) // 2
