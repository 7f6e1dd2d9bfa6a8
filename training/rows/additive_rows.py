"""Rows seen by a released additive model: the score of each row, and integer sums of residuals over leaves.

The terms and the leaves are public; what the rows derive from them stays in `rows.memo`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError
from training.rows.kernels import additive as kernels
from training.rows.rows import Rows

Integers = NDArray[np.int64]
MEMO = "additive"
WIDEST = 1 << 30  # of a score without its constant, whatever the row: 32 bits hold it, and what is added to it


@dataclass
class _Memory:
    """Kept in `rows.memo`: the terms that were applied, and the score of each row by them, without the constant."""

    terms: tuple[Integers, ...]
    scores: NDArray[np.int32]


class AdditiveRows:
    """Rows under the terms released so far, one (bins,) array of integers per feature. Arrays are not changed once
    they were given here: a term that is the same object is not looked at again.
    """

    def __init__(self, rows: Rows, terms: Sequence[Integers]) -> None:
        if sum(int(np.abs(term).max()) for term in terms) > WIDEST:
            raise InputError(f"terms: the largest of each may add up to at most {WIDEST}")
        self._rows = rows
        self._scores = self._bring_up_to(tuple(terms))

    def class_sums(self, feature: int, leaves: Integers, table: NDArray[np.int32], low: int) -> Integers:
        """Sum per leaf of table[label, score - low]; `low` without the constant. (leaves,)"""
        bins, labels, scores, size = self._rows.bins[feature], self._rows.labels, self._scores, int(leaves.max()) + 1

        def sums(part: slice) -> Integers:
            return kernels.sum_classes(bins[part], leaves, labels[part], scores[part], table, low, size)

        return sum(self._rows.map(sums), np.zeros(size, np.int64))

    def number_sums(self, feature: int, leaves: Integers, constant: int, clip: int, factor: int) -> Integers:
        """Sum per leaf of the clipped residuals times factor / 2^FRACTION, toward zero. (leaves,)"""
        bins, targets, scores, size = self._rows.bins[feature], self._rows.targets, self._scores, int(leaves.max()) + 1

        def sums(part: slice) -> Integers:
            own = bins[part], leaves, targets[part], scores[part]
            return kernels.sum_numbers(*own, constant, clip, factor, size)

        return sum(self._rows.map(sums), np.zeros(size, np.int64))

    def _bring_up_to(self, terms: tuple[Integers, ...]) -> NDArray[np.int32]:
        rows = self._rows
        none = tuple(np.zeros(width, np.int64) for width in rows.widths)
        known: _Memory = rows.memo.pop(MEMO, None) or _Memory(none, np.zeros(rows.size, np.int32))
        for feature, (old, new) in enumerate(zip(known.terms, terms, strict=True)):
            if old is not new:
                _apply(rows, feature, (new - old).astype(np.int32), known.scores)
        rows.memo[MEMO] = _Memory(terms, known.scores)  # popped above: nothing half done is found after an exception
        return known.scores


def _apply(rows: Rows, feature: int, change: NDArray[np.int32], scores: NDArray[np.int32]) -> None:
    bins = rows.bins[feature]
    rows.map(lambda part: kernels.add_change(bins[part], change, scores[part]))


def bin_counts(rows: Rows, feature: int) -> Integers:
    """Rows per code of a feature: (bins,)."""
    bins, width = rows.bins[feature], rows.widths[feature]
    return sum(rows.map(lambda part: kernels.count_codes(bins[part], width)), np.zeros(width, np.int64))


def square_sum(rows: Rows, constant: int, most: int) -> int:
    """Sum of min(|target - constant|, most)^2 / most, each rounded down."""
    targets = rows.targets
    return sum(rows.map(lambda part: kernels.sum_squares(targets[part], constant, most)))
