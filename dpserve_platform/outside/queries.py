"""What somebody else's learner may ask, and by how much a row moves each: proved here, whatever it hands over.

Law. A row has one code of each feature, one class or target, and so one cell of a histogram and one leaf of a tree. Of
n histograms or trees, counts move by one in each: n in L1, the root of n in L2. Under replace-one it leaves one cell
for another: 2 n, and the root of 2 n. Totals of the target, which is at most T in size, move T times as far; under
replace-one by 2 T in one cell, so by 2 n T and 2 T times the root of n.
A sum of a table adds the table's entry for the row's class and code: of k tables the answers move by the sum of their
largest entries in size (L1), or the root of the sum of their squares (L2); of scores to choose by, by at most the
largest entry less the smallest of all tables, which bounds the range. Under replace-one one row goes and one comes:
twice as much each.
The distance of a histogram from given numbers, |count - given| added up, changes by one with each row that comes or
goes, up or down: of several that are chosen from, the range is 2, and 4 under replace-one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.certificates import releases
from dpserve_verify.privacy.budget import Relation
from models.parts.trees import Tree, Walk, walk_of
from training.rows.partitions.partition import TARGET_GRID, Partition
from training.rows.partitions.rows import Rows
from training.session.reach import reach, root_above

AT_ONCE = 1 << 16  # rows; a float holds every sum of so many targets exactly


@dataclass(frozen=True)
class Grid:
    """The cells of one feature or two (places), of these `widths`."""

    features: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def size(self) -> int:
        """Count the cells."""
        return int(np.prod(self.widths, dtype=object))

    def cells(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """Return the cell of each row of codes (features, n)."""
        place = np.zeros(codes.shape[1], np.int64)
        for feature, width in zip(self.features, self.widths, strict=True):
            place = place * width + codes[feature]
        return place


@dataclass(frozen=True)
class Leaves:
    """The leaves of a public tree, whose weights are their numbers, from 0 below `size`; `widths`: of all features."""

    tree: Tree
    size: int
    widths: tuple[int, ...]

    @cached_property
    def walk(self) -> Walk:
        """Return the tree as arrays."""
        return walk_of(self.tree, self.widths)

    def cells(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """Return the leaf of each row of codes (features, n)."""
        return self.walk.weights_of(codes)


Cells = tuple[Grid | Leaves, ...]


@dataclass(frozen=True)
class PerCell:
    """Rows per cell of each of `cells`, one after the other; by class where there are any `classes`; or `total`, the
    sum of their targets, in steps from the middle of the range. `norm`: l1 or l2.
    """

    cells: Cells
    classes: int
    total: bool
    norm: str

    @property
    def purpose(self) -> str:
        """Return what a plan says that it asks."""
        if isinstance(self.cells[0], Grid):
            return releases.OUTSIDE_TOTALS if self.total else releases.OUTSIDE_COUNTS
        return releases.OUTSIDE_LEAF_TOTALS if self.total else releases.OUTSIDE_LEAVES

    @property
    def size(self) -> int:
        """Count the answers."""
        return sum(each.size for each in self.cells) * max(1, self.classes)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far a row moves all answers, rounded up."""
        up, down = (TARGET_GRID, TARGET_GRID) if self.total else (1, 0)
        return reach(up, down, relation, self.norm, len(self.cells))

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return rows.ask(self.count)

    def count(self, rows: Partition) -> NDArray[np.int64]:
        """Count the rows of a partition, or add up their targets."""
        return np.concatenate(list(count_cells(rows, self.cells, self.classes, self.total)))


def count_cells(rows: Partition, cells: Cells, classes: int, total: bool) -> Iterator[NDArray[np.int64]]:
    """Yield the counts, or totals, of each of `cells`."""
    counts = [np.zeros(max(1, classes) * each.size, np.int64) for each in cells]
    for start in range(0, rows.size, AT_ONCE):
        part = slice(start, min(start + AT_ONCE, rows.size))
        codes = rows.bins[:, rows.low + part.start : rows.low + part.stop]
        first = rows.labels[part].astype(np.int64) if classes else 0
        targets = rows.targets[part] if total else None
        for count, each in zip(counts, cells, strict=True):
            more = np.bincount(first * each.size + each.cells(codes), targets, count.size)
            count += more.astype(np.int64)
    yield from counts


@dataclass(frozen=True)
class Distances:
    """How far the histogram of each of `cells` is from `given` numbers, all of them by class or none: to choose by."""

    cells: tuple[Grid, ...]
    classes: int
    given: tuple[tuple[int, ...], ...]
    norm = "range"
    purpose = releases.OUTSIDE_FURTHEST

    @property
    def size(self) -> int:
        """Count the histograms."""
        return len(self.cells)

    def sensitivity(self, relation: Relation) -> int:
        """Return the range of what a row does to the distances."""
        return 4 if relation is Relation.REPLACE_ONE else 2

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        ends = np.cumsum([len(numbers) for numbers in self.given])
        counts = np.split(rows.ask(PerCell(self.cells, self.classes, False, "l1").count), ends[:-1])
        pairs = zip(counts, self.given, strict=True)
        return np.array([np.abs(count - np.array(numbers, np.int64)).sum() for count, numbers in pairs], np.int64)


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
        return releases.OUTSIDE_CHOICE if self.norm == "range" else releases.OUTSIDE_SUMS

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
        return max(1, sum(most) if self.norm == "l1" else root_above(sum(each * each for each in most)))

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
