"""Pairs of columns that are chosen privately: three releases, of every column, of scores of pairs, of chosen pairs.

Law of the scores: let f be fixed numbers, one for each cell of a pair. The score of the pair is the sum over its cells
of |count - f|, in GRID parts. A row more changes one count by one, so each score by at most one: all P of them by P in
L1, by the root of P in L2, attained where every cell of the row has as many rows as f says or more. Under replace-one
two counts of each pair change: twice as much. What f is may follow from what was released before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace
from dpserve_verify.privacy.budget import NANO, Relation, from_nano, nano
from dpserve_verify.privacy.events import MAX_NOISE
from models.profile.chosen import Choice, Places, cells_of, choose, scored_pairs
from models.profile.columns import Column
from training.measuring.profile.counts import GRID, Counting, Norm, TableCounts, count_cells
from training.rows.partitions.partition import Partition
from training.rows.partitions.rows import Rows
from training.session.reach import reach
from training.session.session import Rehearsal, Releaser

SHARES = (Fraction(1, 5), Fraction(1, 10), Fraction(7, 10))  # of what Laplace noise costs
ROOTS = (Fraction(9, 20), Fraction(3, 10), Fraction(21, 25))  # Gaussian: their squares are about these shares


@dataclass(frozen=True)
class PairScores:
    """How far the rows of each of `pairs` (places) lie from two columns that have nothing to do with one another, in
    GRID parts of a row. `cells`: of each column, the cell of each bin; `expected`: of each pair, rows in each cell.
    """

    cells: tuple[NDArray[np.intp], ...]
    pairs: Places
    expected: tuple[NDArray[np.int64], ...]
    norm: Norm
    by_weight: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True

    @property
    def purpose(self) -> str:
        """Return what a plan says that it asks."""
        return f"how far {len(self.pairs)} pairs of columns are from independent"

    @property
    def size(self) -> int:
        """Return how many scores there are."""
        return len(self.pairs)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves all scores, in the norm, in GRID parts, rounded up."""
        return reach(GRID, GRID, relation, self.norm, self.size)

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        counts = np.split(rows.ask(self.count), np.cumsum([each.size for each in self.expected])[:-1])
        together = zip(counts, self.expected, strict=True)
        return np.array([np.abs(GRID * own - fixed).sum() for own, fixed in together], np.int64)

    def count(self, rows: Partition) -> NDArray[np.int64]:
        """Return rows of a partition per cell, pair after pair."""
        return count_cells(rows, self.cells, self.pairs)


@dataclass(frozen=True)
class CellCounts:
    """Rows, in GRID parts, per cell of chosen pairs: moved by a row as `TableCounts` of so many pairs."""

    choice: Choice
    norm: Norm
    by_weight: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True

    @property
    def purpose(self) -> str:
        """Return what a plan says that it asks."""
        return f"rows by cell of {len(self.choice.pairs)} chosen pairs of columns"

    @property
    def size(self) -> int:
        """Return how many counts there are."""
        widths = self.choice.widths
        return sum(widths[a] * widths[b] for a, b in self.choice.pairs)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves all counts, in the norm, in GRID parts, rounded up."""
        return reach(GRID, 0, relation, self.norm, len(self.choice.pairs))

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return GRID * rows.ask(self.count)

    def count(self, rows: Partition) -> NDArray[np.int64]:
        """Return rows of a partition per cell, pair after pair."""
        return count_cells(rows, self.choice.cells, self.choice.pairs)


@dataclass(frozen=True)
class ChoosingProfiler(Counting):
    """Counts of all columns, scores of pairs, counts of chosen pairs."""

    columns: tuple[Column, ...]
    around: int
    fineness: int
    norm: Norm
    parents: int = 1

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Return how many bins each column has."""
        return tuple(column.bins for column in self.columns)

    def learn(self, session: Releaser | Rehearsal) -> NDArray[np.int64]:
        """Return the noisy counts of columns, the scores, and the counts of pairs, in GRID parts, one after the
        other.
        """
        first = np.asarray(session.release(TableCounts(self.widths, (), self.norm), self._noise(session, 0)), np.int64)
        counts = np.split(first, np.cumsum(self.widths)[:-1])
        scores = np.asarray(session.release(self._scores(counts), self._noise(session, 1)), np.int64)
        choice = choose(self.columns, counts, scores.tolist(), self.around, self.fineness, self.parents)
        last = np.asarray(session.release(CellCounts(choice, self.norm), self._noise(session, 2)), np.int64)
        return np.concatenate([first, scores, last])

    def _scores(self, counts: Sequence[NDArray[np.int64]]) -> PairScores:
        cells, pairs = cells_of(self.columns, counts, self.fineness), scored_pairs(len(self.columns), self.around)
        sums = [np.maximum(np.bincount(own, each), 0) for own, each in zip(cells, counts, strict=True)]
        total = max(float(np.mean([own.sum() for own in sums])), 1.0)
        fixed = [np.rint(np.outer(sums[a], sums[b]).ravel() / total).astype(np.int64) for a, b in pairs]
        return PairScores(cells, pairs, tuple(fixed), self.norm)

    def _noise(self, session: Releaser | Rehearsal, at: int) -> DiscreteGaussian | DiscreteLaplace:
        """Return the noise of a release. The unit is the epsilon of all three, or one over a multiplier."""
        if self.norm == "l1":
            return DiscreteLaplace(from_nano(max(1, int(nano(session.unit) * SHARES[at]))))
        return DiscreteGaussian(min(MAX_NOISE, from_nano(ceil(NANO / (Fraction(session.unit) * ROOTS[at])))))
