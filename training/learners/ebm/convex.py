"""`ebm` by one convex fit: the loss of all features together, whose noisy minimum is released at once
(docs/privacy/ebm.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt, log
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.errors import PlanMismatch
from accountant.noise.objective import DIGITS, FINE, NEAR, RIDGE, SLOPE_UNIT, STEEPEST, STEP, Objective, gradient
from dpserve_verify.privacy.budget import Relation
from training.learners.ebm.blocks import HEAVIEST, Blocks, Layout
from training.rows.partitions.rows import Rows
from training.rows.statistics.convex_rows import Curved, LongSlopes, Slopes, curved_sums, long_sums, slope_sums

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
REACH, KNOTS = 16, 64  # logits on either side, and steps for each, that the slope of a row's loss is tabled in
FINER = 6  # binary digits of such a step
TABLE_UNIT = 26  # binary digits of the table: with fewer, slopes of a million rows are stairs
ALONG = 20  # binary digits of a direction's largest term
TURNS, INNER, LOOKS = 60, 200, 12  # Newton steps, before slower ones that are sure to end; what each may ask of rows
HALF, ENOUGH = 0.5, 0.3  # of how near is near; of the slope along a step that may be left at its end
MORE_DAMPED, LESS_DAMPED = 4.0, 16.0  # after a step that was too long, or that was not
SUM_DIGITS = 62
SPLIT = 31  # binary digits of the lower part of a sum, as the kernel has it
LONGER = 44  # more binary digits of a coordinate, for sure steps
MASK = (1 << 64) - 1
LEAST_ROOT, ROOM = (
    4,
    4,
)  # of how much steeper the loss may be in one direction than in another; for roots that are rounded up
LARGEST_NOISE = 63 - SLOPE_UNIT - DIGITS  # binary digits before the point of a coordinate's noise: what 64 bits hold


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


def sure_turns(ridge: int, layout: Layout, size: int, rows: int) -> int:
    """Return how many steps that are sure to end come to a minimum, whatever so many rows and the noise are
    (docs/privacy/ebm.md). `ridge`: in 2^-RIDGE; `size`: coordinates, at most.
    """
    highest, least = steepest(ridge, layout.count, HEAVIEST**2 * rows), Fraction(ridge, 1 << RIDGE)
    longest = (isqrt(layout.square) + 1) * rows + (isqrt(size) + 1 << LARGEST_NOISE)  # of the gradient at 0
    return ceil(2 * _root(ridge, highest) * log(longest**2 / least / _end(ridge, highest))) + 1


def is_sure(layout: Layout, rows: int) -> bool:
    """Tell whether numbers are fine enough for `sure_turns` of so many rows, whatever the ridge."""
    ridge = int(STEEPEST * (1 << RIDGE)) * layout.square  # the least: the curvature is at most 1
    highest = steepest(ridge, layout.count, HEAVIEST**2 * rows)
    rounding = Fraction(highest * layout.most, 1 << RIDGE) / 4 ** (FINE + LONGER + 1)
    return bool(ROOM * 64 * _root(ridge, highest) ** 3 * rounding <= _end(ridge, highest))


def _end(ridge: int, highest: int) -> Fraction:
    """Return how large what is left may be for the gradient to be near."""
    return Fraction(1 << RIDGE, (1 << 2 * NEAR + 2) * highest * (1 + _root(ridge, highest)))


def steepest(ridge: int, blocks: int, squares: int) -> int:
    """Return how fast the gradient rises at most along a coordinate, in 2^-RIDGE, by the sum of the squares of rows'
    weights there.
    """
    return ridge + int(STEEPEST * (1 << RIDGE)) * blocks * squares


def _root(ridge: int, highest: int) -> int:
    return max(LEAST_ROOT, isqrt(-(-highest // ridge) - 1) + 1)


@dataclass(frozen=True, eq=False)
class ConvexLoss:
    """The sum of rows' losses: logistic, and linear where the slope would be beyond `clip`, in 2^-TABLE_UNIT. Asked of
    rows it answers with something that tells its slopes: for `ObjectivePerturbation` alone. `layout`: of its blocks;
    `begin`: public scores of codes that every row begins with, in 2^-FINE: (codes,); `most`: rows that there can be.
    """

    blocks: Blocks
    layout: Layout
    clip: int
    begin: Integers
    most: int
    purpose: ClassVar[str] = "minimise a convex loss"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if self.blocks.longest() > self.layout.square:
            raise PlanMismatch("blocks: a row has more weight than the price allows for")

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
        square = self.clip**2 * self.layout.square
        return (isqrt(square - 1) >> TABLE_UNIT - SLOPE_UNIT) + 1

    def __call__(self, rows: Rows) -> LossOfRows:
        return LossOfRows(self, rows)


class LossOfRows(Objective):
    """The loss of rows; nothing of it leaves the mechanism that minimises it."""

    def __init__(self, loss: ConvexLoss, rows: Rows) -> None:
        self._blocks, self._table, self._begin, self._rows = loss.blocks, slope_table(loss.clip), loss.begin, rows
        self._layout, self._most = loss.layout, loss.most
        rising = np.diff(self._table)
        self._rising = np.concatenate([[0], rising, [0]])
        self._chords = np.maximum(steepest_chords(loss.clip), self._rising)

    def __len__(self) -> int:
        return self._blocks.size

    def slopes(self, theta: Sequence[int], bits: int) -> Sequence[int]:
        """Sum the slopes of rows by each coordinate, exactly, in 2^-(bits + STEP)."""
        if bits == FINE:
            high, low, _ = slope_sums(self._rows, self._slopes(np.asarray(theta, np.int64), self._rising))
            whole = (high.astype(object) << SPLIT) + low.astype(object)
            return [int(each) for each in self._blocks.collect(whole)]
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
        limit = 2.0 ** (SUM_DIGITS - FINE) / (self._layout.count + 1) / HEAVIEST
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
        rising = self._blocks.collect(np.ldexp(rises.astype(np.float64), -STEP), 2)
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
        squares = self._blocks.collect(slope_sums(self._rows, counted)[2].astype(object), 2).tolist()
        highest = [steepest(ridge, self._layout.count, square) for square in squares]
        root, bits = _root(ridge, max(highest)), FINE + LONGER
        units = [high << STEP - RIDGE for high in highest]
        theta, far = [0] * len(units), [0] * len(units)
        for _ in range(sure_turns(ridge, self._layout, len(units), self._most)):
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
