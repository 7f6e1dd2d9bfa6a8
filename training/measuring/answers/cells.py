"""The public cells by which the rows of a column are known: its bins, or, of a number, the finest that are packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accountant.home import Home
from accountant.ledger.families.families import Started
from accountant.system.lazy_import import later
from accountant.system.numpy_files import map_array
from models.features.features import NumericFeature
from models.profile.columns import Column
from training.datasets.datasets import begins_of, check_folders
from training.measuring.profile.profile import columns_of
from training.rows.packed.cells import declared_ranges, grid_of
from training.rows.packed.earlier_cells import map_cells
from training.rows.packed.names import row_files, since_file
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows, order_by_weight
from training.rows.schema.schema import Schema
from training.rows.tables.data import answer_codes, has_answer

if TYPE_CHECKING:
    from models.answers import sql
    from models.answers.question import Question
else:  # every job loads this module, and only a query asks for a parser of SQL
    sql = later("models.answers.sql")

Floats = NDArray[np.float64]
STEPS = 64  # of TARGET_GRID in one cell of a number that is a target
TARGET_CELLS = 2 * TARGET_GRID // STEPS + 1


@dataclass(frozen=True)
class Axis:
    """A column, in its public bins, or (`fine`) in the cells of a number; the last of `width` codes is for missing
    values.
    """

    column: Column
    fine: bool
    width: int


class TableCells:
    """The columns of a schema with their bins, and with the cells of the numbers among them."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.columns = {column.name: column for column in columns_of(schema)}
        spans = declared_ranges(schema.features, schema.ends)
        self.spans = dict(zip((feature.name for feature in schema.features), spans, strict=True))
        self.targets = {target.name: target for target in schema.targets if target.name not in self.spans}

    def edges(self, column: Column) -> Sequence[float]:
        """Return the ascending ends of a number's cells: cell j holds edges[j-1] < x <= edges[j]."""
        if column.name in self.targets:
            low, high = column.ends
            steps = np.arange(1, TARGET_CELLS) * STEPS - TARGET_GRID - 0.5  # targets stand on whole steps
            return [*(low / 2 + high / 2 + (high / 2 - low / 2) * steps / TARGET_GRID)]
        feature, span = column.feature, self.spans[column.name]
        assert isinstance(feature, NumericFeature)
        return feature.edges if span is None else [*grid_of(feature, span).edges]

    def question(self, select: str, dataset: str) -> Question:
        """Read a query of these columns; InputError where it is not one that the schema makes public."""
        return sql.read_question(select, dataset, self.columns, self.edges)

    def axis(self, name: str, fine: bool) -> Axis:
        """Return a column's axis, in its finest cells or in its bins; of anything but a number there is one."""
        column = self.columns[name]
        if fine and isinstance(column.feature, NumericFeature):
            return Axis(column, True, len(self.edges(column)) + 2)
        return Axis(column, False, column.bins)

    def limits(self, column: Column) -> tuple[Floats, Floats]:
        """Return the lowest and the highest number in each cell of a number but the missing one, within its range."""
        inner = np.clip(np.array(self.edges(column), np.float64), *column.ends)
        return np.append(column.ends[0], inner), np.append(inner, column.ends[1])

    def open(self, home: Home, started: Started, axes: Sequence[Axis]) -> Rows:
        """Map the rows of a job on these axes, after checking that they are those that were registered: every row of
        its part. Of labels there are none.
        """
        folders = zip(check_folders(home, started), begins_of(started.dataset), strict=True)
        part = started.request.part
        return Rows.joined([self._open(folder, part, axes, begins) for folder, begins in folders])

    def _open(self, folder: Path, part: str | None, axes: Sequence[Axis], begins: int | None) -> Rows:
        bins_name, *answer_names = row_files(len(self.schema.targets), part)
        bins = map_array(folder / bins_name)
        used: Any = slice(None) if begins is None else map_array(folder / since_file(part)) < begins
        weights = None
        if self.schema.weight is not None:
            used, weights = order_by_weight(bins[self.schema.stored.index(self.schema.weight.feature)], used)
        features = [feature.name for feature in self.schema.features]
        numbers = [name for name in features if self.spans[name] is not None]
        answers = dict(zip((target.name for target in self.schema.targets), answer_names, strict=True))

        def codes(axis: Axis) -> NDArray[np.uint16]:
            name, banded = axis.column.name, axis.column.feature != self.columns[axis.column.name].feature
            if banded:  # in other bins than the schema's, which are merged from the cells
                edges: tuple[float, ...] = axis.column.feature.edges  # type: ignore[union-attr]  # a number's
                last = len(edges)
                merged = np.append(np.searchsorted(edges, self.edges(axis.column)), [last, last + 1]).astype(np.uint16)
                return np.asarray(merged[codes(self.axis(name, fine=True))], np.uint16)
            if name in self.targets:
                answer = map_array(folder / answers[name])[used]
                cells = (answer.astype(np.int64) + TARGET_GRID) // STEPS
                cells = np.where(has_answer(answer), cells, TARGET_CELLS)  # a missing one last
                codes_of_axis = cells if axis.fine else answer_codes(self.targets[name], answer)
            elif axis.fine and name in numbers:
                place, ends = features.index(name), self.schema.ends
                codes_of_axis = map_cells(folder, part, place, self.schema.features, ends)[used]
            else:
                codes_of_axis = bins[features.index(name)][used]
            return np.asarray(codes_of_axis, np.uint16)

        every = np.stack([codes(axis) for axis in axes]) if axes else np.zeros((0, bins[0][used].size), np.uint16)
        return Rows(every, np.zeros(every.shape[1], np.uint8), [axis.width for axis in axes], weights=weights)
