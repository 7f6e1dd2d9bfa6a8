"""What DP-EBM asks of rows, in whole numbers, and how far one row moves the answers (docs/privacy/ebm.md).

Every row counts in one bin of a feature, and in one leaf of a partition of its bins. What it adds there is at most
GRID in size, by public bounds alone; a residual is brought to that size, so that all releases have one sensitivity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import exp
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from accountant.errors import PlanMismatch
from dpserve_verify.privacy.budget import Relation
from training.learners.base.class_weights import ONE, Balance, words_of
from training.learners.boosting.probabilities import ScoreCounts, last_scores
from training.rows import kernels
from training.rows.kernels import FRACTION
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.rows.statistics.additive_rows import AdditiveRows, Joint, bin_counts, joint_counts, square_sum
from training.session.reach import Norm, OnePlace, reach

Integers = NDArray[np.int64]
GRID = 1 << 20
SCORES = 1 << 12  # scores per logit
CLIP = 8 * SCORES  # beyond, the chances of the last table entry stand


class Residuals(Protocol):
    """What is left to explain of a row. `worth`: one grid step of a sum, in logits or half ranges; `extremes`: what a
    row may add at most, (up, down) in grid steps; `words`: what a plan says of class weights.
    """

    @property
    def words(self) -> str:
        """Return what a plan says of class weights."""

    @property
    def worth(self) -> float:
        """Return the worth of one grid step of a sum, in logits or half ranges."""

    def extremes(self) -> tuple[int, int]:
        """Return what a row may add at most: (up, down), in grid steps."""

    def sums(self, rows: AdditiveRows, feature: int, leaves: Integers) -> Integers:
        """Sum the residuals per leaf of one feature: (leaves,), in grid steps."""

    def cells(self, rows: AdditiveRows, pairs: Sequence[Joint]) -> Integers:
        """Return the same per cell of each pair: (pairs, most cells)."""


@dataclass(frozen=True)
class ClassResiduals:
    """Two classes: y - p, p = 1 / (1 + exp(-score)), for scores that are known to lie in low..high (`constant`
    included). Clipped to -clip..clip, at most 1; then times what a row's class is `weighed`, at most 1.

    y - p is at most A = 1 - p(low) and at least -B, B = p(high): the further the released terms are from saying
    anything, the less one row counts.
    """

    constant: int
    low: int
    high: int
    clip: float
    relation: Relation
    norm: Norm
    weighed: Balance | None = None

    @property
    def words(self) -> str:
        """Return what a plan says of class weights."""
        return words_of(self.weighed)

    @property
    def weights(self) -> tuple[float, float]:
        """Return the weight of a row of each class."""
        first, last = self.weighed.pairs[0] if self.weighed else (ONE, ONE)
        return first / ONE, last / ONE

    @property
    def span(self) -> tuple[int, int]:
        """Return the lowest and the highest score of the table: a row beyond counts as one at its end."""
        return min(max(self.low, -CLIP), CLIP), max(min(self.high, CLIP), -CLIP)

    @cached_property
    def worth(self) -> float:
        """Return the worth of one grid step of a sum, in logits."""
        (low, high), (first, last) = self.span, self.weights
        up, down = (w * min(self.clip, 1 / (1 + exp(end / SCORES))) for w, end in ((last, low), (first, -high)))
        fine = 1 << 40
        return reach(int(fine * up) + 1, int(fine * down) + 1, self.relation, self.norm) / fine / (GRID - 2)

    @cached_property
    def table(self) -> NDArray[np.int32]:
        """Return the residuals by class and score - low: (2, scores), rounded toward zero."""
        return _table(*self.span, self.clip, *self.weights, self.worth)

    def extremes(self) -> tuple[int, int]:
        """Return what a row may add at most: (up, down), in grid steps. No row of the table rises anywhere."""
        return int(self.table[1, 0]), -int(self.table[0, -1])

    def sums(self, rows: AdditiveRows, feature: int, leaves: Integers) -> Integers:
        """Sum the residuals per leaf of one feature: (leaves,), in grid steps."""
        return rows.class_sums(feature, leaves, self.table, self.span[0] - self.constant)

    def cells(self, rows: AdditiveRows, pairs: Sequence[Joint]) -> Integers:
        """Return the same per cell of each pair: (pairs, most cells)."""
        return rows.class_cells(pairs, self.table, self.span[0] - self.constant)


@lru_cache(maxsize=4)  # rounds that know the same of the scores share it
def _table(low: int, high: int, clip: float, first: float, last: float, worth: float) -> NDArray[np.int32]:
    weights = np.array([first, last])
    return kernels.additive.clipped_steps(_residuals(), low + CLIP, high + CLIP + 1, clip, weights, worth)


@lru_cache(maxsize=1)
def _residuals() -> NDArray[np.float64]:
    """Return y - p by class and score + CLIP, which never rises with the score, whatever rounding does: (2, 2 CLIP +
    1).
    """
    chances = 1 / (1 + np.exp(-np.arange(-CLIP, CLIP + 1) / SCORES))
    return np.minimum.accumulate([-chances, 1 - chances], axis=1)


@dataclass(frozen=True)
class NumberResiduals:
    """A number: target - score, clipped to -clip..clip, all in steps of half the public range / TARGET_GRID. Targets
    are centred on the middle of that range: where it lies does not matter.
    """

    constant: int
    clip: int
    relation: Relation
    words: ClassVar[str] = ""

    @property
    def most(self) -> int:
        """Return the clip in grid steps: a row that is replaced moves a sum by twice as much, in either norm."""
        return GRID if self.relation is Relation.ADD_REMOVE else GRID // 2

    @property
    def factor(self) -> int:
        """Return the factor that scales a clipped residual to fill the grid, with FRACTION binary digits."""
        return (self.most << FRACTION) // self.clip

    @property
    def worth(self) -> float:
        """Return the worth of one grid step of a sum, in half ranges."""
        return (1 << FRACTION) / self.factor / TARGET_GRID

    def extremes(self) -> tuple[int, int]:
        """Return what a row may add at most: (up, down), in grid steps."""
        most = self.clip * self.factor >> FRACTION
        return most, most

    def sums(self, rows: AdditiveRows, feature: int, leaves: Integers) -> Integers:
        """Sum the residuals per leaf of one feature: (leaves,), in grid steps."""
        return rows.number_sums(feature, leaves, self.constant, self.clip, self.factor)

    def cells(self, rows: AdditiveRows, pairs: Sequence[Joint]) -> Integers:
        """Return the same per cell of each pair: (pairs, most cells)."""
        return rows.number_cells(pairs, self.constant, self.clip, self.factor)


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
        return AdditiveRows(rows, self.terms, self.joints).band_counts(last).ravel() * GRID


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


@dataclass(frozen=True)
class PairScores:
    """How much two features together leave to explain, of each of the `joints`, in grid steps: the sizes of the sums of
    residuals over its cells, added up, less those over its rows or its columns, whichever are more: what either
    feature leaves by itself is no reason to look at both.

    A row moves one such score by twice what it adds to its cell at most, and one that is replaced by twice that; and
    all of them at once, together by as much times their number in L1, times its root in L2.
    """

    residuals: Residuals
    terms: tuple[Integers, ...]
    joints: tuple[Joint, ...]
    norm: Norm
    relation: Relation

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
        """Return how far one row moves one score at most, given that it moves sums over leaves by GRID at most."""
        return 2 * (reach(GRID, 0, self.relation, "l2") if self.norm == "l2" else GRID)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves all scores, in their norm and grid steps, rounded up."""
        if relation is not self.relation:
            raise PlanMismatch(f"relation={relation}: the residuals were scaled for {self.relation}")
        return reach(self.most, 0, Relation.ADD_REMOVE, self.norm, self.size)

    def __call__(self, rows: Rows) -> Integers:
        """Answer; the bound is decided in whole numbers, before a row is looked at."""
        moved = max(self.residuals.extremes()) * (2 if self.relation is Relation.ADD_REMOVE else 4)
        if moved > self.most:
            raise PlanMismatch(f"sensitivity={self.most}: a row could move a score by {moved}")
        found = self.residuals.cells(AdditiveRows(rows, self.terms), self.joints)
        tables = (sums[: joint.cells].reshape(joint.shape) for joint, sums in zip(self.joints, found, strict=True))
        return np.array([together(table) for table in tables], np.int64)


@dataclass(frozen=True)
class PairSums:
    """Sums of residuals over the cells of each of the `joints`, one pair after the other: what pairs are found by where
    scores cannot be asked for, for they are no sums over rows.

    A row adds its residual to one cell of each, so it moves all of them by what it moves the sums of one feature at
    most, times their number in L1, times its root in L2.
    """

    residuals: Residuals
    terms: tuple[Integers, ...]
    joints: tuple[Joint, ...]
    norm: Norm
    relation: Relation

    @property
    def purpose(self) -> str:
        """Return what a plan says of it."""
        return f"sum residuals per cell of pairs{self.residuals.words}"

    @property
    def size(self) -> int:
        """Count the answers: one for each cell."""
        return sum(joint.cells for joint in self.joints)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves all sums, in their norm and grid steps, rounded up."""
        if relation is not self.relation:
            raise PlanMismatch(f"relation={relation}: the residuals were scaled for {self.relation}")
        return reach(GRID, 0, Relation.ADD_REMOVE, self.norm, len(self.joints))

    def __call__(self, rows: Rows) -> Integers:
        """Answer; the bound is decided in whole numbers, before a row is looked at."""
        check_moved(self.residuals, self.relation, self.norm)
        found = self.residuals.cells(AdditiveRows(rows, self.terms), self.joints)
        return np.concatenate([sums[: joint.cells] for joint, sums in zip(self.joints, found, strict=True)])


def check_moved(residuals: Residuals, relation: Relation, norm: Norm) -> None:
    """Raise PlanMismatch where a row could move sums over leaves by more than GRID, in whole numbers."""
    moved = reach(*residuals.extremes(), relation, norm)
    if moved > GRID:
        raise PlanMismatch(f"sensitivity={GRID}: a row could move these sums by {moved}")


def together(table: NDArray[Any]) -> Any:
    """Sum the sizes of the cells of a table, less those of its rows' or of its columns' sums, whichever are more."""
    return np.abs(table).sum() - max(np.abs(table.sum(axis=side)).sum() for side in (0, 1))


@dataclass(frozen=True)
class SquareSum:
    """A number: the sum of min(|target - constant|, 1)^2, in half ranges, times TARGET_GRID. One sum of parts from 0 to
    TARGET_GRID: a row moves it by no more than that under either relation.
    """

    constant: int
    norm: Norm
    purpose: ClassVar[str] = "sum squared residuals"
    size: ClassVar[int] = 1

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves the sum."""
        return TARGET_GRID

    def __call__(self, rows: Rows) -> Integers:
        return np.array([square_sum(rows, self.constant, TARGET_GRID)], np.int64)


@dataclass(frozen=True)
class LeafSums:
    """Sums of residuals over the leaves of a public partition of a feature's bins; `leaves`: (bins,), the leaf of each.

    `terms` are the released ones, without the constant. Behind the features stand the `joints`, whose bins are cells.
    """

    residuals: Residuals
    terms: tuple[Integers, ...]
    feature: int
    leaves: Integers
    norm: Norm
    relation: Relation
    joints: tuple[Joint, ...] = ()

    @property
    def purpose(self) -> str:
        """Return what a plan says of it."""
        return f"sum residuals per leaf{self.residuals.words}"

    @property
    def size(self) -> int:
        """Count the answers: one for each leaf."""
        return int(self.leaves.max()) + 1

    def sensitivity(self, relation: Relation) -> int:
        """Return GRID, the scale to which `__call__` holds the residuals. PlanMismatch for another relation."""
        if relation is not self.relation:
            raise PlanMismatch(f"relation={relation}: the residuals were scaled for {self.relation}")
        return GRID

    def __call__(self, rows: Rows) -> Integers:
        """Answer; the bound is decided in whole numbers, before a row is looked at."""
        check_moved(self.residuals, self.relation, self.norm)
        return self.residuals.sums(AdditiveRows(rows, self.terms, self.joints), self.feature, self.leaves)
