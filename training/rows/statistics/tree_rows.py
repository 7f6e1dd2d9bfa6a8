"""Rows seen by released trees: the score of each row, and the leaf it is in while one more tree grows.

A tree is its cuts in the order they were made: cut number i splits one leaf, whose rows with the test go to the new
leaf i + 1. The first leaf is 0. All of it is public; what the rows derive from it stays with them, as a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from models.parts.trees import Leaf, Split, Tree
from training.rows import kernels
from training.rows.partitions.joined import join_codes
from training.rows.partitions.partition import Integers, Partition
from training.rows.partitions.rows import Rows

MEMO = "lazybb-tree"
FEW_CODES = 256  # of features that are one column: their sums, of all leaves, stay near the processor


@dataclass(frozen=True)
class Cut:
    """Splits `leaf` by one test of a feature's code, `above` or `is` as in `models.parts.trees.Split`."""

    leaf: int
    test: Literal["above", "is"]
    feature: int
    code: int

    def interval(self, width: int) -> tuple[int, int]:
        """Return the lowest and highest code that pass: missing, the last code, is never above."""
        return (self.code + 1, width - 2) if self.test == "above" else (self.code, self.code)


@dataclass(frozen=True)
class Grown:
    """A released tree: its cuts, and the vote of each of its len(cuts) + 1 leaves."""

    cuts: tuple[Cut, ...]
    votes: tuple[int, ...]

    @cached_property  # every rehearsal grows the same trees
    def tree(self) -> Tree:
        """Return it as nested splits, built from the last cut backwards, since by then both sides are whole."""
        parts: list[Tree] = [Leaf(vote) for vote in self.votes]
        for new, cut in reversed(list(enumerate(self.cuts, 1))):
            parts[cut.leaf] = Split(cut.test, cut.feature, cut.code, parts[new], parts[cut.leaf])
        return parts[0]

    def __reduce__(self) -> tuple[type[Grown], tuple[tuple[Cut, ...], tuple[int, ...]]]:
        """Reduce the tree to its cuts and votes for pickling, without the nested splits that it may hold."""
        return Grown, (self.cuts, self.votes)


@dataclass
class _Progress:
    """Kept in `memo`: what was applied already, the leaf of each row, and its score."""

    leaves: NDArray[np.uint8]
    scores: NDArray[np.int32]
    trees: tuple[Grown, ...] = ()
    cuts: tuple[Cut, ...] = ()
    total: int = 0  # no score is larger, whatever the row


class TreeRows:
    """Rows as released trees see them, and the cuts of the one that grows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def score_counts(self, trees: Sequence[Grown], bound: int) -> Integers:
        """Return rows per class and score: (2, 2 bound + 1), index score + bound; `bound` at least the sum of all
        votes.
        """
        return self._rows.ask(ScoreCounts(tuple(trees), bound))

    def leaf_sums(self, trees: Sequence[Grown], cuts: tuple[Cut, ...], weights: Integers) -> Integers:
        """Sum the weight per leaf and class: (leaves, 2). `weights` (2 bound + 1,) by margin + bound; or
        (2, 2 bound + 1), by class as well.
        """
        return self._rows.ask(LeafSums(tuple(trees), cuts, weights))

    def histograms(self, trees: Sequence[Grown], cuts: tuple[Cut, ...], weights: Integers) -> Integers:
        """Sum weights per feature, leaf and class, and code: (features, 2 leaves, max width); see `kernels.trees`."""
        return self._rows.ask(Histograms(tuple(trees), cuts, weights))

    def margins(self, trees: Sequence[Grown], cuts: tuple[Cut, ...], weights: Integers) -> Integers:
        """Return the weight of class 1 less that of class 0 per feature, leaf and code: (features, leaves, max
        width).
        """
        return self._rows.ask(Margins(tuple(trees), cuts, weights))

    def passing(self, trees: Sequence[Grown], cuts: tuple[Cut, ...], weights: Integers, tests: Integers) -> Integers:
        """Sum the weight per test, and leaf and class, of the rows that pass, and behind the tests of all rows:
        (tests + 1, 2 leaves). `tests` (tests, 3): feature, lowest and highest code that pass.
        """
        return self._rows.ask(Passing(tuple(trees), cuts, weights, tests))


@dataclass(frozen=True)
class ScoreCounts:
    """As `TreeRows.score_counts`."""

    trees: tuple[Grown, ...]
    bound: int

    def __call__(self, part: Partition) -> Integers:
        return kernels.trees.count_scores(part.labels, _score_rows(part, self.trees, (), self.bound).scores, self.bound)


@dataclass(frozen=True)
class _Weighed:
    trees: tuple[Grown, ...]
    cuts: tuple[Cut, ...]
    weights: Integers

    def seen(self, part: Partition) -> tuple[_Progress, Integers, int]:
        """Return what the rows are under these trees and cuts, their weights by class and score + bound, and the
        bound.
        """
        first, second = np.broadcast_to(self.weights, (2, self.weights.shape[-1]))
        bound = self.weights.shape[-1] // 2
        table = np.stack([first[::-1], second])  # the margin of class 0 is the score turned round
        return _score_rows(part, self.trees, self.cuts, bound), table, bound


class LeafSums(_Weighed):
    """As `TreeRows.leaf_sums`."""

    def __call__(self, part: Partition) -> Integers:
        progress, table, bound = self.seen(part)
        return kernels.trees.weigh_leaves(
            part.labels, progress.leaves, progress.scores, table, bound, len(self.cuts) + 1
        )


class Histograms(_Weighed):
    """As `TreeRows.histograms`."""

    def __call__(self, part: Partition) -> Integers:
        return _histograms(part, *self.seen(part), len(self.cuts) + 1, apart=True)


class Margins(_Weighed):
    """As `TreeRows.margins`."""

    def __call__(self, part: Partition) -> Integers:
        progress, (against, favour), bound = self.seen(part)
        return _histograms(part, progress, np.stack([-against, favour]), bound, len(self.cuts) + 1, apart=False)


def _histograms(
    part: Partition, progress: _Progress, table: Integers, bound: int, leaves: int, apart: bool
) -> Integers:
    columns = part.bins, part.low, part.labels, progress.leaves, progress.scores, table, bound
    return kernels.trees.histograms(*columns, leaves, max(part.widths), apart)


@dataclass(frozen=True)
class Passing(_Weighed):
    """As `TreeRows.passing`. Few tests tell few codes of a feature apart, so that several are one column of rows."""

    tests: Integers

    def __call__(self, part: Partition) -> Integers:
        progress, table, bound = self.seen(part)
        tables, feature, start, end = _coarse(self.tests.tobytes(), part.widths)
        columns = join_codes(part, tables, FEW_CODES)
        row_columns = columns.codes, 0, part.labels, progress.leaves, progress.scores, table, bound
        sums = columns.apart(kernels.trees.histograms(*row_columns, len(self.cuts) + 1, columns.groups[2], True))
        running = np.concatenate([np.zeros_like(sums[:, :, :1]), np.cumsum(sums, axis=2)], axis=2)
        return np.concatenate([running[feature, :, end] - running[feature, :, start], running[:1, :, -1]])


@lru_cache(maxsize=64)
def _coarse(asked: bytes, widths: tuple[int, ...]) -> tuple[tuple[Integers, ...], Integers, Integers, Integers]:
    """Return codes between two ends of intervals pass the same tests. Of each feature, the number that every code has
    then; of each test its feature, the first number that passes, and the first behind it that does not. `asked`:
    (tests, 3).
    """
    feature, low, high = np.frombuffer(asked, np.int64).reshape(-1, 3).T
    numbers = np.zeros((len(widths), max(widths) + 1), np.int64)
    numbers[feature, low] = numbers[feature, high + 1] = 1
    numbers[:, 0] = 0
    numbers = numbers.cumsum(axis=1)
    tables = tuple(code_numbers[:width] for code_numbers, width in zip(numbers, widths, strict=True))
    behind = np.array([code_numbers[-1] + 1 for code_numbers in tables])[feature]
    end = np.where(high + 1 < np.array(widths)[feature], numbers[feature, high + 1], behind)
    return tables, feature, numbers[feature, low], end


def _score_rows(part: Partition, trees: tuple[Grown, ...], cuts: tuple[Cut, ...], bound: int) -> _Progress:
    """Return what the rows are under these trees and cuts. InputError where their votes have a larger total than
    `bound`.
    """
    none = part.memo.pop(MEMO, None)  # what an exception leaves half done must not be found again
    progress: _Progress = none or _Progress(np.zeros(part.size, np.uint8), np.zeros(part.size, np.int32))
    applied = len(progress.trees)
    if trees[:applied] != progress.trees:
        progress.scores[:] = 0
        progress.total = applied = 0
    for tree in trees[applied:]:
        _grow_to(part, progress, tree.cuts)
        progress.total += max(map(abs, tree.votes))
        kernels.trees.add_votes(progress.leaves, np.array(tree.votes, np.int32), progress.scores)
    progress.trees = trees
    _grow_to(part, progress, cuts)
    part.memo[MEMO] = progress
    if progress.total > bound:
        raise InputError(f"bound={bound}: must be at least the total weight of the votes of all trees")
    return progress


def leaves_under(
    part: Partition, trees: tuple[Grown, ...], cuts: tuple[Cut, ...], bound: int
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return the leaf of each row under the cuts of one more tree, and its score by the trees, none above `bound`."""
    progress = _score_rows(part, trees, cuts, bound)
    return progress.leaves, progress.scores


def _grow_to(part: Partition, progress: _Progress, cuts: tuple[Cut, ...]) -> None:
    applied = len(progress.cuts)
    if cuts[:applied] != progress.cuts:
        progress.leaves[:] = 0
        applied = 0
    steps = [
        (cut.leaf, cut.feature, *cut.interval(part.widths[cut.feature]), new)
        for new, cut in enumerate(cuts[applied:], applied + 1)
    ]
    if steps:
        kernels.trees.descend(part.bins, part.low, progress.leaves, np.array(steps, np.int64))
    progress.cuts = cuts
