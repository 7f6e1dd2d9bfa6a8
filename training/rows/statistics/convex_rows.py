"""Rows under a convex loss of what they score by terms, one of each feature: integer sums of its slopes per code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.rows import kernels
from training.rows.partitions.partition import Integers, Partition
from training.rows.partitions.rows import Rows

MEMO = "convex"
LIMB = 40  # binary digits of each part of a long sum
LIMBS = 8


@dataclass(frozen=True, eq=False)
class Slopes:
    """Sums per code of the slopes of rows' losses, in two parts, and of what they rise by: (3, codes).

    `places`: where each feature's codes begin among `terms`; the rest as `kernels.convex.sum_slopes` has it.
    """

    places: Integers
    terms: Integers
    table: Integers
    digits: int

    def __call__(self, part: Partition) -> Integers:
        return self.sums(part)[0]

    def sums(self, part: Partition) -> tuple[Integers, NDArray[np.int16]]:
        """Return the sums, and what each row's slope rises by, which stays with the rows."""
        rises = np.empty(part.size, np.int16)
        sums = kernels.convex.sum_slopes(
            part.bins, part.low, part.labels, self.places, self.terms, self.table, self.digits, rises
        )
        part.memo[MEMO] = self.terms, rises
        return sums, rises


@dataclass(frozen=True, eq=False)
class Curved:
    """Sums per code of what slopes change by, were terms to change `along`: (codes,)."""

    slopes: Slopes
    along: Integers

    def __call__(self, part: Partition) -> Integers:
        terms, rises = part.memo.get(MEMO, (None, None))
        if terms is None or not np.array_equal(terms, self.slopes.terms):
            rises = self.slopes.sums(part)[1]
        return kernels.convex.sum_curved(part.bins, part.low, self.slopes.places, self.along, rises)


@dataclass(frozen=True, eq=False)
class LongSlopes:
    """The slopes summed per code in integers of any size, in LIMBS parts, the lowest first: (LIMBS, codes). Slow."""

    places: Integers
    terms: tuple[int, ...]
    table: Integers
    digits: int

    def __call__(self, part: Partition) -> Integers:
        sums, terms = np.zeros(len(self.terms), object), np.array(self.terms, object)
        codes = [place + part.codes(feature).astype(np.int64) for feature, place in enumerate(self.places)]
        scores = sum(terms[each] for each in codes)
        slopes = np.array([self._slope(*each) for each in zip(scores, part.labels.tolist(), strict=True)], object)
        for each in codes:
            np.add.at(sums, each, slopes)
        rest, limbs = sums, []
        for _ in range(LIMBS - 1):
            limbs.append(np.array([each & (1 << LIMB) - 1 for each in rest], np.int64))
            rest = np.array([each >> LIMB for each in rest], object)
        return np.array([*limbs, rest.astype(np.int64)])

    def _slope(self, score: int, label: int) -> int:
        steps = len(self.table) - 1
        at = (-score if label else score) + (steps // 2 << self.digits)
        step = at >> self.digits
        if 0 <= step < steps:
            low, high = int(self.table[step]), int(self.table[step + 1])
            slope = (low << self.digits) + (high - low) * (at & (1 << self.digits) - 1)
        else:
            slope = int(self.table[0 if step < 0 else steps]) << self.digits
        return -slope if label else slope


def add_limbs(limbs: NDArray[Any]) -> list[int]:
    """Return the whole numbers that such parts are of."""
    return [sum(part << LIMB * at for at, part in enumerate(column)) for column in limbs.T.tolist()]


def slope_sums(rows: Rows, slopes: Slopes) -> Integers:
    """Return (3, codes), as `Slopes`."""
    return rows.ask(slopes)


def curved_sums(rows: Rows, curved: Curved) -> Integers:
    """Return (codes,), as `Curved`."""
    return rows.ask(curved)


def long_sums(rows: Rows, places: Integers, terms: Sequence[int], table: Integers, digits: int) -> list[int]:
    """Return the sums of slopes per code, whatever size they are."""
    return add_limbs(rows.ask(LongSlopes(places, tuple(terms), table, digits)))
