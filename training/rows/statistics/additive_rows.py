"""Rows seen by a released additive model: the score of each row, and integer sums of residuals over leaves.

The terms and the leaves are public; what the rows derive from them stays with them, as a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from training.rows import kernels
from training.rows.packed.scratch import scratch_array
from training.rows.partitions.partition import Integers, Partition
from training.rows.partitions.rows import Rows

MEMO = "additive"
BLOCK = 1 << 20  # rows whose values are held at one time
WIDEST = 1 << 30  # of a score without its constant, whatever the row: 32 bits hold it, and what is added to it


@dataclass(frozen=True)
class Joint:
    """Two features as one: a row is in the cell of the groups that its codes of both are in. `features`: their places;
    `groups`: the group of each code of either.
    """

    features: tuple[int, int]
    groups: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of groups of the first feature and of the second."""
        return max(self.groups[0]) + 1, max(self.groups[1]) + 1

    @property
    def cells(self) -> int:
        """Count the cells."""
        rows, columns = self.shape
        return rows * columns

    def codes(self, part: Partition) -> NDArray[Any]:
        """Return the cell of each row: (rows,)."""
        [cells] = scratch_array((1, part.size), np.uint8 if self.cells <= 256 else np.uint16, part.folder)
        kernels.additive.join(*self.sides(part), cells)
        return np.asarray(cells)

    def sides(self, part: Partition) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.uint16], NDArray[np.uint16]]:
        """Return codes of both features, and what each of them adds to the number of the cell."""
        down = np.array(self.groups[0], np.uint16) * np.uint16(self.shape[1])
        first, second = map(part.codes, self.features)
        return first, second, down, np.array(self.groups[1], np.uint16)


@dataclass
class Progress:
    """Kept in `memo`: the terms that were applied, and the score of each row by them, without the constant; and the
    cell of each row of every joint."""

    terms: tuple[Integers, ...]
    scores: NDArray[np.int32]
    joints: tuple[Joint, ...]
    cells: list[NDArray[Any]]

    def codes(self, part: Partition, feature: int) -> NDArray[Any]:
        """Return the codes of a feature, or of the joints, which stand behind the features."""
        features = len(part.widths)
        return part.codes(feature) if feature < features else self.cells[feature - features]


class AdditiveRows:
    """Rows under the terms released so far, one (bins,) array of integers per feature, and then one (cells,) for each
    of the `joints`, which stand behind the features. Arrays are not changed once they were given here: a term that is
    the same object is not looked at again.
    """

    def __init__(self, rows: Rows, terms: Sequence[Integers], joints: tuple[Joint, ...] = ()) -> None:
        all_terms = np.concatenate(terms)
        most = max(int(all_terms.max()), -int(all_terms.min())) * len(terms)  # nearly always tells
        if most > WIDEST and sum(int(np.abs(term).max()) for term in terms) > WIDEST:
            raise InputError(f"terms: the largest of each may add up to at most {WIDEST}")
        self._rows, self._model = rows, (tuple(terms), joints)

    def class_sums(self, feature: int, leaves: Integers, table: NDArray[np.int32], low: int) -> Integers:
        """Sum per leaf of table[label, score - low]; `low` without the constant. (leaves,)"""
        return self._rows.ask(ClassSums(self._model, feature, leaves, table, low))

    def number_sums(self, feature: int, leaves: Integers, constant: int, clip: int, factor: int) -> Integers:
        """Sum per leaf of the clipped residuals times factor / 2^FRACTION, toward zero. (leaves,)"""
        return self._rows.ask(NumberSums(self._model, feature, leaves, constant, clip, factor))

    def class_cells(self, pairs: Sequence[Joint], table: NDArray[np.int32], low: int) -> Integers:
        """Return `class_sums` per cell of each pair: (pairs, most cells), 0 where a pair has fewer."""
        return self._rows.ask(ClassCells(self._model, tuple(pairs), table, low))

    def number_cells(self, pairs: Sequence[Joint], constant: int, clip: int, factor: int) -> Integers:
        """Return `number_sums` per cell of each pair: (pairs, most cells), 0 where a pair has fewer."""
        return self._rows.ask(NumberCells(self._model, tuple(pairs), constant, clip, factor))

    def agreement(self, constant: int, left: int, added: int, most: int) -> Integers:
        """Sum what scores add, clipped to -added..added, times what the constant leaves of targets, clipped to
        -left..left, in steps of `left` * `added` / `most`, toward zero. (1,)
        """
        return self._rows.ask(Agreement(self._model, constant, left, added, most))

    def band_counts(self, last: Integers) -> Integers:
        """Return rows per class and band of scores: (2, bands); `last`: the last score of every band but the highest,
        without the constant.
        """
        return self._rows.ask(BandCounts(self._model, last))


Model = tuple[tuple[Integers, ...], tuple[Joint, ...]]  # terms, and the joints that the last of them are of


@dataclass(frozen=True)
class ClassSums:
    """As `AdditiveRows.class_sums`."""

    model: Model
    feature: int
    leaves: Integers
    table: NDArray[np.int32]
    low: int

    def __call__(self, part: Partition) -> Integers:
        progress = _score_rows(part, self.model)
        columns = progress.codes(part, self.feature), self.leaves, part.labels, progress.scores
        return kernels.additive.sum_classes(*columns, self.table, self.low, int(self.leaves.max()) + 1)


@dataclass(frozen=True)
class NumberSums:
    """As `AdditiveRows.number_sums`."""

    model: Model
    feature: int
    leaves: Integers
    constant: int
    clip: int
    factor: int

    def __call__(self, part: Partition) -> Integers:
        progress = _score_rows(part, self.model)
        columns = progress.codes(part, self.feature), self.leaves, part.targets, progress.scores
        return kernels.additive.sum_numbers(*columns, self.constant, self.clip, self.factor, int(self.leaves.max()) + 1)


@dataclass(frozen=True)
class ClassCells:
    """As `AdditiveRows.class_cells`."""

    model: Model
    pairs: tuple[Joint, ...]
    table: NDArray[np.int32]
    low: int

    def __call__(self, part: Partition) -> Integers:
        scores = _score_rows(part, self.model).scores

        def values(some: slice, found: NDArray[np.int32]) -> None:
            kernels.additive.class_values(part.labels[some], scores[some], self.table, self.low, found)

        return _cell_sums(part, self.pairs, values)


@dataclass(frozen=True)
class NumberCells:
    """As `AdditiveRows.number_cells`."""

    model: Model
    pairs: tuple[Joint, ...]
    constant: int
    clip: int
    factor: int

    def __call__(self, part: Partition) -> Integers:
        scores, about = _score_rows(part, self.model).scores, (self.constant, self.clip, self.factor)

        def values(some: slice, found: NDArray[np.int32]) -> None:
            kernels.additive.number_values(part.targets[some], scores[some], *about, found)

        return _cell_sums(part, self.pairs, values)


@dataclass(frozen=True)
class Agreement:
    """As `AdditiveRows.agreement`."""

    model: Model
    constant: int
    left: int
    added: int
    most: int

    def __call__(self, part: Partition) -> Integers:
        scores, total = _score_rows(part, self.model).scores, 0
        for start in range(0, part.size, BLOCK):
            block = slice(start, start + BLOCK)
            left = np.clip(part.targets[block].astype(np.int64) - self.constant, -self.left, self.left)
            products = left * np.clip(scores[block].astype(np.int64), -self.added, self.added)
            total += int((np.sign(products) * (np.abs(products) * self.most // (self.left * self.added))).sum())
        return np.array([total], np.int64)


@dataclass(frozen=True)
class BandCounts:
    """As `AdditiveRows.band_counts`."""

    model: Model
    last: Integers

    def __call__(self, part: Partition) -> Integers:
        return kernels.additive.count_bands(part.labels, _score_rows(part, self.model).scores, self.last)


def _cell_sums(
    part: Partition, pairs: tuple[Joint, ...], values: Callable[[slice, NDArray[np.int32]], None]
) -> Integers:
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


@dataclass(frozen=True)
class BinCounts:
    """As `bin_counts`."""

    feature: int

    def __call__(self, part: Partition) -> Integers:
        return kernels.additive.count_codes(part.codes(self.feature), part.widths[self.feature])


@dataclass(frozen=True)
class JointCounts:
    """As `joint_counts`."""

    joint: Joint

    def __call__(self, part: Partition) -> Integers:
        return kernels.additive.count_joint(*self.joint.sides(part), self.joint.cells)


@dataclass(frozen=True)
class SquareSum:
    """As `square_sum`."""

    constant: int
    most: int

    def __call__(self, part: Partition) -> Integers:
        return np.array(kernels.additive.sum_squares(part.targets, self.constant, self.most), np.int64)


def _score_rows(part: Partition, model: Model) -> Progress:
    """Return the score of each row by these terms, and its cell of every joint."""
    terms, joints = model
    progress: Progress | None = part.memo.pop(MEMO, None)  # nothing half done is found after an exception
    if progress is None or progress.joints != joints[: len(progress.joints)]:
        none = tuple(np.zeros(width, np.int64) for width in part.widths)
        progress = Progress(none, np.zeros(part.size, np.int32), (), [])
    new_joints = joints[len(progress.joints) :]
    before = (*progress.terms, *(np.zeros(joint.cells, np.int64) for joint in new_joints))
    progress = Progress(terms, progress.scores, joints, [*progress.cells, *(joint.codes(part) for joint in new_joints)])
    for feature, (old, new) in enumerate(zip(before, terms, strict=True)):
        if old is not new and not np.array_equal(old, new):  # elsewhere every question brings its own
            kernels.additive.add_change(progress.codes(part, feature), (new - old).astype(np.int32), progress.scores)
    part.memo[MEMO] = progress
    return progress


def bin_counts(rows: Rows, feature: int) -> Integers:
    """Return rows per code of a feature: (bins,)."""
    return rows.ask(BinCounts(feature))


def joint_counts(rows: Rows, joint: Joint) -> Integers:
    """Return rows per cell: (cells,)."""
    return rows.ask(JointCounts(joint))


def square_sum(rows: Rows, constant: int, most: int) -> int:
    """Sum min(|target - constant|, most)^2 / most, each rounded down."""
    return int(rows.ask(SquareSum(constant, most)))
