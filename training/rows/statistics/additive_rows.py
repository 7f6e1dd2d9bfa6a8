"""Rows seen by a released additive model: the score of each row, or one for each of several classes, and counts of
rows.

The terms and the leaves are public; what the rows derive from them stays with them, as a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from training.rows import kernels
from training.rows.packed.scratch import scratch_array
from training.rows.partitions.partition import Integers, Partition
from training.rows.partitions.rows import Rows

MEMO = "additive"
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
    """Kept in `memo`: the terms that were applied, and the score of each row by them, (rows,) or (rows, classes),
    without the constant; and the cell of each row of every joint."""

    terms: tuple[Integers, ...]
    scores: NDArray[np.int32]
    joints: tuple[Joint, ...]
    cells: list[NDArray[Any]]

    def codes(self, part: Partition, feature: int) -> NDArray[Any]:
        """Return the codes of a feature, or of the joints, which stand behind the features."""
        features = len(part.widths)
        return part.codes(feature) if feature < features else self.cells[feature - features]


class Statistic(Protocol):
    """What is asked of rows and their scores."""

    def __call__(self, part: Partition, progress: Progress) -> Integers:
        """Answer for one partition: what adds up over partitions."""


class AdditiveRows:
    """Rows under the terms released so far, one (bins,) array of integers per feature, and then one (cells,) for each
    of the `joints`, which stand behind the features; of several classes (bins, classes) and (cells, classes). Arrays
    are not changed once they were given here: a term that is the same object is not looked at again.
    """

    def __init__(self, rows: Rows, terms: Sequence[Integers], joints: tuple[Joint, ...] = ()) -> None:
        all_terms = np.concatenate(terms)
        most = max(int(all_terms.max()), -int(all_terms.min())) * len(terms)  # nearly always tells
        if most > WIDEST and sum(int(np.abs(term).max()) for term in terms) > WIDEST:
            raise InputError(f"terms: the largest of each may add up to at most {WIDEST}")
        self._rows, self._model = rows, (tuple(terms), joints)

    def ask(self, statistic: Statistic) -> Integers:
        """Return what the rows answer with these scores, all partitions together."""
        return self._rows.ask(Scored(self._model, statistic))


Model = tuple[tuple[Integers, ...], tuple[Joint, ...]]  # terms, and the joints that the last of them are of


@dataclass(frozen=True, eq=False)
class Scored:
    """A statistic under a model."""

    model: Model
    statistic: Statistic

    def __call__(self, part: Partition) -> Integers:
        return self.statistic(part, _score_rows(part, self.model))


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
    shape = part.size, *terms[0].shape[1:]
    if progress is None or progress.scores.shape != shape or progress.joints != joints[: len(progress.joints)]:
        scores = scratch_array((part.size, terms[0][0].size), np.uint32, part.folder).view(np.int32).reshape(shape)
        scores[:] = 0
        progress = Progress((), scores, (), [])
    before = (*progress.terms, *(np.zeros_like(term) for term in terms[len(progress.terms) :]))
    cells = [*progress.cells, *(joint.codes(part) for joint in joints[len(progress.joints) :])]
    progress = Progress(terms, progress.scores, joints, cells)
    add = kernels.additive.add_change if progress.scores.ndim == 1 else kernels.softmax.add_changes
    for feature, (old, new) in enumerate(zip(before, terms, strict=True)):
        if old is not new and not np.array_equal(old, new):  # elsewhere every question brings its own
            add(progress.codes(part, feature), (new - old).astype(np.int32), progress.scores)
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
