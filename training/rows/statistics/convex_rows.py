"""Rows under a convex loss of what they score by terms, one of each feature: integer sums of its slopes per code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.rows import kernels
from training.rows.partitions.partition import Integers, Partition
from training.rows.partitions.rows import Rows

MEMO = "convex"


@dataclass(frozen=True, eq=False)
class Slopes:
    """Sums per code of the slopes of rows' losses, in two parts, and of how they bend: (3, codes).

    `places`: where each feature's codes begin among `terms`; the rest as `kernels.convex.sum_slopes` has it.
    """

    places: Integers
    terms: Integers
    table: Integers
    bends: Integers
    digits: int

    def __call__(self, part: Partition) -> Integers:
        return self.sums(part)[0]

    def sums(self, part: Partition) -> tuple[Integers, NDArray[np.int32]]:
        """Return the sums, and how each row bends, which stays with the rows."""
        rises = np.empty(part.size, np.int32)
        sums = kernels.convex.sum_slopes(
            part.bins, part.low, part.labels, self.places, self.terms, self.table, self.bends, self.digits, rises
        )
        part.memo[MEMO] = self.terms, self.bends, rises
        return sums, rises


@dataclass(frozen=True, eq=False)
class Curved:
    """Sums per code of what slopes change by, were terms to change `along`, each without its `dropped` last digits:
    (codes,).
    """

    slopes: Slopes
    along: Integers
    dropped: int

    def __call__(self, part: Partition) -> Integers:
        terms, bends, rises = part.memo.get(MEMO, (None, None, None))
        wanted = self.slopes
        if terms is None or not (np.array_equal(terms, wanted.terms) and np.array_equal(bends, wanted.bends)):
            rises = wanted.sums(part)[1]
        return kernels.convex.sum_curved(part.bins, part.low, wanted.places, self.along, rises, self.dropped)


@dataclass(frozen=True, eq=False)
class LongSlopes:
    """The slopes of scores with more digits summed per code, in three parts, as `kernels.convex.sum_long` has it:
    (3, codes).
    """

    places: Integers
    terms: Integers
    behind: Integers
    rough: NDArray[np.float64]
    table: Integers
    digits: int
    longer: int

    def __call__(self, part: Partition) -> Integers:
        return kernels.convex.sum_long(
            part.bins,
            part.low,
            part.labels,
            self.places,
            self.terms,
            self.behind,
            self.rough,
            self.table,
            self.digits,
            self.longer,
        )


def slope_sums(rows: Rows, slopes: Slopes) -> Integers:
    """Return (3, codes), as `Slopes`."""
    return rows.ask(slopes)


def curved_sums(rows: Rows, curved: Curved) -> Integers:
    """Return (codes,), as `Curved`."""
    return rows.ask(curved)


def long_sums(rows: Rows, slopes: LongSlopes) -> Integers:
    """Return (3, codes), as `LongSlopes`."""
    return rows.ask(slopes)
