"""What trees beside released curves ask of rows that have a number, and how far one row moves the answers: proofs in
docs/privacy/ebm.md#trees-beside-curves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.privacy.budget import Relation
from training.learners.boosting.tree_queries import Cuts
from training.learners.ebm.queries import OfResiduals, check_moved
from training.learners.ebm.residuals import GRID, NumberResiduals
from training.rows import kernels
from training.rows.partitions.partition import TARGET_GRID, Partition
from training.rows.partitions.rows import Rows
from training.rows.statistics.additive_rows import AdditiveRows, Joint, Progress
from training.rows.statistics.residuals import ClippedResiduals, QuantileSlopes
from training.rows.statistics.tree_rows import Grown, leaves_under
from training.session.reach import root_above

Integers = NDArray[np.int64]
COUNT = GRID // 6  # what a row counts for, beside its residual of at most GRID
WIDTH = 0.4  # of the clip, within which the loss of a quantile is smoothed: a root mean square


@dataclass(frozen=True)
class QuantileResiduals(NumberResiduals):
    """What the loss of the quantile that has so many `thousandths` of rows below it says of a row, in place of what is
    left; no longer than residuals are.
    """

    thousandths: int = 500

    @property
    def worth(self) -> float:
        """Return the worth of one grid step of a sum of slopes, over as many rows so bent, in half ranges."""
        longer = max(self.thousandths, 1000 - self.thousandths) / 500
        return longer * self.clip / self.most / TARGET_GRID

    def of_rows(self) -> QuantileSlopes:
        """Return what says it of rows."""
        return QuantileSlopes(self.constant, self.clip, self.factor, self.most, COUNT, self.thousandths)


@dataclass(frozen=True, eq=False)
class OfTrees(OfResiduals):
    """Queries of what curves and the `trees` grown so far leave of a number. `bound`: no row's votes add up to more."""

    residuals: NumberResiduals
    joints: tuple[Joint, ...]
    trees: tuple[Grown, ...]
    bound: int

    def ask(self, rows: Rows, cuts: Cuts, squared: bool) -> Integers:
        """Return, by leaf, sums of residuals and then counts of rows; of all rows their squares, if `squared`."""
        check_moved(self.residuals)
        statistic = TreeSums(self.residuals.of_rows(), self.trees, cuts, self.bound, squared)
        return AdditiveRows(rows, self.terms, self.joints).ask(statistic)


@dataclass(frozen=True, eq=False)
class LeafNumbers(OfTrees):
    """Sums of residuals over the leaves of one more tree, and then rows of each leaf, COUNT apiece; of a quantile's
    loss, of its slopes, and of how bent it is, at most COUNT of each row.

    A row adds a residual of at most `longest` to one sum, and COUNT at most to one count. Add/remove: GRID + COUNT in
    L1, the root of their squares' sum in L2. Replace-one, with residuals of half as much: in another leaf two of each,
    in the same leaf a sum moves by GRID and a count by COUNT: at most GRID + 2 COUNT in L1, in squares GRID^2 + 2
    COUNT^2.
    """

    cuts: Cuts
    purpose: ClassVar[str] = "sum residuals and count rows per leaf"

    @property
    def size(self) -> int:
        """Count the answers: two for each leaf."""
        return 2 * (len(self.cuts) + 1)

    @property
    def reached(self) -> int:
        """Return how far one row moves all answers, in their norm and grid steps, rounded up."""
        counts = 1 if self.residuals.relation is Relation.ADD_REMOVE else 2
        return root_above(GRID**2 + counts * COUNT**2) if self.norm == "l2" else GRID + counts * COUNT

    def __call__(self, rows: Rows) -> Integers:
        return self.ask(rows, self.cuts, squared=False)


@dataclass(frozen=True, eq=False)
class LeftSquares(OfTrees):
    """The sum of squared residuals, each as a part of the clip's square, times GRID: one sum of parts from 0 to GRID,
    which a row moves by no more than that under either relation.
    """

    reached: ClassVar[int] = GRID
    purpose: ClassVar[str] = "sum squared residuals"
    size: ClassVar[int] = 1

    def __call__(self, rows: Rows) -> Integers:
        return self.ask(rows, (), squared=True)


@dataclass(frozen=True, eq=False)
class TreeSums:
    """As `OfTrees.ask`."""

    residuals: ClippedResiduals
    trees: tuple[Grown, ...]
    cuts: Cuts
    bound: int
    squared: bool

    def __call__(self, part: Partition, progress: Progress) -> Integers:
        leaves, votes = leaves_under(part, self.trees, self.cuts, self.bound)
        scores = progress.scores + votes
        if self.squared:
            return self.residuals.squares(part, scores, GRID)
        every = np.arange(len(self.cuts) + 1)
        if isinstance(self.residuals, QuantileSlopes):
            return self.residuals.by_leaf(leaves, every.size, part, scores).ravel()
        sums = self.residuals.sums(leaves, every, part, scores)
        return np.concatenate([sums, kernels.additive.count_codes(leaves, every.size) * COUNT])
