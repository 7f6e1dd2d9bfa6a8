"""The one query of a profile: how many rows fall into each public bin of every column, and of chosen pairs of columns.

Law: a row is counted once in every histogram, by itself alone. So adding or removing one moves one count of each by
one: H counts in all, by H in L1 and by the root of H in L2, both attained by every row. Under replace-one a row may
leave one count and enter another in every histogram: twice as much in L1, the root of 2 H in L2, attained where it
differs in all columns. Rows are counted in GRID parts, so that the root is rounded up by less than 1 / GRID.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace
from dpserve_verify.privacy.budget import Relation
from training.calibration.calibrate import calibrate
from training.rows.partitions.partition import Partition
from training.rows.partitions.rows import Rows
from training.session.learner import Recipe
from training.session.reach import reach
from training.session.session import Public, Query, Rehearsal, Releaser

GRID = 64  # parts of a row, or of each part of one that has a weight
AT_ONCE = 1 << 18  # rows whose counts are made at one time
Norm = Literal["l1", "l2"]


@dataclass(frozen=True)
class TableCounts:
    """Rows, in GRID parts, per bin of columns of these `widths`, then of `pairs` of them (places)."""

    widths: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    norm: Norm
    by_weight: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True

    @property
    def purpose(self) -> str:
        """Return what a plan says that it asks."""
        return f"rows by bin of {len(self.widths)} columns and {len(self.pairs)} pairs of columns"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return how many counts each histogram has."""
        return (*self.widths, *(self.widths[a] * self.widths[b] for a, b in self.pairs))

    @property
    def size(self) -> int:
        """Return how many counts there are in all."""
        return sum(self.sizes)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves all counts, in the norm, in GRID parts, rounded up."""
        return reach(GRID, 0, relation, self.norm, len(self.sizes))

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return GRID * rows.ask(self.count)

    def count(self, rows: Partition) -> NDArray[np.int64]:
        """Return rows of a partition per bin, of all columns and pairs one after the other."""
        columns = range(len(self.widths))
        return count_cells(rows, [np.arange(width) for width in self.widths], [*((at,) for at in columns), *self.pairs])


def count_cells(
    rows: Partition, cells: Sequence[NDArray[np.intp]], groups: Sequence[tuple[int, ...]]
) -> NDArray[np.int64]:
    """Return rows of a partition per cell of each group of columns, group after group. `cells`: of each bin."""
    shapes = [[int(cells[at].max()) + 1 for at in group] for group in groups]
    counts = [np.zeros(prod(shape), np.int64) for shape in shapes]
    for start in range(0, rows.size, AT_ONCE):
        part = [own[rows.codes(at)[start : start + AT_ONCE]] for at, own in enumerate(cells)]
        for own, group, shape in zip(counts, groups, shapes, strict=True):
            own += np.bincount(np.ravel_multi_index([part[at] for at in group], shape), minlength=own.size)
    return np.concatenate(counts)


class Counting(ABC):
    """What is rehearsed, priced and played as a learner is, and releases counts."""

    @abstractmethod
    def learn(self, session: Releaser | Rehearsal) -> NDArray[np.int64]:
        """Return what is released, in GRID parts."""

    def recipe(self, public: Public) -> Recipe:
        """Calibrate the noise to the public budget; InputError where that cannot be."""
        return calibrate(self, public, public.budget)

    def guess(self, public: Public) -> None:
        """Return None: a release is cheap to rehearse."""
        return None


class Profiler(Counting):
    """One query; the noise is calibrated to the whole budget."""

    def __init__(self, query: Query) -> None:
        self.query = query

    def learn(self, session: Releaser | Rehearsal) -> NDArray[np.int64]:
        """Return the noisy counts, in GRID parts. The unit is the noise's epsilon, or one over its multiplier."""
        if self.query.norm == "l1":
            return np.asarray(session.release(self.query, DiscreteLaplace(session.unit)), np.int64)
        return np.asarray(session.release(self.query, DiscreteGaussian.of_unit(session.unit)), np.int64)
