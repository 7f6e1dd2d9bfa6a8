"""Public groups of codes, and what an owner's rows come to over them: how often each pair of groups, and the answers of
each group. Integers of a bounded length, whatever the rows are.

The statistic of one row has a one for each pair of features, a one for each feature, and a label of length at most
LABEL for each feature: of three classes or more a corner (`local.reports.corners`), several numbers of that length. An
owner's is the mean over its rows that fit what is asked, zeros where none does, in units of 1 / GRID, cut towards 0. A
mean is no longer than the longest of what it is of, and cutting makes no number larger: so no owner's is longer than
`sensitivity` (L2), and adding an owner, or leaving it out, moves the sum by no more. `accountant.noise.shares.split`
compares it once more, in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from models.features.features import Feature, NumericFeature

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
GRID = 1 << 10  # an owner's numbers are whole multiples of 1 / GRID
LABEL = 2  # an answer counts as so many rows: the sums of answers are few, and worth more than their share of the noise
MIN_GROUPS, MAX_GROUPS = 2, 64  # groups of one feature
CHUNK = 1 << 12  # rows that are counted at once
MAX_NUMBERS = 1 << 16  # of one share: half a megabyte


@dataclass(frozen=True)
class Groups:
    """Of every feature at most `most` groups. A number's neighbouring codes go together, and what is missing stays by
    itself; of a category's, those beyond the first are one group. What is as small as `most` stays as it is.
    """

    features: tuple[Feature, ...]
    most: int
    wide: int = 1  # numbers of an answer

    def __post_init__(self) -> None:
        if not MIN_GROUPS <= self.most <= MAX_GROUPS:
            raise InputError(f"groups={self.most}: must be from {MIN_GROUPS} to {MAX_GROUPS}")
        if len(self.features) < 1 or self.numbers > MAX_NUMBERS:
            raise InputError(f"groups={self.most}: {self.numbers} numbers in a share; at most {MAX_NUMBERS}")

    @cached_property
    def tables(self) -> tuple[Integers, ...]:
        """Compute, for every feature, the place (codes,) of each code's group, from 0 to size - 1."""
        tables, start = [], 0
        for feature in self.features:
            table = _group_of_codes(feature, self.most)
            tables.append(start + table)
            start += int(table.max()) + 1
        return tuple(tables)

    @property
    def size(self) -> int:
        """Return how many groups all features have together."""
        return int(self.tables[-1].max()) + 1

    @cached_property
    def pairs(self) -> tuple[Integers, Integers]:
        """Compute the places of all pairs of groups of two different features, the earlier feature's group first."""
        of = np.concatenate([np.full(len(set(table)), at) for at, table in enumerate(self.tables)])
        first, second = np.nonzero(of[:, np.newaxis] < of[np.newaxis, :])
        return first, second

    @property
    def numbers(self) -> int:
        """Return how many numbers one owner's statistic has: pairs of groups, groups, and the answers of groups."""
        widths = [len(set(_group_of_codes(feature, self.most))) for feature in self.features]
        return (sum(widths) ** 2 - sum(width**2 for width in widths)) // 2 + (1 + self.wide) * sum(widths)

    @property
    def sensitivity(self) -> int:
        """Return the length (L2) that no owner's statistic exceeds, rounded up."""
        features = len(self.features)
        squared = GRID**2 * (features * (features - 1) // 2 + features + features * LABEL**2)
        return isqrt(squared - 1) + 1

    def statistic(
        self, codes: Sequence[NDArray[Any]], answers: Floats, fits: NDArray[np.bool_] | None = None
    ) -> Integers:
        """Sum up one owner's rows as integers (numbers,): the mean over the rows that fit; zeros where none does.

        Args:
            codes: of the rows, one array (n,) a feature; n at least 1.
            answers: (n,) within [-1, 1], -1 or 1 of two classes; of more, labels' corners (n, wide). They are cut to
                whole multiples of 1 / GRID, and no row's is longer than 1 then.
            fits: which rows count (n,); None: all of them. The time does not depend on it.
        """
        rows, size = len(answers), self.size
        count = np.ones(rows, bool) if fits is None else fits
        together, sums = np.zeros((size, size)), np.zeros((size, self.wide))
        label = round_answers(answers.reshape(rows, self.wide)) * LABEL
        for start in range(0, rows, CHUNK):
            part = slice(start, start + CHUNK)
            places = np.stack([table[code[part]] for table, code in zip(self.tables, codes, strict=True)], axis=1)
            members = np.zeros((len(places), size))
            members[np.arange(len(places))[:, np.newaxis], places] = count[part, np.newaxis]
            together += members.T @ members  # sums of ones: floats hold them exactly
            sums += members.T @ label[part]
        sums_of_rows = np.concatenate([GRID * together[self.pairs], GRID * np.diag(together), sums.ravel()]).astype(
            np.int64
        )
        return np.asarray(np.sign(sums_of_rows) * (np.abs(sums_of_rows) // max(1, int(count.sum()))), np.int64)

    def moments(self, total: Floats) -> tuple[Floats, Floats]:
        """Split a sum (numbers,) of statistics, in rows, into counts (size, size), those of one feature on the
        diagonal, and the sums of answers (size, wide).
        """
        size, (first, second) = self.size, self.pairs
        counts = np.zeros((size, size))
        counts[first, second] = counts[second, first] = total[: len(first)] / GRID
        counts[np.arange(size), np.arange(size)] = total[len(first) : len(first) + size] / GRID
        return counts, total[len(first) + size :].reshape(size, self.wide) / (GRID * LABEL)


def round_answers(answers: Floats) -> Floats:
    """Return answers (n, wide) in units of 1 / GRID, whole: a number's nearest, within its range; a corner's cut
    towards 0. InputError where one is longer than GRID, compared in integers.
    """
    if answers.shape[1] == 1:
        return np.asarray(np.clip(np.rint(answers * GRID), -GRID, GRID))
    numbers = np.trunc(answers * GRID)
    if not (np.square(numbers.astype(np.int64)).sum(axis=1) <= GRID**2).all():
        raise InputError("answers: must be of length 1 at most")
    return numbers


def _group_of_codes(feature: Feature, most: int) -> Integers:
    """Return the group (codes,) of each code, from 0."""
    codes = np.arange(feature.bins)
    if feature.bins <= most:
        return codes
    if isinstance(feature, NumericFeature):
        return np.where(codes == feature.missing, most - 1, codes * (most - 1) // (feature.bins - 1))
    return np.minimum(codes, most - 1)
