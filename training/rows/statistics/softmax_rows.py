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
from training.rows.statistics.additive_rows import WIDEST, Joint, Progress

MEMO = "softmax"
BLOCK = 1 << 18  # rows whose scores are held at one time


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
class _Progress(Progress):
    """Kept in `memo`, with the largest number of each term that was applied; scores are (rows, classes)."""

    largest: Integers


class SoftmaxRows:
    """Rows under the terms released so far, one (bins, classes) array of integers per feature, and then one (cells,
    classes) for each of the `joints`, which stand behind the features. Arrays are not changed once they were given
    here: a term that is the same object is not looked at again.
    """

    def __init__(self, rows: Rows, terms: Sequence[Integers], joints: tuple[Joint, ...] = ()) -> None:
        self._rows, self._model = rows, (tuple(terms), joints)

    def sums(
        self, feature: int, leaves: Integers, softmax: Softmax, length: int, most: Integers, taxicab: bool
    ) -> Integers:
        """Sum the residuals per leaf and class, (leaves, classes), as `kernels.softmax.sum_residuals` says."""
        return self._rows.ask(ResidualSums(self._model, feature, leaves, softmax, length, most, taxicab))

    def cells(self, pairs: Sequence[Joint], softmax: Softmax, length: int, most: Integers, taxicab: bool) -> Integers:
        """Sum the same per cell of each pair: (pairs, most cells, classes), 0 where a pair has fewer."""
        return self._rows.ask(CellSums(self._model, tuple(pairs), softmax, length, most, taxicab))

    def slopes(self, softmax: Softmax, farthest: int, most: int) -> Integers:
        """Sum over rows what `kernels.softmax.sum_slopes` says: (2,)."""
        return self._rows.ask(SlopeSums(self._model, softmax, farthest, most))

    def agreement(self, chances: Integers, far: int, most: int) -> Integers:
        """Sum the label's score less the mean by `chances`, whole numbers, clipped to -far..far, in steps of
        `far` / `most`, toward zero. (1,)
        """
        return self._rows.ask(Agreement(self._model, chances, far, most))


Model = tuple[tuple[Integers, ...], tuple[Joint, ...]]  # terms, and the joints that the last of them are of


@dataclass(frozen=True, eq=False)
class ResidualSums:
    """As `SoftmaxRows.sums`."""

    model: Model
    feature: int
    leaves: Integers
    softmax: Softmax
    length: int
    most: Integers
    taxicab: bool

    def __call__(self, part: Partition) -> Integers:
        progress, of = _score_rows(part, self.model), self.softmax
        columns = progress.codes(part, self.feature), self.leaves, part.labels, progress.scores
        limits = self.length, self.most, self.taxicab, int(self.leaves.max()) + 1
        sums: Integers = kernels.softmax.sum_residuals(*columns, of.constant, of.powers, of.shift, *limits)
        return sums


@dataclass(frozen=True, eq=False)
class CellSums:
    """As `SoftmaxRows.cells`."""

    model: Model
    pairs: tuple[Joint, ...]
    softmax: Softmax
    length: int
    most: Integers
    taxicab: bool

    def __call__(self, part: Partition) -> Integers:
        scores, of = _score_rows(part, self.model).scores, self.softmax
        sums = np.zeros((len(self.pairs), max(pair.cells for pair in self.pairs), scores.shape[1]), np.int64)
        for pair, found in zip(self.pairs, sums, strict=True):
            columns = pair.codes(part), np.arange(pair.cells), part.labels, scores
            limits = self.length, self.most, self.taxicab, pair.cells
            found[: pair.cells] = kernels.softmax.sum_residuals(*columns, of.constant, of.powers, of.shift, *limits)
        return sums


@dataclass(frozen=True, eq=False)
class SlopeSums:
    """As `SoftmaxRows.slopes`."""

    model: Model
    softmax: Softmax
    farthest: int
    most: int

    def __call__(self, part: Partition) -> Integers:
        scores, of = _score_rows(part, self.model).scores, self.softmax
        exponents = of.constant, of.powers, of.shift, of.digits
        sums: Integers = kernels.softmax.sum_slopes(part.labels, scores, *exponents, self.farthest, self.most)
        return sums


@dataclass(frozen=True, eq=False)
class Agreement:
    """As `SoftmaxRows.agreement`."""

    model: Model
    chances: Integers
    far: int
    most: int

    def __call__(self, part: Partition) -> Integers:
        scores, whole, total = _score_rows(part, self.model).scores, int(self.chances.sum()), 0
        for start in range(0, part.size, BLOCK):
            block = scores[start : start + BLOCK].astype(np.int64)
            own = block[np.arange(len(block)), part.labels[start : start + BLOCK]]
            more = np.clip(own * whole - block @ self.chances, -self.far, self.far)
            total += int((np.sign(more) * (np.abs(more) * self.most // self.far)).sum())
        return np.array([total], np.int64)


def _score_rows(part: Partition, model: Model) -> _Progress:
    """Return the scores of each row by these terms, and its cell of every joint. InputError where 32 bits might not
    hold a score.
    """
    terms, joints = model
    progress: _Progress | None = part.memo.pop(MEMO, None)  # nothing half done is found after an exception
    if progress is None or progress.joints != joints[: len(progress.joints)]:
        scores = scratch_array((part.size, terms[0].shape[1]), np.uint32, part.folder).view(np.int32)
        scores[:] = 0
        progress = _Progress((), scores, (), [], np.zeros(0, np.int64))
    before = (*progress.terms, *(np.zeros_like(term) for term in terms[len(progress.terms) :]))
    largest = np.append(progress.largest, np.zeros(len(terms) - len(progress.largest), np.int64))
    cells = [*progress.cells, *(joint.codes(part) for joint in joints[len(progress.joints) :])]
    progress = _Progress(terms, progress.scores, joints, cells, largest)
    changed = [at for at, (old, new) in enumerate(zip(before, terms, strict=True)) if old is not new]
    for at in changed:
        largest[at] = np.abs(terms[at]).max()
    if largest.sum() > WIDEST:
        raise InputError(f"terms: the largest of each may add up to at most {WIDEST}")
    for at in changed:
        if not np.array_equal(before[at], terms[at]):
            change = (terms[at] - before[at]).astype(np.int32)
            kernels.softmax.add_changes(progress.codes(part, at), change, progress.scores)
    part.memo[MEMO] = progress
    return progress
