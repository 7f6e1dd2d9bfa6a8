"""Rows seen by a released additive model: the score of each row, and integer sums of residuals over leaves.

The terms and the leaves are public; what the rows derive from them stays with them, as a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError
from training.rows.kernels import additive as kernels
from training.rows.partitions.partition import Integers, Partition
from training.rows.rows import Rows

MEMO = "additive"
WIDEST = 1 << 30  # of a score without its constant, whatever the row: 32 bits hold it, and what is added to it


@dataclass
class _Known:
    """Kept in `memo`: the terms that were applied, and the score of each row by them, without the constant."""

    terms: tuple[Integers, ...]
    scores: NDArray[np.int32]


class AdditiveRows:
    """Rows under the terms released so far, one (bins,) array of integers per feature. Arrays are not changed once
    they were given here: a term that is the same object is not looked at again.
    """

    def __init__(self, rows: Rows, terms: Sequence[Integers]) -> None:
        if sum(int(np.abs(term).max()) for term in terms) > WIDEST:
            raise InputError(f"terms: the largest of each may add up to at most {WIDEST}")
        self._rows, self._terms = rows, tuple(terms)

    def class_sums(self, feature: int, leaves: Integers, table: NDArray[np.int32], low: int) -> Integers:
        """Sum per leaf of table[label, score - low]; `low` without the constant. (leaves,)"""
        return self._rows.ask(ClassSums(self._terms, feature, leaves, table, low))

    def number_sums(self, feature: int, leaves: Integers, constant: int, clip: int, factor: int) -> Integers:
        """Sum per leaf of the clipped residuals times factor / 2^FRACTION, toward zero. (leaves,)"""
        return self._rows.ask(NumberSums(self._terms, feature, leaves, constant, clip, factor))


@dataclass(frozen=True)
class ClassSums:
    """As `AdditiveRows.class_sums`."""

    terms: tuple[Integers, ...]
    feature: int
    leaves: Integers
    table: NDArray[np.int32]
    low: int

    def __call__(self, part: Partition) -> Integers:
        own = part.codes(self.feature), self.leaves, part.labels, _scores(part, self.terms)
        return kernels.sum_classes(*own, self.table, self.low, int(self.leaves.max()) + 1)


@dataclass(frozen=True)
class NumberSums:
    """As `AdditiveRows.number_sums`."""

    terms: tuple[Integers, ...]
    feature: int
    leaves: Integers
    constant: int
    clip: int
    factor: int

    def __call__(self, part: Partition) -> Integers:
        own = part.codes(self.feature), self.leaves, part.targets, _scores(part, self.terms)
        return kernels.sum_numbers(*own, self.constant, self.clip, self.factor, int(self.leaves.max()) + 1)


@dataclass(frozen=True)
class BinCounts:
    """As `bin_counts`."""

    feature: int

    def __call__(self, part: Partition) -> Integers:
        return kernels.count_codes(part.codes(self.feature), part.widths[self.feature])


@dataclass(frozen=True)
class SquareSum:
    """As `square_sum`."""

    constant: int
    most: int

    def __call__(self, part: Partition) -> Integers:
        return np.array(kernels.sum_squares(part.targets, self.constant, self.most), np.int64)


def _scores(part: Partition, terms: tuple[Integers, ...]) -> NDArray[np.int32]:
    """The score of each row by these terms."""
    none = tuple(np.zeros(width, np.int64) for width in part.widths)
    known: _Known = part.memo.pop(MEMO, None) or _Known(none, np.zeros(part.size, np.int32))
    for feature, (old, new) in enumerate(zip(known.terms, terms, strict=True)):
        if old is not new:
            kernels.add_change(part.codes(feature), (new - old).astype(np.int32), known.scores)
    part.memo[MEMO] = _Known(terms, known.scores)  # popped above: nothing half done is found after an exception
    return known.scores


def bin_counts(rows: Rows, feature: int) -> Integers:
    """Rows per code of a feature: (bins,)."""
    return rows.ask(BinCounts(feature))


def square_sum(rows: Rows, constant: int, most: int) -> int:
    """Sum of min(|target - constant|, most)^2 / most, each rounded down."""
    return int(rows.ask(SquareSum(constant, most)))
