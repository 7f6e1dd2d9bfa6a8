"""How `ebm` by one convex fit sees a feature: at several resolutions, coarse before fine, each with a public weight.
How long a row is by them all sets the price (docs/privacy/ebm.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from models.features.features import Feature, NumericFeature, has_two_values

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
HEAVIEST = 16  # weight of a row in a level, at most: a whole number of each, so that sums stay exact
EVERYBODY = 8  # in the constant, which begins where it was released
MASS = 0.7  # of where a value stands is told by the rows that were counted, the rest by its bins alike
FEWER = 0.7  # of the bins; a level with more parts than that would say the same again
WIDEST = 1024  # codes of a feature, at most, or as many as it has declared


class Level(Protocol):
    """One way to see a feature: each of its codes has up to `most_of_row` coordinates, whose weights, squared, add up
    to at most the square of `weight`.
    """

    most_of_row: ClassVar[int]

    @property
    def weight(self) -> int:
        """Return how long a row is at most, in this level alone."""

    def widest(self, codes: int) -> int:
        """Return how many coordinates there are of a feature with so many codes, at most."""

    def entries(self, where: Floats, codes: int) -> Integers:
        """Return coordinate, code and weight of each entry: (3, entries). `where` a number's values stand among rows,
        from 0 to 1; behind them is the code of the missing one.
        """


@dataclass(frozen=True)
class Arc:
    """A number's values on a circle that turns by so many half turns from the least to the largest: the same length
    everywhere, so that a line costs no more with its hump than without. The missing value has its own.
    """

    half_turns: int
    weight: int
    most_of_row: ClassVar[int] = 2

    def widest(self, codes: int) -> int:
        """Return its two coordinates, and the missing value's."""
        return 3

    def entries(self, where: Floats, codes: int) -> Integers:
        """Return two entries of each value, and one of the missing one."""
        turned, values = np.pi * self.half_turns * where, np.arange(codes - 1)
        along, across = (np.trunc(self.weight * of(turned)).astype(np.int64) for of in (np.cos, np.sin))
        entries = [np.stack([np.full_like(values, at), values, part]) for at, part in enumerate((along, across))]
        return np.concatenate([*entries, [[2], [codes - 1], [self.weight]]], axis=1)


@dataclass(frozen=True)
class Groups:
    """So many groups of a number's values that stand beside one another; the missing value has its own."""

    groups: int
    weight: int
    most_of_row: ClassVar[int] = 1

    def widest(self, codes: int) -> int:
        """Return one for each group, and the missing value's."""
        return self.groups + 1

    def entries(self, where: Floats, codes: int) -> Integers:
        """Return one entry of each code, at its group."""
        group = np.append((where * self.groups).astype(np.int64), self.groups)
        return np.stack([group, np.arange(codes), np.full(codes, self.weight)])


@dataclass(frozen=True)
class Each:
    """Every code by itself."""

    weight: int
    most_of_row: ClassVar[int] = 1

    def widest(self, codes: int) -> int:
        """Return one for each code."""
        return codes

    def entries(self, where: Floats, codes: int) -> Integers:
        """Return one entry of each code, at its own."""
        own = np.arange(codes)
        return np.stack([own, own, np.full(codes, self.weight)])


@dataclass(frozen=True)
class Sides:
    """Two values on either side of 0; any other code has its own coordinate."""

    weight: int
    most_of_row: ClassVar[int] = 1

    def widest(self, codes: int) -> int:
        """Return that of both sides, and the other's."""
        return 2

    def entries(self, where: Floats, codes: int) -> Integers:
        """Return one entry of each code, of the first below 0."""
        own = np.arange(codes)
        return np.stack([own // 2, own, np.where(own == 0, -self.weight, self.weight)])


COARSE: tuple[Level, ...] = (Arc(1, 16), Arc(2, 8), Groups(8, 8))  # levels of a number, beside its bins
BINS, BINS_OF_MANY = Each(4), Each(8)  # where there is much to tell they weigh more
MUCH_FROM = 5_000.0  # strength
OF_WORDS: tuple[Level, ...] = (Each(11),)
OF_TWO: tuple[Level, ...] = (Sides(11),)


@dataclass(frozen=True, eq=False)
class Layout:
    """What is public of blocks before cut points are: the levels of each feature. `most`: coordinates, at most."""

    levels: tuple[tuple[Level, ...], ...]
    most: int

    @classmethod
    def of(cls, features: Sequence[Feature], bins: Sequence[int], strength: float = 0.0) -> Layout:
        """Lay out the levels of features with so many `bins` of values: of a number, those that say less than these."""
        own = BINS_OF_MANY if strength >= MUCH_FROM else BINS
        levels = tuple(_levels(*each, own) for each in zip(features, bins, strict=True))
        widest = max(WIDEST, *(feature.bins for feature in features))
        return cls(levels, 1 + sum(level.widest(widest) for each in levels for level in each))

    @property
    def count(self) -> int:
        """Count the coordinates that a row has, at most."""
        return 1 + sum(level.most_of_row for each in self.levels for level in each)

    @property
    def square(self) -> int:
        """Return the square of how long a row's weights are, at most."""
        return EVERYBODY**2 + sum(level.weight**2 for each in self.levels for level in each)


def _levels(feature: Feature, bins: int, own: Level) -> tuple[Level, ...]:
    if has_two_values(feature) or bins < 3:
        return OF_TWO
    if not isinstance(feature, NumericFeature):
        return OF_WORDS
    return (*(level for level in COARSE if level.widest(bins) - 1 < FEWER * bins), own)


@dataclass(frozen=True, eq=False)
class Blocks:
    """`coordinates`, `codes`, `weights` (entries,): a code of a feature scores the sum of its coordinates, each times
    its weight; the first is everybody's. `size` coordinates in all. `places`: where each feature's codes begin; `width`
    codes in all.
    """

    coordinates: Integers
    codes: Integers
    weights: Integers
    places: Integers
    size: int
    width: int

    @classmethod
    def of(cls, features: Sequence[Feature], layout: Layout, counts: Sequence[Floats] = ()) -> Blocks:
        """Fill a layout, by the released `counts` of each feature's codes where there are any."""
        widths = [feature.bins for feature in features]
        places = np.cumsum([0, *widths])
        first = np.arange(widths[0])
        parts, size = [np.stack([0 * first, first, 0 * first + EVERYBODY])], 1
        for at, (levels, codes, place) in enumerate(zip(layout.levels, widths, places, strict=False)):
            share = np.full(codes - 1, 1 / max(1, codes - 1))
            if counts and (seen := np.maximum(counts[at][:-1], 0)).any():
                share = MASS * seen / seen.sum() + (1 - MASS) * share
            for level in levels:
                entries = level.entries(np.cumsum(share) - share / 2, codes)
                parts.append(entries + np.array([[size], [place], [0]]))
                size += int(entries[0].max()) + 1
        coordinates, own, weights = np.concatenate(parts, axis=1)
        return cls(coordinates, own, weights, places[:-1], size, int(places[-1]))

    def longest(self) -> int:
        """Return the square of how long the weights of any row are, at most."""
        squares = np.bincount(self.codes, self.weights**2, self.width).astype(np.int64)
        return int(np.maximum.reduceat(squares, self.places).sum())

    def terms(self, theta: NDArray[Any]) -> NDArray[Any]:
        """Return what each code scores: (codes,)."""
        found = np.zeros(self.width, theta.dtype)
        np.add.at(found, self.codes, self.weights * theta[self.coordinates])
        return found

    def collect(self, sums: NDArray[Any], power: int = 1) -> NDArray[Any]:
        """Return the sums over each coordinate's codes, each times that power of its weight: (size,)."""
        found = np.zeros(self.size, sums.dtype)
        np.add.at(found, self.coordinates, self.weights**power * sums[self.codes])
        return found


def term_variances(blocks: Blocks, curved: Floats, ridge: float, deviation: float) -> Floats:
    """Return what noise of such `deviation` in the loss does to each code's score, nearly: features one by one, each
    with as much curvature per code as rows are thought to make. (codes,)

    Most coordinates are of one code, so few are left to invert by: no product is so large that libraries of matrices
    share it among threads, whose waiting takes more of a processor than the fit.
    """
    found = np.zeros(blocks.width)
    ends = np.append(blocks.places, blocks.width)
    alone = np.bincount(blocks.coordinates)[blocks.coordinates] == 1
    for low, high in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        inside = (blocks.codes >= low) & (blocks.codes < high) & (blocks.coordinates > 0)
        one, many = inside & alone, inside & ~alone
        own = np.bincount(blocks.codes[one] - low, blocks.weights[one] ** 2 / ridge, high - low)
        names, columns = np.unique(blocks.coordinates[many], return_inverse=True)
        shared = np.zeros((high - low, names.size))
        shared[blocks.codes[many] - low, columns] = blocks.weights[many] / sqrt(ridge)
        damped = 1 / (1 + own * curved[low:high])
        slopes = shared * (curved[low:high] * damped)[:, None]
        inner = np.eye(names.size) + slopes.T @ shared
        shrunk = np.diag(damped) - (shared * damped[:, None]) @ np.linalg.solve(inner, slopes.T)
        by_own, by_shared = np.einsum("ij,ij,j->i", shrunk, shrunk, own), ((shrunk @ shared) ** 2).sum(axis=1)
        found[low:high] = deviation**2 / ridge * (by_own + by_shared)
    return found
