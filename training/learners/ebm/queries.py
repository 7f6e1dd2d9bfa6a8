"""What DP-EBM asks of rows, in whole numbers, and how far one row moves the answers (docs/privacy/ebm.md): the same of
two classes, of a number, and of three classes or more, whose residuals are vectors.

Every row counts in one bin of a feature, and in one leaf of a partition of its bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.errors import PlanMismatch
from dpserve_verify.privacy.budget import Relation
from training.learners.boosting.probabilities import ScoreCounts, last_scores
from training.learners.ebm.residuals import GRID, SCORES, Residuals, softmax_of
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.rows.statistics import residuals
from training.rows.statistics.additive_rows import AdditiveRows, Joint, bin_counts, joint_counts, square_sum
from training.session.reach import Norm, OnePlace, reach

Integers = NDArray[np.int64]
FARTHEST = 4  # logits: what a row says of the slope is clipped to it


@dataclass(frozen=True)
class BinCounts(OnePlace):
    """Rows per bin of a feature, times GRID."""

    feature: int
    size: int
    norm: Norm
    one: ClassVar[int] = GRID
    purpose: ClassVar[str] = "count rows per bin"

    def __call__(self, rows: Rows) -> Integers:
        return bin_counts(rows, self.feature) * GRID


@dataclass(frozen=True)
class BandCounts(OnePlace):
    """Rows per class and band of scores, times GRID, class 0 first: a row counts in one place. `terms` as in
    `LeafSums`; scores are without the constant.
    """

    terms: tuple[Integers, ...]
    joints: tuple[Joint, ...]
    norm: Norm
    one: ClassVar[int] = GRID
    purpose: ClassVar[str] = ScoreCounts.purpose
    size: ClassVar[int] = ScoreCounts.size

    def __call__(self, rows: Rows) -> Integers:
        last = last_scores(1 / SCORES).astype(np.int64)
        return AdditiveRows(rows, self.terms, self.joints).ask(residuals.BandCounts(last)).ravel() * GRID


@dataclass(frozen=True)
class JointCounts(OnePlace):
    """Rows per cell of two features, times GRID: as of one feature's bins, a row counts in one."""

    joint: Joint
    norm: Norm
    one: ClassVar[int] = GRID
    purpose: ClassVar[str] = "count rows per cell of a pair"

    @property
    def size(self) -> int:
        """Count the cells."""
        return self.joint.cells

    def __call__(self, rows: Rows) -> Integers:
        return joint_counts(rows, self.joint) * GRID


@dataclass(frozen=True, eq=False)
class OfResiduals:
    """Queries of residuals, under released `terms` without the constant: (bins,) each, of several classes (bins,
    classes).
    """

    residuals: Residuals
    terms: tuple[Integers, ...]
    by_weight: ClassVar[bool] = True

    @property
    def norm(self) -> Norm:
        """Return the norm that the residuals are held to."""
        return self.residuals.norm

    @property
    def reached(self) -> int:
        """Return how far one row moves all answers, in their norm and grid steps, rounded up."""
        raise NotImplementedError

    def sensitivity(self, relation: Relation) -> int:
        """Return the same. PlanMismatch for another relation than the residuals were scaled for."""
        if relation is not self.residuals.relation:
            raise PlanMismatch(f"relation={relation}: the residuals were scaled for {self.residuals.relation}")
        return self.reached


@dataclass(frozen=True, eq=False)
class LeafSums(OfResiduals):
    """Sums of residuals over the leaves of a public partition of a feature's bins, leaf by leaf; `leaves`: (bins,), the
    leaf of each. Behind the features stand the `joints`, whose bins are cells.
    """

    feature: int
    leaves: Integers
    joints: tuple[Joint, ...] = ()
    reached: ClassVar[int] = GRID  # the scale to which `__call__` holds the residuals

    @property
    def purpose(self) -> str:
        """Return what a plan says of it."""
        return f"sum residuals per leaf{self.residuals.per}{self.residuals.words}"

    @property
    def size(self) -> int:
        """Count the answers: one for each leaf, and class."""
        return (int(self.leaves.max()) + 1) * self.residuals.outputs

    def __call__(self, rows: Rows) -> Integers:
        """Answer; the bound is decided in whole numbers, before a row is looked at."""
        check_moved(self.residuals)
        sums = residuals.LeafSums(self.residuals.of_rows(), self.feature, self.leaves)
        return AdditiveRows(rows, self.terms, self.joints).ask(sums).ravel()


@dataclass(frozen=True, eq=False)
class PairScores(OfResiduals):
    """How much two features together leave to explain, of each of the `joints`, in grid steps: the sizes, or lengths,
    of the sums of residuals over its cells, added up, less those over its rows or its columns, whichever are more: what
    either feature leaves by itself is no reason to look at both.

    A row moves one such score by twice what it adds to its cell at most, and by two steps where lengths are rounded
    down; one that is replaced by twice that; and all of them at once, together by as much times their number in L1,
    times its root in L2.
    """

    joints: tuple[Joint, ...]

    @property
    def purpose(self) -> str:
        """Return what a plan says of it."""
        return f"score pairs of features{self.residuals.words}"

    @property
    def size(self) -> int:
        """Count the answers: one for each pair."""
        return len(self.joints)

    @property
    def most(self) -> int:
        """Return how far one row moves one score at most."""
        return self.residuals.scored

    @property
    def reached(self) -> int:
        """Return how far one row moves all scores, in their norm and grid steps, rounded up."""
        return reach(self.most, 0, Relation.ADD_REMOVE, self.norm, self.size)

    def __call__(self, rows: Rows) -> Integers:
        """Answer; the bound is decided in whole numbers, before a row is looked at."""
        longest = self.residuals.longest + (self.residuals.outputs > 1)
        moved = longest * (2 if self.residuals.relation is Relation.ADD_REMOVE else 4)
        if moved > self.most:
            raise PlanMismatch(f"sensitivity={self.most}: a row could move a score by {moved}")
        found = AdditiveRows(rows, self.terms).ask(residuals.CellSums(self.residuals.of_rows(), self.joints))
        tables = (sums[: joint.cells].reshape(*joint.shape, -1) for joint, sums in zip(self.joints, found, strict=True))
        return np.array([together(table) for table in tables], np.int64)


@dataclass(frozen=True, eq=False)
class PairSums(OfResiduals):
    """Sums of residuals over the cells of each of the `joints`, cell by cell, one pair after the other: what pairs are
    found by where scores cannot be asked for, for they are no sums over rows.

    A row adds its residual to one cell of each, so it moves all of them by what it moves the sums of one feature at
    most, times their number in L1, times its root in L2.
    """

    joints: tuple[Joint, ...]

    @property
    def purpose(self) -> str:
        """Return what a plan says of it."""
        return f"sum residuals per cell of pairs{self.residuals.per}{self.residuals.words}"

    @property
    def size(self) -> int:
        """Count the answers: one for each cell, and class."""
        return sum(joint.cells for joint in self.joints) * self.residuals.outputs

    @property
    def reached(self) -> int:
        """Return how far one row moves all sums, in their norm and grid steps, rounded up."""
        return reach(GRID, 0, Relation.ADD_REMOVE, self.norm, len(self.joints))

    def __call__(self, rows: Rows) -> Integers:
        """Answer; the bound is decided in whole numbers, before a row is looked at."""
        check_moved(self.residuals)
        found = AdditiveRows(rows, self.terms).ask(residuals.CellSums(self.residuals.of_rows(), self.joints))
        return np.concatenate([sums[: joint.cells].ravel() for joint, sums in zip(self.joints, found, strict=True)])


def check_moved(residuals: Residuals) -> None:
    """Raise PlanMismatch where a row could move sums over leaves by more than GRID, in whole numbers."""
    if residuals.moved > GRID:
        raise PlanMismatch(f"sensitivity={GRID}: a row could move these sums by {residuals.moved}")


def together(table: Integers) -> int:
    """Sum the lengths of a table's numbers, (rows, columns, outputs), less those of its rows' or of its columns' sums,
    whichever are more.
    """
    return lengths(table) - max(lengths(table.sum(axis=side)) for side in (0, 1))


def lengths(vectors: Integers) -> int:
    """Sum the lengths in L2 of the vectors along the last axis, each rounded down, in whole numbers."""
    return sum(isqrt(sum(part * part for part in vector)) for vector in vectors.reshape(-1, vectors.shape[-1]).tolist())


@dataclass(frozen=True)
class SquareSum:
    """A number: the sum of min(|target - constant|, 1)^2, in half ranges, times TARGET_GRID. One sum of parts from 0 to
    TARGET_GRID: a row moves it by no more than that under either relation.
    """

    constant: int
    norm: Norm
    by_weight: ClassVar[bool] = True
    purpose: ClassVar[str] = "sum squared residuals"
    size: ClassVar[int] = 1

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves the sum."""
        return TARGET_GRID

    def __call__(self, rows: Rows) -> Integers:
        return np.array([square_sum(rows, self.constant, TARGET_GRID)], np.int64)


@dataclass(frozen=True, eq=False)
class SlopeSums:
    """How the log likelihood rises with the slope of the scores, and how that bends: two sums over rows, whose parts
    are a rise in -FARTHEST..FARTHEST logits and a variance in 0..FARTHEST, at most `part` grid steps each.
    """

    constant: Integers
    terms: tuple[Integers, ...]
    joints: tuple[Joint, ...]
    norm: Norm
    relation: Relation
    by_weight: ClassVar[bool] = True
    purpose: ClassVar[str] = "sum how chances follow the slope of scores"
    size: ClassVar[int] = 2

    @property
    def part(self) -> int:
        """Return the largest part of a row, in grid steps: rises of two rows may be twice as far apart, variances not,
        so together they move by 2 or 3 parts in L1, and by sqrt(2) or sqrt(5) in L2.
        """
        across, bend = (1 if self.relation is Relation.ADD_REMOVE else 2), 1
        if self.norm == "l1":
            return GRID // (across + bend)
        return isqrt(GRID**2 // (across**2 + bend**2))

    @property
    def worth(self) -> float:
        """Return the worth of one grid step, in logits of a row."""
        return FARTHEST / self.part

    def sensitivity(self, relation: Relation) -> int:
        """Return GRID, which `part` keeps to. PlanMismatch for another relation."""
        if relation is not self.relation:
            raise PlanMismatch(f"relation={relation}: the parts were scaled for {self.relation}")
        return GRID

    def __call__(self, rows: Rows) -> Integers:
        slopes = residuals.SlopeSums(softmax_of(self.constant), FARTHEST, self.part)
        return AdditiveRows(rows, self.terms, self.joints).ask(slopes)
