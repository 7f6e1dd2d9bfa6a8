"""Intervals that count both what drew the records and what noise was added: docs/privacy/rows.md and
studies/statements/evaluation.md have the argument and the coverage that was measured.

Every figure t solves E[T(t)] = 0 for a T that is a polynomial in the noisy counts, unbiased whatever the counts are;
its interval holds each t that the test T(t)^2 <= z^2 V(t) does not refuse (Fieller 1954, Wilson 1927). Where the noise
drowns the counts no t is refused, and the interval says so: from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
GRID = np.sin(np.linspace(0.0, np.pi / 2, 4001)) ** 2  # finer towards 0 and 1
SIGNED = np.linspace(-1.0, 1.0, 8001) * np.abs(np.linspace(-1.0, 1.0, 8001))  # finer towards 0
PSEUDO = 1.0  # records at either end that are added where a variance is estimated: none is 0 because few were drawn


@dataclass(frozen=True)
class Interval:
    """A figure with an interval; `value` None where the counts say nothing. `is_whole`: it is the whole scale, so that
    nothing is known of the figure.
    """

    value: float | None
    low: float
    high: float
    is_whole: bool = False


@dataclass(frozen=True)
class Noise:
    """Independent noise of this variance in every count, and the level of the intervals. `grouped`: how many records of
    one person there may be: they are as good as one, so that what was drawn varies by as many times as much.
    """

    variance: float
    level: float = 0.95
    grouped: int = 1

    @property
    def z(self) -> float:
        """Return how many standard deviations an interval reaches to either side."""
        return NormalDist().inv_cdf(0.5 + self.level / 2)


def ratio(counts: Floats, part: Floats, whole: Floats, noise: Noise) -> Interval:
    """Estimate sum(part * counts) / sum(whole * counts) in 0..1; `part` is between 0 and `whole`, which is 0, 1 or
    2.
    """
    above, below = float(part @ counts), float(whole @ counts)

    def squares(by: Floats) -> Floats:
        """Sum of by * (part - t * whole)^2, at each t of the grid."""
        return np.asarray(by @ part**2 - 2 * GRID * (by @ (part * whole)) + GRID**2 * (by @ whole**2), np.float64)

    drawn = np.maximum(below, 0.0) * GRID * (1 - GRID)
    if whole.max() > 1:  # some are counted twice, as in F1: of these a share of t / 2, of the others of 1 - t
        drawn = drawn * (2 - GRID)
    elif ((part > 0) & (part < whole)).any():  # a mean of more than two values
        drawn = np.maximum(squares(counts) + PSEUDO / 2 * (GRID**2 + (1 - GRID) ** 2), 0.0)
    variance = noise.variance * squares(np.ones(len(counts))) + noise.grouped * drawn
    value = min(max(above / below, 0.0), 1.0) if below > 0 else None
    return _ends_of_interval((above - GRID * below) ** 2 <= noise.z**2 * variance, value)


def auroc(table: Floats, noise: Noise) -> Interval:
    """Estimate P(a record of class 1 has a higher score than one of class 0), equal ones counted half. `table`: (2,
    bins).
    """
    zeros, ones = table
    half = np.tri(len(zeros), k=-1) + np.eye(len(zeros)) / 2  # of a one in bin j, over a zero in bin i
    below, above = half @ zeros, half.T @ ones
    total = zeros.sum(), ones.sum()
    grid = GRID[:, None]
    test = float(zeros @ above) - GRID * total[0] * total[1]
    by_one, by_zero = below - grid * total[0], above - grid * total[1]
    sides = (half, half.T)  # sums of (half - t)^2 over zeros, for each one, and over ones, for each zero
    spread = [(s**2).sum(axis=1) - 2 * grid * s.sum(axis=1) + grid**2 * len(half) for s in sides]
    squares = by_one**2 - noise.variance * spread[0], by_zero**2 - noise.variance * spread[1]
    ends = PSEUDO / 2 * (GRID**2 + (1 - GRID) ** 2) * (max(total[0], 0.0) ** 2 + max(total[1], 0.0) ** 2)
    drawn = np.maximum(squares[0] @ ones + squares[1] @ zeros, 0.0) + ends
    both = noise.variance**2 * spread[0].sum(axis=1)
    added = np.maximum(noise.variance * ((by_one**2).sum(axis=1) + (by_zero**2).sum(axis=1)) - both, both)
    value = float(zeros @ above) / (total[0] * total[1]) if min(total) > 0 else None
    not_refused = test**2 <= noise.z**2 * (added + noise.grouped * drawn)
    return _ends_of_interval(not_refused, None if value is None else min(max(value, 0.0), 1.0))


def average_precision(table: Floats, noise: Noise) -> Interval:
    """Return the precision at the bin of each record of class 1, on average; records of a bin are taken together.
    `table`: (2, bins). Conservative: intervals of the precision at every bin, which hold at once, and where class 1
    stands among them: each missed half as often.
    """
    bins = table.shape[1]
    ones, true = table[1], np.repeat([0.0, 1.0], bins)
    at_once = replace(noise, level=1 - (1 - noise.level) / (2 * bins))
    masks = [np.tile(np.arange(bins) >= edge, 2).astype(float) for edge in range(bins)]
    precisions = [ratio(table.ravel(), mask * true, mask, at_once) for mask in masks]
    half, ones_of_bins = replace(noise, level=(1 + noise.level) / 2), np.ones(bins)
    low = ratio(ones, np.array([precision.low for precision in precisions]), ones_of_bins, half).low
    high = ratio(ones, np.array([precision.high for precision in precisions]), ones_of_bins, half).high
    values = np.array([precision.value or 0.0 for precision in precisions])
    value = ratio(ones, values, ones_of_bins, half).value
    low, high = min(low, value or low), max(high, value or high)
    return Interval(value, low, high, low <= 0 and high >= 1)


def difference(counts: Floats, values: Floats, noise: Noise) -> Interval:
    """Return the mean of `values`, from -1 to 1, of records counted by theirs: a difference within pairs, such as 1
    where one model alone is right, -1 where the other is. The least variance that the mean asks for is assumed at each
    mean (as Tango 1998 does of pairs).
    """
    total, weights = float(counts.sum()), values - SIGNED[:, None]
    size = np.abs(values)
    spread = np.maximum(weights**2 @ counts, 0.0) + PSEUDO * size[size > 0].min() ** 2
    least = np.maximum(total, 0.0) * np.abs(SIGNED) * (size[size > 0].min() - np.abs(SIGNED))  # of 0 and one sign alone
    variance = noise.variance * (weights**2).sum(axis=1) + noise.grouped * np.maximum(spread, least)
    value = min(max(float(values @ counts) / total, -1.0), 1.0) if total > 0 else None
    return _ends_of_interval((weights @ counts) ** 2 <= noise.z**2 * variance, value, SIGNED)


def smooth(figure: Callable[[Floats], float], counts: Floats, noise: Noise, least: float, most: float) -> Interval:
    """Estimate a figure that is no ratio by its derivatives by each count (the delta method), within its bounds."""
    value, step = figure(counts), max(1.0, float(np.maximum(counts, 0.0).sum()) / 1e4)
    if not least <= value <= most:
        return Interval(None, least, most, True)
    moves = np.eye(len(counts)) * step
    slopes = np.array([(figure(counts + move) - figure(counts - move)) / (2 * step) for move in moves])
    if not np.isfinite(slopes).all():
        return Interval(value, least, most, True)
    drawn = noise.grouped * float(slopes**2 @ np.maximum(counts, 0.0))
    width = noise.z * (drawn + noise.variance * float(slopes @ slopes)) ** 0.5
    return Interval(
        value, max(least, value - width), min(most, value + width), width >= max(value - least, most - value)
    )


def _ends_of_interval(not_refused: NDArray[np.bool_], value: float | None, grid: Floats = GRID) -> Interval:
    """Return the ends of what is not refused, one step of the grid further out on either side; all of it where nothing
    is.
    """
    if not not_refused.any() or value is None:
        return Interval(value, float(grid[0]), float(grid[-1]), True)
    places = np.flatnonzero(not_refused)
    low, high = float(grid[max(places[0] - 1, 0)]), float(grid[min(places[-1] + 1, len(grid) - 1)])
    return Interval(value, min(low, value), max(high, value), low == grid[0] and high == grid[-1])
