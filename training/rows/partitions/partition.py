"""A partition of rows: a slice of packed arrays, and what it derived from released values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import DataError
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.weights import PARTS
from models.features.features import Codes, Feature, OrderedFeature
from training.rows import kernels
from training.rows.packed.cells import Cells, order_of
from training.rows.packed.scratch import let_go, scratch_array

Integers = NDArray[np.int64]
BINNED = "binned"
BLOCK = 1 << 20  # rows whose codes are translated at one time
TARGET_GRID = 1 << 20  # a number's target in steps of half its public range over this: from -TARGET_GRID to TARGET_GRID


class Partition:
    """Rows low .. high - 1 of packed arrays: `bins` (features, rows) uint8 or uint16, `column` (rows,) the uint8 class
    below `classes`, or of a regression (`classes` 0) the int32 target in -TARGET_GRID..TARGET_GRID.

    `group`: codes (rows,) of the public group that each belongs to, where an evaluation tells groups apart. `cells`:
    how they stand in fine cells, where they do. `folder`: where large derived arrays may lie, in files without a name.
    `weight`: what every row of it weighs, a whole number: what it answers counts so many times.

    DataError where a code or a label is out of range: kernels write where a code points.
    """

    def __init__(
        self,
        bins: NDArray[Any],
        column: NDArray[Any],
        widths: Sequence[int],
        classes: int = 2,
        group: NDArray[Any] | None = None,
        cells: Cells | None = None,
        low: int = 0,
        high: int | None = None,
        folder: Path | None = None,
        weight: int = 1,
    ) -> None:
        if bins.shape != (len(widths), column.size):
            raise DataError(f"bins: shape {bins.shape} does not fit {len(widths)} features and {column.size} labels")
        high = column.size if high is None else high
        self.bins, self.low, self.high = bins, low, high
        self.widths, self.classes, self.outputs = tuple(widths), classes, 1 if classes in (0, 2) else classes
        self._column, self.group = column[low:high], None if group is None else group[low:high]
        self.cells, self.folder, self.weight = cells, folder, weight
        self.memo: dict[str, Any] = {}  # what a family of questions derived from rows and released values
        self._check()

    @property
    def size(self) -> int:
        """Number of rows. Private under add/remove: for questions alone."""
        return self.high - self.low

    @property
    def labels(self) -> NDArray[np.uint8]:
        """Return the class indices (rows,). InputError where the target is a number."""
        if not self.classes:
            raise InputError("classes: the target is a number, which has none")
        return self._column

    @property
    def targets(self) -> NDArray[np.int32]:
        """Return the clipped, centred targets of a regression (rows,), in steps of half the public range / TARGET_GRID.
        InputError where the target is a class.
        """
        if self.classes:
            raise InputError("targets: the target is a class, not a number")
        return self._column

    def codes(self, feature: int) -> NDArray[Any]:
        """Return the bins of one feature: (rows,)."""
        return self.bins[feature, self.low : self.high]

    def fine(self, feature: int) -> NDArray[np.uint16]:
        """Return the fine cells of one feature: (rows,). InputError where the rows do not stand in such."""
        if self.cells is None or self.cells.spans[feature] is None:
            raise InputError("cells: these rows do not stand in fine cells")
        return self.cells.at(feature)[self.low : self.high]

    def binned(self, features: tuple[Feature, ...]) -> Partition:
        """Return the same rows in the bins of these features: themselves where those are the declared ones, else merged
        from their cells, and categories in the order that they were given, and kept until they are asked for in others.
        InputError where they do not stand in such bins.
        """
        if self.cells is None:
            self.check_binned(features)
            if not any(isinstance(feature, OrderedFeature) for feature in features):
                return self
        elif features == self.cells.features:
            return self
        stored_features, part = self.memo.get(BINNED, ((), None))
        if part is None or stored_features != features:
            del part
            self.memo.pop(BINNED, None)
            part = self._merged(features)
            self.memo[BINNED] = features, part
        merged: Partition = part
        return merged

    def check_binned(self, features: tuple[Feature, ...]) -> None:
        """Raise InputError where the rows do not stand in the bins of these features."""
        if self.cells is not None:
            self.cells.tables(features)
        elif [feature.bins for feature in features] != [*self.widths]:
            raise InputError("features: these rows do not stand in fine cells, and have other bins")

    def by_weight(self, weights: NDArray[Any]) -> list[Partition]:
        """Return the rows that weigh 1, 2 and so on up to PARTS, each weight a partition; `weights`: of all rows of the
        arrays, which stand in their order. Those that weigh 0 count nothing, and are in none.
        """
        ends = np.searchsorted(weights, np.arange(PARTS + 1), side="right")
        arrays = self.bins, self._column, self.widths, self.classes, self.group, self.cells
        pairs = enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True), 1)
        return [Partition(*arrays, low, high, self.folder, weight) for weight, (low, high) in pairs]

    def fresh(self) -> Partition:
        """Return the same rows, with nothing derived from them or from released values."""
        twin = object.__new__(Partition)
        twin.__dict__.update(self.__dict__, memo={})
        return twin

    def _merged(self, features: tuple[Feature, ...]) -> Partition:
        widths = [feature.bins for feature in features]
        tables = self.cells.tables(features) if self.cells else list(enumerate(map(_order, features)))
        kind = np.uint8 if max(widths) <= 256 else np.uint16
        bins = scratch_array((len(features), self.size), kind, self.folder)
        let_go(self.bins)  # what is asked next is asked in the new ones
        for out, feature, (at, table) in zip(bins, features, tables, strict=True):
            if table is None:
                out[:] = self.codes(at)
            elif isinstance(feature, OrderedFeature):
                codes, ranks = self.codes(at), table.astype(kind)
                for start in range(0, codes.size, BLOCK):
                    out[start : start + BLOCK] = ranks[codes[start : start + BLOCK]]
            else:
                kernels.cells.merge(self.fine(at), table.astype(kind), out)
        return Partition(bins, self._column, widths, self.classes, self.group, folder=self.folder)

    def _check(self) -> None:
        for feature, width in enumerate(self.widths):
            codes = self.codes(feature)
            if codes.size and codes.max() >= width:
                raise DataError("bins: a code is not below its feature's width")
        column = self._column
        if not self.classes:
            outside = column.size and max(int(column.max()), -int(column.min())) > TARGET_GRID
            if column.dtype != np.int32 or outside:
                raise DataError(f"targets: must be int32 from -{TARGET_GRID} to {TARGET_GRID}")
        elif self.classes < 2 or (column.size and column.max() >= self.classes):
            raise DataError(f"labels: must be class indices below {self.classes}")


def _order(feature: Feature) -> Codes | None:
    return order_of(feature) if isinstance(feature, OrderedFeature) else None


Question = Callable[[Partition], Integers]
"""What rows are asked: whole numbers that add up over partitions, a pure function of rows and released values. What it
keeps in `memo` is a cache, which it can always make again. It can be pickled, and asked elsewhere."""


@dataclass(frozen=True)
class InBins:
    """A question asked of rows in other bins, which each partition merges from its cells."""

    question: Question
    features: tuple[Feature, ...]

    def __call__(self, part: Partition) -> Integers:
        return self.question(part.binned(self.features))
