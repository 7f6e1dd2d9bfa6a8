"""The one release of a query: rows, rows where a column is there, and sums of numbers, in every public cell.

Law: a row that meets the conditions is in one cell, by itself alone. There it adds 1 to each of M figures: to a count
all of it, to a number, which is two sums, in two parts by its place in the range: 1 - p towards the low end, p towards
the high end. So adding or removing it moves all sums by at most M in L1, and by the root of M in L2, which rows at the
ends attain; replacing it, by 2 M and the root of 2 M, for no part is negative. The two sums of a number add up to the
count of its rows, and their difference is its sum about the middle. Sums are in GRID parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.privacy.budget import Relation
from models.answers.question import ENDS, Condition, Measure, Question
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
    """What a row adds to one figure, where all `tests` admit it: GRID, or `parts` by its code on the axis `at`, one for
    each sum of the figure.
    """

    at: int = 0
    parts: tuple[Weights, ...] = ()
    tests: Tests = ()

    @property
    def sums(self) -> int:
        """Count the sums that it is added to."""
        return len(self.parts) or 1


@dataclass(frozen=True, eq=False)
class CellSums:
    """Sums, in GRID parts, of `figures` in the cells of the axes that stand first, of these `widths`; over rows whose
    codes are admitted by all `tests`. ValueError where a row would add less than nothing, or more than GRID, to one.
    """

    widths: tuple[int, ...]
    tests: Tests
    figures: tuple[Addend, ...]
    norm: Norm
    by_weight: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for parts in (np.array(figure.parts) for figure in self.figures if figure.parts):
            if parts.min() < 0 or parts.sum(axis=0).max() > GRID:
                raise ValueError("parts: from 0 on, together at most GRID")

    @property
    def sums(self) -> int:
        """Count the sums of one cell."""
        return sum(figure.sums for figure in self.figures)

    @property
    def purpose(self) -> str:
        """Return what a plan says that it asks."""
        return f"{self.sums} sums over rows in {prod(self.widths)} cells"

    @property
    def size(self) -> int:
        """Count the sums."""
        return self.sums * prod(self.widths)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves all sums, in the norm, in GRID parts, rounded up."""
        return reach(GRID, 0, relation, self.norm, len(self.figures))

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return rows.ask(self.add_up)

    def add_up(self, rows: Partition) -> NDArray[np.int64]:
        """Return the sums of a partition, sum after sum, cell after cell."""
        cells = prod(self.widths)
        sums = np.zeros((self.sums, cells), np.int64)
        for start in range(0, rows.size, AT_ONCE):
            codes = [rows.codes(at)[start : start + AT_ONCE].astype(np.intp) for at in range(len(rows.widths))]
            met = np.ones(min(AT_ONCE, rows.size - start), np.bool_)
            for at, admitted in self.tests:
                met &= admitted[codes[at]]
            place = np.zeros(met.size, np.intp)
            for at, width in enumerate(self.widths):
                place = place * width + codes[at]
            every = iter(sums)
            for figure in self.figures:
                used = met
                for at, admitted in figure.tests:
                    used = used & admitted[codes[at]]
                for part in figure.parts or (None,):
                    weights = None if part is None else part[codes[figure.at][used]]
                    added = np.bincount(place[used], weights, cells)  # whole, below 2^53: AT_ONCE rows of GRID each
                    own = next(every)
                    own += np.rint(added).astype(np.int64) * (GRID if part is None else 1)
        return sums.reshape(-1)


def measures_of(question: Question, cells: TableCells) -> tuple[Measure, ...]:
    """Return what is added up for a question: of a number its two sums, one after the other, which its rows are counted
    by; a share of rows, with all of them beside it.
    """
    measures: dict[Measure, None] = {}
    for output in question.outputs:
        column, where = output.column, output.where
        if column is None and output.kind == "avg":
            measures[Measure()] = None
        if column is None or output.kind == "count":
            measures[Measure(None if column is None else column.name, where=where)] = None
            continue
        within, always = _parts(cells, column)[1], column.is_everywhere
        for end in ENDS:
            own = Measure(column.name, True, column.ends, within, output.calendar, where, end, always)
            measures[own] = None
    known = {(None if every else each.column, each.where) for each in measures if each.is_sum
             for every in {False, each.everywhere}}  # fmt: skip
    return tuple(each for each in measures if each.is_sum or (each.column, each.where) not in known)


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

    figures = []
    for measure in measures:
        at, parts = 0, tuple[Weights, ...]()
        if measure.column is not None:
            at = place[measure.column]
            there = np.full(axes[at].width, GRID, np.int64)
            there[-1] = 0
            parts = _parts(cells, axes[at].column)[0] if measure.is_sum else (there,)
        if measure.end != ENDS[1]:  # whose other sum is of the same figure
            figures.append(Addend(at, parts, tests_of(measure.where)))
    return CellSums(tuple(axis.width for axis in axes[:groups]), tests_of(where), tuple(figures), norm)


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


def _parts(cells: TableCells, column: Any) -> tuple[tuple[Weights, ...], float]:
    """Return what a row adds to a number's two sums, by its cell, GRID together, nothing where it is missing; and how
    far off that may be in the number's own unit: it is the middle of its cell, to the next part.
    """
    low, high = cells.limits(column)
    middle, half = column.ends[0] / 2 + column.ends[1] / 2, column.ends[1] / 2 - column.ends[0] / 2
    above = np.clip(np.rint((((low / 2 + high / 2) - middle) / half + 1) / 2 * GRID), 0, GRID)
    stands_for = middle + half * (2 * above / GRID - 1)
    within = float(max((high - stands_for).max(), (stands_for - low).max(), 0.0))
    return tuple(np.append(part, 0).astype(np.int64) for part in (GRID - above, above)), within
