"""Rows seen by a released additive model of several classes: the scores of each row, a number for each class, and
integer sums of what softmax leaves to explain.

The terms and the leaves are public; what the rows derive from them stays with them, as a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from training.rows import kernels
from training.rows.packed.scratch import scratch_array
from training.rows.partitions.partition import Integers, Partition
from training.rows.partitions.rows import Rows
from training.rows.statistics.additive_rows import WIDEST

MEMO = "softmax"


@dataclass(frozen=True, eq=False)
class Softmax:
    """What turns scores into chances: the `constant` of each class, and exp(-d) of scores d below the highest in steps
    of 2^shift, as `powers` in 2^-24. `digits`: binary digits of a score, in logits.
    """

    constant: Integers
    powers: NDArray[np.int32]
    shift: int
    digits: int


@dataclass
class _Progress:
    """Kept in `memo`: the terms that were applied, the largest number of each, and the scores of each row by them,
    without the constant: (rows, classes).
    """

    terms: tuple[Integers, ...]
    largest: Integers
    scores: NDArray[np.int32]


class SoftmaxRows:
    """Rows under the terms released so far, one (bins, classes) array of integers per feature. Arrays are not changed
    once they were given here: a term that is the same object is not looked at again.
    """

    def __init__(self, rows: Rows, terms: Sequence[Integers]) -> None:
        self._rows, self._terms = rows, tuple(terms)

    def sums(
        self, feature: int, leaves: Integers, softmax: Softmax, length: int, most: Integers, taxicab: bool
    ) -> Integers:
        """Sum the residuals per leaf and class, (leaves, classes), as `kernels.softmax.sum_residuals` says."""
        return self._rows.ask(ResidualSums(self._terms, feature, leaves, softmax, length, most, taxicab))

    def slopes(self, softmax: Softmax, farthest: int, most: int) -> Integers:
        """Sum over rows what `kernels.softmax.sum_slopes` says: (2,)."""
        return self._rows.ask(SlopeSums(self._terms, softmax, farthest, most))


@dataclass(frozen=True, eq=False)
class ResidualSums:
    """As `SoftmaxRows.sums`."""

    terms: tuple[Integers, ...]
    feature: int
    leaves: Integers
    softmax: Softmax
    length: int
    most: Integers
    taxicab: bool

    def __call__(self, part: Partition) -> Integers:
        scores, of = _score_rows(part, self.terms), self.softmax
        columns = part.codes(self.feature), self.leaves, part.labels, scores
        limits = self.length, self.most, self.taxicab, int(self.leaves.max()) + 1
        sums: Integers = kernels.softmax.sum_residuals(*columns, of.constant, of.powers, of.shift, *limits)
        return sums


@dataclass(frozen=True, eq=False)
class SlopeSums:
    """As `SoftmaxRows.slopes`."""

    terms: tuple[Integers, ...]
    softmax: Softmax
    farthest: int
    most: int

    def __call__(self, part: Partition) -> Integers:
        scores, of = _score_rows(part, self.terms), self.softmax
        exponents = of.constant, of.powers, of.shift, of.digits
        sums: Integers = kernels.softmax.sum_slopes(part.labels, scores, *exponents, self.farthest, self.most)
        return sums


def _score_rows(part: Partition, terms: tuple[Integers, ...]) -> NDArray[np.int32]:
    """Return the scores of each row by these terms. InputError where 32 bits might not hold one."""
    progress: _Progress | None = part.memo.pop(MEMO, None)  # nothing half done is found after an exception
    if progress is None:
        scores = scratch_array((part.size, terms[0].shape[1]), np.uint32, part.folder).view(np.int32)
        scores[:] = 0
        progress = _Progress(tuple(np.zeros_like(term) for term in terms), np.zeros(len(terms), np.int64), scores)
    largest = progress.largest.copy()
    for feature, (old, new) in enumerate(zip(progress.terms, terms, strict=True)):
        if old is not new:
            largest[feature] = np.abs(new).max()
    if largest.sum() > WIDEST:
        raise InputError(f"terms: the largest of each may add up to at most {WIDEST}")
    for feature, (old, new) in enumerate(zip(progress.terms, terms, strict=True)):
        if old is not new and not np.array_equal(old, new):
            kernels.softmax.add_changes(part.codes(feature), (new - old).astype(np.int32), progress.scores)
    part.memo[MEMO] = _Progress(terms, largest, progress.scores)
    return progress.scores
