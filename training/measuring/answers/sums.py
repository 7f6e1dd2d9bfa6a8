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
from itertools import chain
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.privacy.budget import Relation
from models.answers.question import Condition, Measure, Question
from models.profile.columns import Column
from training.measuring.answers.cells import Axis, TableCells
from training.measuring.profile.counts import AT_ONCE, Norm, Profiler
from training.rows.partitions.partition import Partition
from training.rows.partitions.rows import Rows
from training.session.reach import reach

GRID = 4096  # parts of a row
MOST_WIDENED = 1 << 12  # sums of a release that tells more groups apart than the query does
Weights = NDArray[np.int64]  # (width,) of an axis: what a row with this code adds
Tests = tuple[tuple[int, NDArray[np.bool_]], ...]  # the place of an axis, and which of its codes are admitted


class Addend(NamedTuple):
    """What a row adds to one measure: a weight by its code on an axis (None: GRID), where all `tests` admit it."""

    weighing: tuple[int, Weights] | None = None
    tests: Tests = ()


@dataclass(frozen=True, eq=False)
class CellSums:
    """Sums, in GRID parts, of `measures` in the cells of the axes that stand first, of these `widths`; over rows whose
    codes are admitted by all `tests`.
    """

    widths: tuple[int, ...]
    tests: Tests
    measures: tuple[Addend, ...]
    norm: Norm
    by_weight: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True

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
        return reach(GRID, 0, relation, self.norm, len(self.measures))

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return rows.ask(self.add_up)

    def add_up(self, rows: Partition) -> NDArray[np.int64]:
        """Return the sums of a partition, measure after measure, cell after cell."""
        cells = prod(self.widths)
        sums = np.zeros((len(self.measures), cells), np.int64)
        for start in range(0, rows.size, AT_ONCE):
            codes = [rows.codes(at)[start : start + AT_ONCE].astype(np.intp) for at in range(len(rows.widths))]
            met = np.ones(min(AT_ONCE, rows.size - start), np.bool_)
            for at, admitted in self.tests:
                met &= admitted[codes[at]]
            place = np.zeros(met.size, np.intp)
            for at, width in enumerate(self.widths):
                place = place * width + codes[at]
            for own, (weighing, tests) in zip(sums, self.measures, strict=True):
                used = met
                for at, admitted in tests:
                    used = used & admitted[codes[at]]
                weights = None if weighing is None else weighing[1][codes[weighing[0]][used]]
                added = np.bincount(place[used], weights, cells)  # whole numbers below 2^53: AT_ONCE rows of GRID each
                own += np.rint(added).astype(np.int64) * (GRID if weighing is None else 1)
        return sums.reshape(-1)


def measures_of(question: Question, cells: TableCells) -> tuple[Measure, ...]:
    """Return what is added up for a question: a sum, with a count of its own column over the same rows beside it; a
    share of rows, with all of them beside it.
    """
    measures: dict[Measure, None] = {}
    for output in question.outputs:
        column, where = output.column, output.where
        if column is None and output.kind == "avg":
            measures[Measure()] = None
        measures[Measure(None if column is None else column.name, where=where)] = None
        if column is not None and output.kind != "count":
            within = _weights(cells, column)[1]
            measures[Measure(column.name, True, column.ends, within, output.calendar, where)] = None
    return tuple(measures)


def layout_of(question: Question, measures: int) -> tuple[tuple[Column, ...], tuple[Condition, ...]]:
    """Return the columns by which a release tells rows apart, and the conditions on its rows.

    A condition that names one bin, or whole bins of a column that is grouped by, is no condition of the release: its
    column is one of the cells', each of which has the same noise at the same price, for a row is in one of them. So the
    answer is as exact, and the other cells answer later queries for nothing.
    """
    by, where = [*question.by], []
    for condition in question.where:
        column, names = condition.column, [column.name for column in by]
        size = measures * prod(each.bins for each in (*by, column))
        if column.name not in names and condition.codes is not None and len(condition.codes) == 1:
            if size <= MOST_WIDENED:
                by.append(column)
                continue
        elif column.name in names and condition.is_of_bins(by[names.index(column.name)]):
            continue
        where.append(condition)
    return tuple(by), tuple(where)


def axes_of(question: Question, cells: TableCells) -> tuple[Axis, ...]:
    """Return the axes that a release reads: its cells first, then what conditions and sums are of."""
    measures = measures_of(question, cells)
    by, where = layout_of(question, len(measures))
    names = [condition.column.name for condition in chain(where, *(measure.where for measure in measures))]
    names += [measure.column for measure in measures if measure.column is not None]
    axes = [Axis(column, False, column.bins) for column in by]
    return tuple(axes) + tuple(dict.fromkeys(cells.axis(name, fine=True) for name in names))


def query_of(question: Question, cells: TableCells, norm: Norm) -> CellSums:
    """Return the release of a question."""
    measures = measures_of(question, cells)
    by, where = layout_of(question, len(measures))
    axes, groups = axes_of(question, cells), len(by)
    place = {axis.column.name: groups + at for at, axis in enumerate(axes[groups:])}

    def tests_of(conditions: tuple[Condition, ...]) -> Tests:
        places = [place[condition.column.name] for condition in conditions]
        return tuple(
            (at, _admitted(condition, axes[at].width, cells)) for at, condition in zip(places, conditions, strict=True)
        )

    addends = []
    for measure in measures:
        weighing = None
        if measure.column is not None:
            at = place[measure.column]
            there = np.full(axes[at].width, GRID, np.int64)
            there[-1] = 0
            weighing = at, (_weights(cells, axes[at].column)[0] if measure.is_sum else there)
        addends.append(Addend(weighing, tests_of(measure.where)))
    return CellSums(tuple(axis.width for axis in axes[:groups]), tests_of(where), tuple(addends), norm)


def _admitted(condition: Condition, width: int, cells: TableCells) -> NDArray[np.bool_]:
    """Return which codes of an axis a condition admits."""
    admitted = np.zeros(width, np.bool_)
    if condition.codes is not None:
        admitted[list(condition.codes)] = True
    elif condition.missing:
        admitted[-1] = True
    else:
        edges = np.array(cells.edges(condition.column))
        first = 0 if condition.above is None else int(np.searchsorted(edges, condition.above)) + 1
        last = len(edges) if condition.upto is None else int(np.searchsorted(edges, condition.upto))
        admitted[first : last + 1] = True
    return admitted


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
