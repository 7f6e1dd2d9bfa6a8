"""Rows, and the exact integer statistics of them that queries are made of. Nothing leaves here except through a
session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.weights import PARTS
from models.features.features import Feature
from models.parts.votes import Vote
from training.rows import kernels
from training.rows.packed.cells import Cells
from training.rows.partitions import threads
from training.rows.partitions.partition import BLOCK, InBins, Integers, Partition, Question
from training.rows.partitions.votes import SignedSums, StateCounts

if TYPE_CHECKING:
    from accountant.ledger.families.families import Dataset

MOST_ROWS = 1 << 38  # of any dataset: what one row adds to a sum is at most 2^24 units and more where they are fewer
FEW_ROWS = 1 << 26


def order_by_weight(weights: NDArray[Any], used: Any = None) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Return the places of the rows that are `used`, a mask or a slice, in the order of their `weights`, and these.
    None: all are.
    """
    places = np.arange(weights.size)[slice(None) if used is None else used]
    order = places[np.argsort(weights[places], kind="stable")]
    return order, weights[order]


def row_bound(records: int) -> int:
    """Return the most rows that a dataset may have whose schema says that there are about `records`: public, and
    refused beyond when rows are registered or added. FEW_ROWS for up to half as many, else a power of two of at least
    twice as many; never above MOST_ROWS.

    What follows from it: how fine weights may be so that 64 bits hold every sum, and what rounding can add.
    """
    return min(MOST_ROWS, max(FEW_ROWS, 1 << (2 * records - 1).bit_length()))


def most_rows_of(dataset: Dataset) -> int:
    """Return the public bound of the rows: of each block no more than were taken when it was registered."""
    return sum(row_bound(block.records) for block in dataset.blocks) or row_bound(dataset.registration.records)


class Rows:
    """Packed rows: `bins` (features, rows) uint8 or uint16, and `labels` (rows,) uint8 class index below `classes`, or
    int32 targets; see `Partition`, into which they are cut. What queries ask of them is a `Question`. `weights`: what
    each weighs, 0 to PARTS, ascending; None: they have none, and count alike.
    """

    def __init__(
        self,
        bins: NDArray[Any],
        labels: NDArray[Any],
        widths: Sequence[int],
        classes: int = 2,
        group: NDArray[Any] | None = None,
        cells: Cells | None = None,
        folder: Path | None = None,
        weights: NDArray[Any] | None = None,
    ) -> None:
        same = bins, labels, widths, classes, group, cells
        if weights is not None:
            self._hold(threads.Threads(Partition(*same, folder=folder).by_weight(weights)))
            return
        parts = [Partition(*same, low, high, folder) for low, high in threads.cuts(labels.size, len(widths))]
        self._hold(threads.Threads(parts))

    @classmethod
    def joined(cls, several: Sequence[Rows]) -> Rows:
        """Return the rows of all of these, one after the other. InputError where they are of other widths or
        classes.
        """
        return cls.over(threads.Threads([part for rows in several for part in rows._engine.parts]))

    @classmethod
    def over(cls, engine: threads.Engine) -> Rows:
        """Return the rows whose partitions an engine holds."""
        rows = object.__new__(cls)
        rows._hold(engine)
        return rows

    def _hold(self, engine: threads.Engine, features: tuple[Feature, ...] | None = None) -> None:
        self._engine, self._features = engine, features
        self._other: Rows | None = None  # the same rows in the bins that they were last asked for in
        self.widths = engine.widths if features is None else tuple(feature.bins for feature in features)
        self.classes, self.outputs = engine.classes, engine.outputs

    def ask(self, question: Question) -> Integers:
        """Return the sum of what each partition answers, in these bins: the same bits wherever they are cut."""
        return self._engine.ask(question if self._features is None else InBins(question, self._features))

    @property
    def size(self) -> int:
        """Number of rows. Private under add/remove: for queries and the steward alone."""
        return self._engine.size

    @property
    def bins(self) -> NDArray[Any]:
        """Return the bins of all rows, side by side: (features, rows)."""
        return _side_by_side([part.bins[:, part.low : part.high] for part in self.parts])

    @property
    def labels(self) -> NDArray[np.uint8]:
        """Return the class indices of all rows: (rows,)."""
        return _side_by_side([part.labels for part in self.parts])

    @property
    def targets(self) -> NDArray[np.int32]:
        """Return the targets of all rows of a regression: (rows,)."""
        return _side_by_side([part.targets for part in self.parts])

    @property
    def parts(self) -> list[Partition]:
        """Return the partitions, in these bins. InputError where rows have weights: what is made of rows one by one
        would count them alike.
        """
        if self._engine.is_weighed:
            raise InputError("the rows have weights, and are asked for sums alone")
        parts = self._engine.parts
        return [part if self._features is None else part.binned(self._features) for part in parts]

    def binned(self, features: Sequence[Feature]) -> Rows:
        """Return the same rows in the bins of these features, which each partition keeps until it is asked in others.
        InputError where they do not stand in such bins.
        """
        wanted = tuple(features)
        if self._other is None or self._other._features != wanted:  # every round asks in the same
            self._engine.check_binned(wanted)
            rows = object.__new__(Rows)
            rows._hold(self._engine, wanted)
            self._other = rows
        return self._other

    def fresh(self) -> Rows:
        """Return the same rows, with nothing derived from them or from released values."""
        rows = object.__new__(Rows)
        rows._hold(self._engine.fresh(), self._features)
        return rows

    def close(self) -> None:
        """Leave the cluster."""
        self._engine.close()

    def cell_counts(self, feature: int, size: int) -> Integers:
        """Return rows per fine cell of a feature: (size,). InputError where the rows do not stand in such."""
        return self._engine.ask(CellCounts(feature, size))

    def class_counts(self, feature: int) -> Integers:
        """Return rows per class and code of a feature: (classes, bins)."""
        return self.ask(ClassCounts(feature))

    def margin_counts(self, votes: Sequence[Vote], bound: int) -> Integers:
        """Return rows per margin of `votes`: (outputs, 2 bound + 1), index margin + bound."""
        counts = self.ask(StateCounts(votes, bound))
        return np.asarray(counts[:, :, 1] + counts[:, ::-1, 0])

    def score_counts(self, votes: Sequence[Vote], bound: int) -> Integers:
        """Return two classes: rows per class and score of `votes`: (2, 2 bound + 1), index score + bound."""
        if self.classes != 2:
            raise InputError(f"classes={self.classes}: scores are counted per class where there are two")
        return np.ascontiguousarray(self.ask(StateCounts(votes, bound))[0].T)

    def signed_sums(self, votes: Sequence[Vote], weights: Integers, bound: int) -> Integers:
        """Sum over rows of y_k * weights[y_k F_k + bound], per output k, feature and code: (outputs, features, max
        width). `weights` (2 bound + 1,); or (outputs, 2, 2 bound + 1), by output and whether y_k = 1 as well.

        Exact: every partial sum is over distinct rows, so its size is below 2^63 wherever rows * largest |weight| is,
        which is checked; for weights as fine as `row_bound` lets them be it is at most 2^62.
        """
        shapes = (2 * bound + 1,), (self.outputs, 2, 2 * bound + 1)
        heaviest = max(int(weights.max()), -int(weights.min())) * (PARTS if self._engine.is_weighed else 1)
        if weights.shape not in shapes or heaviest * self.size >= 1 << 63:
            raise InputError(
                f"weights: must be {2 * bound + 1}, small enough that 64 bits hold their sum over all rows"
            )
        return self.ask(SignedSums(votes, weights, bound))


def _side_by_side(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)


@dataclass(frozen=True)
class CellCounts:
    """Rows per fine cell of a feature: (size,)."""

    feature: int
    size: int

    def __call__(self, part: Partition) -> Integers:
        return kernels.additive.count_codes(part.fine(self.feature), self.size)


@dataclass(frozen=True)
class ClassCounts:
    """Rows per class and code of a feature: (classes, bins)."""

    feature: int

    def __call__(self, part: Partition) -> Integers:
        codes, width = part.codes(self.feature), part.widths[self.feature]
        counts = np.zeros(part.classes * width, np.int64)
        for start in range(0, codes.size, BLOCK):
            place = part.labels[start : start + BLOCK].astype(np.int64) * width + codes[start : start + BLOCK]
            counts += np.bincount(place, minlength=counts.size)
        return counts.reshape(part.classes, width)
