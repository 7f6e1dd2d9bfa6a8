"""What is left to explain of rows by a released additive model: kinds of residuals, their sums over leaves and cells,
and what else is told by scores. All sums are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from training.rows import kernels
from training.rows.partitions.partition import Integers, Partition
from training.rows.statistics.additive_rows import Joint, Progress

BLOCK = 1 << 20  # numbers of rows that are held at one time
Scores = NDArray[np.int32]


class RowResiduals(Protocol):
    """What a row adds to sums, by its answer and its scores: a number, or one for each of several classes."""

    def sums(self, codes: NDArray[Any], leaves: Integers, part: Partition, scores: Scores) -> Integers:
        """Sum per leaf; `leaves`: the leaf of each code. (leaves,) or (leaves, classes)"""

    def cells(self, pairs: Sequence[Joint], part: Partition, scores: Scores) -> Integers:
        """Return the same per cell of each pair: (pairs, most cells), or so many numbers; 0 where a pair has fewer."""


@dataclass(frozen=True, eq=False)
class TableResiduals:
    """Two classes: table[label, score - low]; `low` without the constant."""

    table: NDArray[np.int32]
    low: int

    def sums(self, codes: NDArray[Any], leaves: Integers, part: Partition, scores: Scores) -> Integers:
        """Sum per leaf: (leaves,)."""
        columns = codes, leaves, part.labels, scores
        return kernels.additive.sum_classes(*columns, self.table, self.low, int(leaves.max()) + 1)

    def cells(self, pairs: Sequence[Joint], part: Partition, scores: Scores) -> Integers:
        """Return the same per cell of each pair."""

        def values(some: slice, found: NDArray[np.int32]) -> None:
            kernels.additive.class_values(part.labels[some], scores[some], self.table, self.low, found)

        return _cell_sums(part, pairs, values)


@dataclass(frozen=True, eq=False)
class ClippedResiduals:
    """A number: the clipped target - score - constant times factor / 2^FRACTION, toward zero."""

    constant: int
    clip: int
    factor: int

    def sums(self, codes: NDArray[Any], leaves: Integers, part: Partition, scores: Scores) -> Integers:
        """Sum per leaf: (leaves,)."""
        columns = codes, leaves, part.targets, scores
        return kernels.additive.sum_numbers(*columns, self.constant, self.clip, self.factor, int(leaves.max()) + 1)

    def squares(self, part: Partition, scores: Scores, most: int) -> Integers:
        """Sum the square of each clipped residual, as a part of the clip's square, in 1 / most rounded down: (1,)."""
        total = 0
        for start in range(0, part.size, BLOCK):
            block = slice(start, start + BLOCK)
            left = part.targets[block].astype(np.int64) - scores[block] - self.constant
            left = np.clip(left, -self.clip, self.clip)
            total += int((left * left * most // self.clip**2).sum())
        return np.array([total], np.int64)

    def cells(self, pairs: Sequence[Joint], part: Partition, scores: Scores) -> Integers:
        """Return the same per cell of each pair."""
        about = self.constant, self.clip, self.factor

        def values(some: slice, found: NDArray[np.int32]) -> None:
            kernels.additive.number_values(part.targets[some], scores[some], *about, found)

        return _cell_sums(part, pairs, values)


@dataclass(frozen=True, eq=False)
class QuantileSlopes(ClippedResiduals):
    """What the loss of a quantile says of a row, in place of its clipped residual and of the row itself: how steep it
    is, at most `most` in size, and how bent, at most `bent`. The loss is least where so many `thousandths` of rows lie
    below, and smoothed within the clip. It is nowhere more bent than a parabola that is so bent as the clip over what
    is left, and touches it there.
    """

    most: int
    bent: int
    thousandths: int

    def by_leaf(self, leaves: NDArray[Any], count: int, part: Partition, scores: Scores) -> Integers:
        """Sum both per leaf: (2, leaves). Sums of a block are whole numbers below 2^53, which float64 adds exactly."""
        sums, longer = np.zeros((2, count), np.int64), max(self.thousandths, 1000 - self.thousandths)
        for start in range(0, part.size, BLOCK):
            block = slice(start, start + BLOCK)
            far = part.targets[block].astype(np.int64) - scores[block] - self.constant
            near = np.clip(far, -self.clip, self.clip)
            steep = ((2 * self.thousandths - 1000) * self.clip + 1000 * near) * self.most
            steep = np.sign(steep) * (np.abs(steep) // (2 * longer * self.clip))
            bent = self.bent * self.clip // np.maximum(np.abs(far), self.clip)
            for row, values in zip(sums, (steep, bent), strict=True):
                row += np.bincount(leaves[block], values, count).astype(np.int64)
        return sums


@dataclass(frozen=True, eq=False)
class Softmax:
    """What turns scores into chances: the `constant` of each class, and exp(-d) of scores d below the highest in steps
    of 2^shift, as `powers` in 2^-24. `digits`: binary digits of a score, in logits.
    """

    constant: Integers
    powers: NDArray[np.int32]
    shift: int
    digits: int


@dataclass(frozen=True, eq=False)
class SoftmaxResiduals:
    """Several classes: a number for each, as `kernels.softmax.sum_residuals` says."""

    softmax: Softmax
    length: int
    most: Integers
    taxicab: bool

    def sums(self, codes: NDArray[Any], leaves: Integers, part: Partition, scores: Scores) -> Integers:
        """Sum per leaf and class: (leaves, classes)."""
        of, limits = self.softmax, (self.length, self.most, self.taxicab, int(leaves.max()) + 1)
        columns = codes, leaves, part.labels, scores
        return np.asarray(kernels.softmax.sum_residuals(*columns, of.constant, of.powers, of.shift, *limits))

    def cells(self, pairs: Sequence[Joint], part: Partition, scores: Scores) -> Integers:
        """Return the same per cell of each pair."""
        sums = np.zeros((len(pairs), max(pair.cells for pair in pairs), scores.shape[1]), np.int64)
        for pair, found in zip(pairs, sums, strict=True):
            found[: pair.cells] = self.sums(pair.codes(part), np.arange(pair.cells), part, scores)
        return sums


def _cell_sums(part: Partition, pairs: Sequence[Joint], values: Callable[[slice, NDArray[np.int32]], None]) -> Integers:
    """Add up what `values` writes of some rows over the cells of each pair: block by block, so that no value is held
    for long.
    """
    cell_sums = np.zeros((len(pairs), max(pair.cells for pair in pairs)), np.int64)
    sides, buffer = [pair.sides(part) for pair in pairs], np.empty(min(part.size, BLOCK), np.int32)
    for start in range(0, part.size, BLOCK):
        block = slice(start, min(start + BLOCK, part.size))
        row_values = buffer[: block.stop - start]
        values(block, row_values)
        for pair, (first, second, down, across), sums in zip(pairs, sides, cell_sums, strict=True):
            sums[: pair.cells] += kernels.additive.sum_joint(
                first[block], second[block], down, across, row_values, pair.cells
            )
    return cell_sums


@dataclass(frozen=True, eq=False)
class LeafSums:
    """Sums of residuals per leaf of a partition of a feature's bins, or of a joint's cells."""

    residuals: RowResiduals
    feature: int
    leaves: Integers

    def __call__(self, part: Partition, progress: Progress) -> Integers:
        return self.residuals.sums(progress.codes(part, self.feature), self.leaves, part, progress.scores)


@dataclass(frozen=True, eq=False)
class CellSums:
    """Sums of residuals per cell of each pair: (pairs, most cells, ..), 0 where a pair has fewer."""

    residuals: RowResiduals
    pairs: tuple[Joint, ...]

    def __call__(self, part: Partition, progress: Progress) -> Integers:
        return self.residuals.cells(self.pairs, part, progress.scores)


@dataclass(frozen=True, eq=False)
class BandCounts:
    """Rows per class and band of scores: (2, bands); `last`: the last score of every band but the highest, without the
    constant.
    """

    last: Integers

    def __call__(self, part: Partition, progress: Progress) -> Integers:
        return kernels.additive.count_bands(part.labels, progress.scores, self.last)


@dataclass(frozen=True, eq=False)
class SlopeSums:
    """Sums over rows as `kernels.softmax.sum_slopes` says: (2,)."""

    softmax: Softmax
    farthest: int
    most: int

    def __call__(self, part: Partition, progress: Progress) -> Integers:
        of = self.softmax
        exponents = of.constant, of.powers, of.shift, of.digits
        return np.asarray(
            kernels.softmax.sum_slopes(part.labels, progress.scores, *exponents, self.farthest, self.most)
        )


@dataclass(frozen=True, eq=False)
class NumberAgreement:
    """The sum of what scores add, clipped to -added..added, times what the constant leaves of targets, clipped to
    -left..left, in steps of `left` * `added` / `most`, toward zero. (1,)
    """

    constant: int
    left: int
    added: int
    most: int

    def __call__(self, part: Partition, progress: Progress) -> Integers:
        total = 0
        for start in range(0, part.size, BLOCK):
            block = slice(start, start + BLOCK)
            left = np.clip(part.targets[block].astype(np.int64) - self.constant, -self.left, self.left)
            products = left * np.clip(progress.scores[block].astype(np.int64), -self.added, self.added)
            total += int((np.sign(products) * (np.abs(products) * self.most // (self.left * self.added))).sum())
        return np.array([total], np.int64)


@dataclass(frozen=True, eq=False)
class ClassAgreement:
    """The sum of the label's score less the mean by `chances`, whole numbers, clipped to -far..far, in steps of
    `far` / `most`, toward zero. (1,)
    """

    chances: Integers
    far: int
    most: int

    def __call__(self, part: Partition, progress: Progress) -> Integers:
        whole, step, total = int(self.chances.sum()), BLOCK // self.chances.size, 0
        for start in range(0, part.size, step):
            block = progress.scores[start : start + step].astype(np.int64)
            own = block[np.arange(len(block)), part.labels[start : start + step]]
            more = np.clip(own * whole - block @ self.chances, -self.far, self.far)
            total += int((np.sign(more) * (np.abs(more) * self.most // self.far)).sum())
        return np.array([total], np.int64)
