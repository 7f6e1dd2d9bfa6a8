"""`ebm` by one convex fit: every feature's bins at several resolutions, as public blocks, and the loss whose noisy
minimum is released at once (docs/privacy/convex.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt, log
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.errors import PlanMismatch
from accountant.noise.objective import DIGITS, FINE, NEAR, RIDGE, SLOPE_UNIT, STEEPEST, STEP, Objective, gradient
from dpserve_verify.privacy.budget import Relation
from models.features.features import Feature, NumericFeature
from training.rows.partitions.rows import Rows
from training.rows.statistics.convex_rows import Curved, LongSlopes, Slopes, curved_sums, long_sums, slope_sums

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
LEVELS = (8,)  # groups of a number's bins, beside the bins themselves: more of them help Adult and harm Bank
FEWER = 0.7  # of the bins; a level with more groups than that would say the same again
REACH, KNOTS = 16, 64  # logits on either side, and steps for each, that the slope of a row's loss is tabled in
FINER = 6  # binary digits of such a step
TABLE_UNIT = 26  # binary digits of the table: with fewer, slopes of a million rows are stairs
ALONG = 20  # binary digits of a direction's largest term
TURNS, INNER, LOOKS = 60, 200, 12  # Newton steps, before slower ones that are sure to end; what each may ask of rows
HALF, ENOUGH = 0.5, 0.3  # of how near is near; of the slope along a step that may be left at its end
MORE_DAMPED, LESS_DAMPED = 4.0, 16.0  # after a step that was too long, or that was not
SUM_DIGITS = 62
WIDEST = 1024  # coordinates of a block of a number, at most, and more
SPLIT = 31  # binary digits of the lower part of a sum, as the kernel has it
LONGER = 44  # more binary digits of a coordinate, for sure steps
MASK = (1 << 64) - 1
LEAST_ROOT, ROOM = (
    4,
    4,
)  # of how much steeper the loss may be in one direction than in another; for roots that are rounded up
LARGEST_NOISE = 19  # binary digits before the point of a coordinate's noise: what 64 bits hold


@dataclass(frozen=True, eq=False)
class Layout:
    """What is public of blocks before cut points are: of each feature, how many groups its coarser levels have. `most`:
    coordinates, at most.
    """

    levels: tuple[tuple[int, ...], ...]
    most: int

    @classmethod
    def of(cls, features: Sequence[Feature], bins: Sequence[int]) -> Layout:
        """Lay out the levels of features with so many `bins` of values: of a number, those that say less than these."""
        levels = tuple(
            tuple(level for level in LEVELS if isinstance(feature, NumericFeature) and level < FEWER * inner)
            for feature, inner in zip(features, bins, strict=True)
        )
        widest = max(WIDEST, *(feature.bins for feature in features))
        return cls(levels, widest * (1 + sum(len(each) + 1 for each in levels)))

    @property
    def count(self) -> int:
        """Count the blocks: a constant, and of each feature its levels and its bins."""
        return 1 + sum(len(each) + 1 for each in self.levels)


@dataclass(frozen=True, eq=False)
class Blocks:
    """`coordinates` (entries,) and `codes` (entries,): a code of a feature scores the sum of its coordinates, the first
    of which is everybody's. Of each block a row has one; `size` coordinates in all. `places`: where each feature's
    codes begin; `width` codes in all.
    """

    coordinates: Integers
    codes: Integers
    places: Integers
    size: int
    width: int

    @classmethod
    def of(cls, features: Sequence[Feature], layout: Layout) -> Blocks:
        """Fill a layout: neighbouring bins of a number in each group of a level, and the missing value in its own."""
        groups = [(np.zeros(features[0].bins, np.int64), 0)]
        places = np.cumsum([0, *(feature.bins for feature in features)]).tolist()
        for feature, levels, place in zip(features, layout.levels, places, strict=False):
            own = np.arange(feature.bins, dtype=np.int64)
            groups += [(np.append(own[:-1] * level // (feature.bins - 1), level), place) for level in levels]
            groups.append((own, place))
        starts = np.cumsum([0, *(int(level.max()) + 1 for level, _ in groups)]).tolist()
        coordinates = [level + start for (level, _), start in zip(groups, starts, strict=False)]
        codes = [np.arange(level.size) + place for level, place in groups]
        return cls(np.concatenate(coordinates), np.concatenate(codes), np.array(places[:-1]), starts[-1], places[-1])

    def terms(self, theta: NDArray[Any]) -> NDArray[Any]:
        """Return what each code scores: (codes,)."""
        found = np.zeros(self.width, theta.dtype)
        np.add.at(found, self.codes, theta[self.coordinates])
        return found

    def collect(self, sums: NDArray[Any]) -> NDArray[Any]:
        """Return the sums over each coordinate's codes: (size,)."""
        found = np.zeros(self.size, sums.dtype)
        np.add.at(found, self.coordinates, sums[self.codes])
        return found


def term_variances(blocks: Blocks, curved: Floats, weight: float, deviation: float) -> Floats:
    """Return what noise of such `deviation` in the loss does to each code's score, nearly: features one by one, each
    with as much curvature per code as rows are thought to make. (codes,)
    """
    found = np.zeros(blocks.width)
    ends = np.append(blocks.places, blocks.width)
    for low, high in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        inside = (blocks.codes >= low) & (blocks.codes < high) & (blocks.coordinates > 0)
        coordinates, codes = blocks.coordinates[inside], blocks.codes[inside] - low
        if coordinates.size == high - low:  # one coordinate for each
            found[low:high] = (deviation / (weight + curved[low:high])) ** 2
            continue
        has = np.zeros((high - low, int(coordinates.max()) + 1))
        has[codes, coordinates] = 1.0
        shared = has @ has.T / weight
        shrunk = np.linalg.inv(np.eye(high - low) + shared * curved[low:high])
        found[low:high] = deviation**2 / weight * np.einsum("ij,ij->i", shrunk @ shared, shrunk)
    return found


@lru_cache(maxsize=8)
def slope_table(clip: int) -> Integers:
    """Return the slope of a row's loss of class 0 at ends of steps of 1 / KNOTS logits, in 2^-TABLE_UNIT: its chance by
    the score, and `clip` where that is less. It rises by at most a quarter of what the score does.
    """
    scores = np.arange(-REACH * KNOTS, REACH * KNOTS + 1) / KNOTS
    table = np.minimum(np.rint((1 << TABLE_UNIT) / (1 + np.exp(-scores))).astype(np.int64), clip)
    table = np.maximum.accumulate(table)
    if np.diff(table).max() * KNOTS > STEEPEST * (1 << TABLE_UNIT):
        raise PlanMismatch("loss: a row's slope rises faster than the price allows for")
    table.setflags(write=False)
    return table


@lru_cache(maxsize=8)
def steepest_chords(clip: int) -> Integers:
    """Return how much one more step adds to the slope at most, on the way from a step to any other, or to beyond the
    table: a row that is taken to bend so never overshoots. Of each step, what lies below all and what lies above.
    """
    table = slope_table(clip)
    knots = np.arange(table.size)
    found = np.zeros(table.size, np.int64)
    for at in knots:
        apart = knots - at
        apart[at] = 1
        found[at] = (-((table[at] - table) // apart)).max()
    inner = np.maximum(np.maximum(found[:-1], found[1:]), np.diff(table))
    return np.concatenate([found[:1], inner, found[-1:]])


def sure_turns(ridge: int, blocks: int, size: int, rows: int) -> int:
    """Return how many steps that are sure to end come to a minimum, whatever so many rows and the noise are
    (docs/privacy/convex.md). `ridge`: in 2^-RIDGE; `size`: coordinates, at most.
    """
    root, least = _root(ridge, steepest(ridge, blocks, rows)), Fraction(ridge, 1 << RIDGE)
    longest = (isqrt(blocks) + 1) * rows + (isqrt(size) + 1 << LARGEST_NOISE)  # of the gradient at 0
    return ceil(2 * root * log(longest**2 / least / _end(ridge, blocks, rows))) + 1


def is_sure(blocks: int, size: int, rows: int) -> bool:
    """Tell whether numbers are fine enough for `sure_turns` of so many rows, whatever the ridge."""
    ridge = int(STEEPEST * (1 << RIDGE)) * blocks  # the least: the curvature is at most 1
    highest = Fraction(steepest(ridge, blocks, rows), 1 << RIDGE)
    rounding = highest * size / 4 ** (FINE + LONGER + 1)
    left = 64 * _root(ridge, steepest(ridge, blocks, rows)) ** 3 * rounding
    return bool(ROOM * left <= _end(ridge, blocks, rows))


def _end(ridge: int, blocks: int, rows: int) -> Fraction:
    """Return how large what is left may be for the gradient to be near."""
    highest = steepest(ridge, blocks, rows)
    return Fraction(1 << RIDGE, (1 << 2 * NEAR + 2) * highest * (1 + _root(ridge, highest)))


def steepest(ridge: int, blocks: int, rows: int) -> int:
    """Return how fast the gradient rises at most along a coordinate that so many rows have, in 2^-RIDGE."""
    return ridge + int(STEEPEST * (1 << RIDGE)) * blocks * rows


def _root(ridge: int, highest: int) -> int:
    return max(LEAST_ROOT, isqrt(-(-highest // ridge) - 1) + 1)


@dataclass(frozen=True, eq=False)
class ConvexLoss:
    """The sum of rows' losses: logistic, and linear where the slope would be beyond `clip`, in 2^-TABLE_UNIT. Asked of
    rows it answers with something that tells its slopes: for `ObjectivePerturbation` alone. `count`: blocks, at most;
    `begin`: public scores of codes that every row begins with, in 2^-FINE: (codes,); `most`: rows that there can be.
    """

    blocks: Blocks
    count: int
    clip: int
    begin: Integers
    most: int
    purpose: ClassVar[str] = "minimise a convex loss"
    norm: ClassVar[str] = "l2"

    @property
    def size(self) -> int:
        """Count the coordinates."""
        return self.blocks.size

    def sensitivity(self, relation: Relation) -> int:
        """Return how long one row's gradient is at most, in 2^-SLOPE_UNIT, rounded up. PlanMismatch where a row is
        replaced: nothing is proved of that.
        """
        if relation is not Relation.ADD_REMOVE:
            raise PlanMismatch(f"relation={relation}: {self.purpose} is proved for one row added or removed")
        square = self.clip**2 * self.count
        return (isqrt(square - 1) >> TABLE_UNIT - SLOPE_UNIT) + 1

    def __call__(self, rows: Rows) -> LossOfRows:
        return LossOfRows(self, rows)


class LossOfRows(Objective):
    """The loss of rows; nothing of it leaves the mechanism that minimises it."""

    def __init__(self, loss: ConvexLoss, rows: Rows) -> None:
        self._blocks, self._table, self._begin, self._rows = loss.blocks, slope_table(loss.clip), loss.begin, rows
        self._count, self._most = loss.count, loss.most
        rising = np.diff(self._table)
        self._rising = np.concatenate([[0], rising, [0]])
        self._chords = np.maximum(steepest_chords(loss.clip), self._rising)

    def __len__(self) -> int:
        return self._blocks.size

    def slopes(self, theta: Sequence[int], bits: int) -> Sequence[int]:
        """Sum the slopes of rows by each coordinate, exactly, in 2^-(bits + STEP)."""
        if bits == FINE:
            high, low, _ = slope_sums(self._rows, self._slopes(np.asarray(theta, np.int64), self._rising))
            parts = zip(*(self._blocks.collect(part).tolist() for part in (high, low)), strict=True)
            return [(more << SPLIT) + less for more, less in parts]
        longer = bits - FINE
        exact = self._blocks.terms(np.array(theta, object)) + (self._begin.astype(object) << longer)
        rough, cut = np.array(exact / (1 << bits), np.float64), (1 << longer) - 1
        behind = np.array(exact & cut, np.int64)
        terms = np.array([(each & MASK) - (each >> 63 & 1) * (MASK + 1) for each in (exact >> longer).tolist()])
        long = LongSlopes(self._blocks.places, terms, behind, rough, self._table, FINE - FINER, longer)
        lowest, lower, higher = (self._blocks.collect(part.astype(object)) for part in long_sums(self._rows, long))
        return [int(each) for each in (((higher << SPLIT) + lower) << longer) + lowest]

    def _slopes(self, theta: Integers, bends: Integers) -> Slopes:
        terms = self._blocks.terms(theta) + self._begin
        return Slopes(self._blocks.places, terms, self._table, bends, FINE - FINER)

    def candidates(self, noise: Integers, ridge: int) -> Iterator[tuple[Sequence[int], int]]:
        """Yield what damped Newton steps come to, and where they do not do, what sure steps do: a public number."""
        drawn, weight = np.asarray(noise * 2.0 ** -(SLOPE_UNIT + DIGITS), np.float64), ridge * 2.0**-RIDGE
        theta, damped, near = np.zeros(self._blocks.size), 1.0, HALF * 2.0**-NEAR
        limit = 2.0 ** (SUM_DIGITS - FINE) / (self._count + 1)
        with np.errstate(all="ignore"):
            for _ in range(TURNS):
                theta = np.clip(theta, -limit, limit)
                bends = self._rising + ((self._chords - self._rising) * damped).astype(np.int64)
                slopes = self._slopes(_fine(theta), bends)
                left, rises = self._left(slopes, theta, drawn, weight)
                length = float(np.linalg.norm(left))
                if length <= near:
                    yield _fine(theta).tolist(), FINE
                along = self._newton(slopes, left, rises, weight, max(near, min(0.1, length**0.5) * length))
                share = self._how_far(theta, along, float(along @ left), drawn, weight)
                damped = min(1.0, damped * MORE_DAMPED) if share < ENOUGH else damped / LESS_DAMPED ** (share >= HALF)
                theta = theta + share * along
                if not np.isfinite(theta).all():
                    break
        yield from self._surely(noise, ridge)

    def _left(self, slopes: Slopes, theta: Floats, drawn: Floats, weight: float) -> tuple[Floats, Floats]:
        """Return the gradient and the diagonal of what it is taken to rise by, nearly."""
        high, low, rises = slope_sums(self._rows, slopes)
        per_code = np.ldexp(high.astype(np.float64), SPLIT - FINE - STEP) + np.ldexp(
            low.astype(np.float64), -FINE - STEP
        )
        rising = np.ldexp(self._blocks.collect(rises).astype(np.float64), -STEP)
        return self._blocks.collect(per_code) + weight * theta + drawn, rising + weight

    def _newton(self, slopes: Slopes, left: Floats, diagonal: Floats, weight: float, enough: float) -> Floats:
        """Return a step to where the gradient would be 0 were it linear, by conjugate gradients."""
        along, rest = np.zeros(left.size), -left
        scaled = rest / diagonal
        search, power = scaled, float(rest @ scaled)
        for _ in range(INNER):
            if float(np.linalg.norm(rest)) <= enough or not power > 0:
                break
            curved = self._curved(slopes, search) + weight * search
            share = power / float(search @ curved)
            along, rest = along + share * search, rest - share * curved
            scaled = rest / diagonal
            before, power = power, float(rest @ scaled)
            search = scaled + power / before * search
        return along

    def _curved(self, slopes: Slopes, along: Floats) -> Floats:
        terms = self._blocks.terms(along)
        unit = float(np.abs(terms).max()) or 1.0
        whole = np.rint(np.ldexp(terms / unit, ALONG)).astype(np.int64)
        digits = self._blocks.places.size.bit_length() + ALONG + TABLE_UNIT - 2 - FINER + self._rows.size.bit_length()
        dropped = max(0, digits - SUM_DIGITS)
        sums = curved_sums(self._rows, Curved(slopes, whole, dropped)).astype(np.float64)
        return np.asarray(self._blocks.collect(np.ldexp(sums, dropped - ALONG - STEP) * unit))

    def _how_far(self, theta: Floats, along: Floats, falls: float, drawn: Floats, weight: float) -> float:
        """Return how much of a step to take: until the loss hardly falls or rises any more along it, so that it may be
        less than all of the step or many times as much.
        """
        share, least, most = 1.0, (0.0, falls), (0.0, 0.0)
        for _ in range(LOOKS):
            there = theta + share * along
            slope = float(along @ self._left(self._slopes(_fine(there), self._rising), there, drawn, weight)[0])
            if abs(slope) <= -ENOUGH * falls:
                break
            if slope > 0:
                most = share, slope
            else:
                least = share, slope
            if not most[0]:
                share *= 4
                continue
            width = most[0] - least[0]
            share = least[0] + width * min(max(least[1] / (least[1] - most[1]), 0.1), 0.9)
        return share

    def _surely(self, noise: Integers, ridge: int) -> Iterator[tuple[Sequence[int], int]]:
        """Yield what accelerated steps down the gradient come to (Nesterov 2004), each coordinate's as long as its rows
        let it be, in so long numbers that one of a public number of them is a minimum.
        """
        counted = self._slopes(np.zeros(self._blocks.size, np.int64), np.ones_like(self._rising))
        counts = self._blocks.collect(slope_sums(self._rows, counted)[2]).tolist()
        highest = [steepest(ridge, self._count, count) for count in counts]
        root, bits = _root(ridge, max(highest)), FINE + LONGER
        units = [high << STEP - RIDGE for high in highest]
        theta, far = [0] * len(units), [0] * len(units)
        for _ in range(sure_turns(ridge, self._count, len(units), self._most)):
            middle = [_nearest(root * at + off, root + 1) for at, off in zip(theta, far, strict=True)]
            left = gradient(self.slopes(middle, bits), middle, bits, noise, ridge)
            if sum(each * each for each in left) <= 1 << 2 * (bits + STEP - NEAR):
                yield middle, bits
            steps = list(zip(middle, left, units, strict=True))
            theta = [at - _nearest(each, unit) for at, each, unit in steps]
            far = [
                _nearest(((root - 1) * off + at) * unit - root * root * each, root * unit)
                for off, (at, each, unit) in zip(far, steps, strict=True)
            ]


def _fine(theta: Floats) -> Integers:
    return np.rint(np.ldexp(theta, FINE)).astype(np.int64)


def _nearest(above: int, below: int) -> int:
    return (2 * above + below) // (2 * below)
