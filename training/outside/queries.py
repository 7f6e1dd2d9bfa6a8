"""What somebody else's learner may ask, and by how much a row moves each: proved here, whatever tables it hands over.

Law. A row has one code of each feature and one class. A histogram counts it in one cell: 1, and 2 under replace-one,
where it leaves one cell for another. A sum of a table adds the table's entry for the row's class and code: of k tables
the answers move by the sum of their largest entries in size (L1), or the root of the sum of their squares (L2); of
scores to choose by, by at most the largest entry less the smallest of all tables, which bounds the range. Under
replace-one one row goes and one comes: twice as much each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.certificates.releases import OUTSIDE_CHOICE, OUTSIDE_COUNTS, OUTSIDE_SUMS
from dpserve_verify.privacy.budget import Relation
from training.rows.partitions.partition import Partition
from training.rows.partitions.rows import Rows


@dataclass(frozen=True)
class Histogram:
    """Rows per cell of `features` (places), of these `widths`; by class where there are any `classes`."""

    features: tuple[int, ...]
    widths: tuple[int, ...]
    classes: int
    norm: str
    purpose = OUTSIDE_COUNTS

    @property
    def size(self) -> int:
        """Count the cells."""
        return int(np.prod(self.widths, dtype=object)) * max(1, self.classes)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far a row moves the counts: one of them, or two. The root of two is rounded up."""
        return 2 if relation is Relation.REPLACE_ONE else 1

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return rows.ask(self.count)

    def count(self, rows: Partition) -> NDArray[np.int64]:
        """Count the rows of a partition."""
        place = rows.labels.astype(np.int64) if self.classes else np.zeros(rows.size, np.int64)
        for feature, width in zip(self.features, self.widths, strict=True):
            place = place * width + rows.codes(feature)
        return np.bincount(place, minlength=self.size).astype(np.int64)


@dataclass(frozen=True)
class Table:
    """Whole numbers by class (one row of them where classes do not matter) and code of a feature."""

    feature: int
    values: tuple[tuple[int, ...], ...]

    @property
    def ends(self) -> tuple[int, int]:
        """Return the smallest and the largest number."""
        every = [value for line in self.values for value in line]
        return min(every), max(every)


@dataclass(frozen=True)
class TableSums:
    """Sums over rows of each table's entry. `norm`: "range" where one of them is chosen."""

    tables: tuple[Table, ...]
    norm: str

    @property
    def purpose(self) -> str:
        """Return what a plan says that it asks."""
        return OUTSIDE_CHOICE if self.norm == "range" else OUTSIDE_SUMS

    @property
    def size(self) -> int:
        """Count the tables."""
        return len(self.tables)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far a row moves the sums, at least 1."""
        ends = [table.ends for table in self.tables]
        steps = 2 if relation is Relation.REPLACE_ONE else 1
        if self.norm == "range":
            return max(1, steps * (max(high for _, high in ends) - min(low for low, _ in ends)))
        most = [steps * max(-low, high) for low, high in ends]
        square = sum(each * each for each in most)
        root = isqrt(square)
        return max(1, sum(most) if self.norm == "l1" else root + (root * root < square))

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return rows.ask(self.add)

    def add(self, rows: Partition) -> NDArray[np.int64]:
        """Sum the entries of a partition's rows."""
        sums = np.zeros(len(self.tables), np.int64)
        for at, table in enumerate(self.tables):
            values = np.array(table.values, np.int64)
            of = rows.labels if len(values) > 1 else np.zeros(rows.size, np.int64)
            sums[at] = values[of, rows.codes(table.feature)].sum()
        return sums


def largest(tables: Sequence[Table]) -> int:
    """Return the largest entry in size of all tables."""
    return max(max(-table.ends[0], table.ends[1]) for table in tables)
