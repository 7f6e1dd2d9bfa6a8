"""The one release of a query: rows, rows where a column is there, and sums of numbers, in every public cell.

Law: a row that meets the conditions is in one cell, by itself alone. There it moves each of M measures by at most 1:
a count by 1, the sum of a number by its place in its range, from -1 to 1. So adding or removing it moves all sums by at
most M in L1 and the root of M in L2, both attained by a row at the end of every range. Under replace-one, into another
cell twice as much in L1, and the root of 2 M in L2; within one cell counts of rows stay, a sum moves by at most 2 where
the count of the same column stays, else each by 1: with a count of its own for every sum, that is no more. Sums are in
GRID parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.privacy.budget import Relation
from models.answers.question import Measure, Question
from training.measuring.answers.cells import Axis, TableCells
from training.measuring.profile.counts import AT_ONCE, Norm, Profiler
from training.rows.partitions.partition import Partition
from training.rows.partitions.rows import Rows

GRID = 4096  # parts of a row
Weights = NDArray[np.int64]  # (width,) of an axis: what a row with this code adds


@dataclass(frozen=True, eq=False)
class CellSums:
    """Sums, in GRID parts, of `measures` (the place of an axis and weights by its code; None: every row) in the cells
    of the axes that stand first, of these `widths`; over rows whose codes are admitted by all `tests`.
    """

    widths: tuple[int, ...]
    tests: tuple[tuple[int, NDArray[np.bool_]], ...]
    measures: tuple[tuple[int, Weights] | None, ...]
    norm: Norm

    @property
    def purpose(self) -> str:
        """Return what a plan says that it asks."""
        return f"{len(self.measures)} sums over rows in {prod(self.widths)} cells"

    @property
    def size(self) -> int:
        """Count the sums."""
        return len(self.measures) * prod(self.widths)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves all sums, in the norm, in GRID parts, rounded up."""
        moved = len(self.measures) * (2 if relation is Relation.REPLACE_ONE else 1)
        if self.norm == "l1":
            return GRID * moved
        root = isqrt(GRID * GRID * moved)
        return root + (root * root < GRID * GRID * moved)

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return rows.ask(self.add_up)

    def add_up(self, rows: Partition) -> NDArray[np.int64]:
        """Return the sums of a partition, measure after measure, cell after cell."""
        cells = prod(self.widths)
        sums = np.zeros((len(self.measures), cells), np.int64)
        for start in range(0, rows.size, AT_ONCE):
            codes = [rows.codes(at)[start : start + AT_ONCE].astype(np.intp) for at in range(len(rows.widths))]
            used = np.ones(min(AT_ONCE, rows.size - start), np.bool_)
            for at, admitted in self.tests:
                used &= admitted[codes[at]]
            place = np.zeros(used.size, np.intp)
            for at, width in enumerate(self.widths):
                place = place * width + codes[at]
            place = place[used]
            for own, measure in zip(sums, self.measures, strict=True):
                weights = None if measure is None else measure[1][codes[measure[0]][used]]
                added = np.bincount(place, weights, cells)  # whole numbers below 2^53: AT_ONCE rows of GRID each
                own += np.rint(added).astype(np.int64) * (GRID if measure is None else 1)
        return sums.reshape(-1)


def measures_of(question: Question, cells: TableCells) -> tuple[Measure, ...]:
    """Return what is added up for a question: a sum with a count of its own column beside it."""
    measures: dict[Measure, None] = {}
    for output in question.outputs:
        name = None if output.column is None else output.column.name
        measures[Measure(name)] = None
        if output.column is not None and output.kind != "count":
            within = _weights(cells, output.column)[1]
            measures[Measure(name, True, output.column.ends, within)] = None
    return tuple(measures)


def axes_of(question: Question, cells: TableCells) -> tuple[Axis, ...]:
    """Return the axes that a question reads: its groups first, then what conditions and sums are of."""
    names = [condition.column.name for condition in question.where]
    names += [output.column.name for output in question.outputs if output.column is not None]
    axes = [cells.axis(column.name, fine=False) for column in question.by]
    return tuple(axes) + tuple(dict.fromkeys(cells.axis(name, fine=True) for name in names))


def query_of(question: Question, cells: TableCells, norm: Norm) -> CellSums:
    """Return the release of a question."""
    axes, groups = axes_of(question, cells), len(question.by)
    place = {axis.column.name: groups + at for at, axis in enumerate(axes[groups:])}
    tests = []
    for condition in question.where:
        axis = axes[place[condition.column.name]]
        admitted = np.zeros(axis.width, np.bool_)
        if condition.codes is not None:
            admitted[list(condition.codes)] = True
        elif condition.missing:
            admitted[-1] = True
        else:
            edges = np.array(cells.edges(condition.column))
            first = 0 if condition.above is None else int(np.searchsorted(edges, condition.above)) + 1
            last = len(edges) if condition.upto is None else int(np.searchsorted(edges, condition.upto))
            admitted[first : last + 1] = True
        tests.append((place[condition.column.name], admitted))
    measures: list[tuple[int, Weights] | None] = []
    for measure in measures_of(question, cells):
        if measure.column is None:
            measures.append(None)
            continue
        at = place[measure.column]
        there = np.full(axes[at].width, GRID, np.int64)
        there[-1] = 0
        measures.append((at, _weights(cells, axes[at].column)[0] if measure.is_sum else there))
    return CellSums(tuple(axis.width for axis in axes[:groups]), tuple(tests), tuple(measures), norm)


def adder_of(question: Question, cells: TableCells, norm: Norm) -> Profiler:
    """Return what asks for the sums of a question."""
    return Profiler(query_of(question, cells, norm))


def _weights(cells: TableCells, column: Any) -> tuple[Weights, float]:
    """Return what a row adds to a number's sum, by its cell, from -GRID to GRID, and how far off that may be in the
    number's own unit: it is the middle of its cell, to the next part.
    """
    low, high = cells.limits(column)
    middle, half = column.ends[0] / 2 + column.ends[1] / 2, column.ends[1] / 2 - column.ends[0] / 2
    weights = np.clip(np.rint(((low / 2 + high / 2) - middle) / half * GRID), -GRID, GRID)
    stands_for = middle + half * weights / GRID
    within = float(max((high - stands_for).max(), (stands_for - low).max(), 0.0))
    return np.append(weights, 0).astype(np.int64), within
