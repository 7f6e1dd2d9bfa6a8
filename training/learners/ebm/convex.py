"""`ebm` by one convex fit: every feature's bins at several resolutions, as public blocks, and the loss whose noisy
minimum is released at once (docs/privacy/convex.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.errors import PlanMismatch
from accountant.noise.objective import DIGITS, FINE, NEAR, SLOPE_UNIT, STEEPEST, STEP, Objective, gradient
from dpserve_verify.privacy.budget import Relation
from models.features.features import Feature, NumericFeature
from training.rows.partitions.rows import Rows
from training.rows.statistics.convex_rows import Curved, Slopes, curved_sums, long_sums, slope_sums

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
LEVELS = (8,)  # groups of a number's bins, beside the bins themselves: more of them help Adult and harm Bank
FEWER = 0.7  # of the bins; a level with more groups than that would say the same again
REACH, KNOTS = 16, 64  # logits on either side, and steps for each, that the slope of a row's loss is tabled in
FINER = 6  # binary digits of such a step
TABLE_UNIT = 16  # binary digits of the table
ALONG = 20  # binary digits of a direction's largest term
TURNS, INNER = 60, 200  # Newton steps, and conjugate gradients of each, before slower steps that are sure to end
HALF = 0.5
WIDEST = 1024  # coordinates of a block of a number, at most, and more
SPLIT = 28  # binary digits of the lower part of a sum, as the kernel has it
LONGER = 64  # more binary digits where those did not do


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


@dataclass(frozen=True, eq=False)
class ConvexLoss:
    """The sum of rows' losses: logistic, and linear where the slope would be beyond `clip`, in 2^-TABLE_UNIT. Asked of
    rows it answers with something that tells its slopes: for `ObjectivePerturbation` alone. `count`: blocks, at most;
    `begin`: public scores of codes that every row begins with, in 2^-FINE: (codes,).
    """

    blocks: Blocks
    count: int
    clip: int
    begin: Integers
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
        self._count = loss.count

    def __len__(self) -> int:
        return self._blocks.size

    def slopes(self, theta: Sequence[int], bits: int) -> Sequence[int]:
        """Sum the slopes of rows by each coordinate, exactly, in 2^-(bits + STEP)."""
        blocks, digits = self._blocks, bits - FINER
        if bits == FINE:
            high, low, _ = slope_sums(self._rows, self._slopes(np.asarray(theta, np.int64)))
            parts = zip(blocks.collect(high).tolist(), blocks.collect(low).tolist(), strict=True)
            return [(more << SPLIT) + less for more, less in parts]
        terms = (blocks.terms(np.array(theta, object)) + self._begin.astype(object) * (1 << bits - FINE)).tolist()
        sums = long_sums(self._rows, blocks.places, terms, self._table, digits)
        return [int(each) for each in blocks.collect(np.array(sums, object))]

    def _slopes(self, theta: Integers) -> Slopes:
        return Slopes(self._blocks.places, self._blocks.terms(theta) + self._begin, self._table, FINE - FINER)

    def candidates(self, noise: Integers, ridge: int) -> Iterator[tuple[Sequence[int], int]]:
        """Yield what Newton's steps come to, and where they do not do, what sure steps do."""
        theta = np.zeros(self._blocks.size)
        drawn, weight, near = (
            np.asarray(noise * 2.0 ** -(SLOPE_UNIT + DIGITS), np.float64),
            ridge * 2.0**-STEP,
            2.0**-NEAR,
        )
        limit = 2.0 ** (62 - FINE) / (self._count + 1)
        with np.errstate(all="ignore"):
            for _ in range(TURNS):
                theta = np.clip(theta, -limit, limit)
                fine = np.rint(np.ldexp(theta, FINE)).astype(np.int64)
                slopes = self._slopes(fine)
                left, rises = self._left(slopes, theta, drawn, weight)
                length = float(np.linalg.norm(left))
                if length <= HALF * near:
                    yield fine.tolist(), FINE
                along = self._newton(slopes, left, rises, weight, max(HALF * near, min(0.1, length**0.5) * length))
                theta = theta + self._how_far(theta, along, float(along @ left), drawn, weight) * along
                if not np.isfinite(theta).all():
                    break
        yield from self._surely(noise, ridge)

    def _left(self, slopes: Slopes, theta: Floats, drawn: Floats, weight: float) -> tuple[Floats, Floats]:
        """Return the gradient and the diagonal of what it rises by, nearly."""
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
        sums = curved_sums(self._rows, Curved(slopes, whole)).astype(np.float64)
        return np.asarray(self._blocks.collect(np.ldexp(sums, -ALONG - STEP) * unit))

    def _how_far(self, theta: Floats, along: Floats, falls: float, drawn: Floats, weight: float) -> float:
        """Return how much of a step to take: all, or less until the loss hardly rises any more along it."""
        share = 1.0
        for _ in range(20):
            fine = np.rint(np.ldexp(theta + share * along, FINE)).astype(np.int64)
            there = float(along @ self._left(self._slopes(fine), theta + share * along, drawn, weight)[0])
            if there <= -HALF * falls:
                break
            share *= min(0.9, max(0.1, falls / (falls - there)))
        return share

    def _surely(self, noise: Integers, ridge: int) -> Iterator[tuple[Sequence[int], int]]:
        """Yield what steps down the gradient come to, in so long numbers that every one of them brings it nearer."""
        bits = FINE + LONGER
        steepest = ridge + int(STEEPEST * (1 << STEP)) * self._count * self._rows.size
        theta = [0] * self._blocks.size
        while True:
            left = gradient(self.slopes(theta, bits), theta, bits, noise, ridge)
            if sum(each * each for each in left) <= 1 << 2 * (bits + STEP - NEAR):
                yield theta, bits
            theta = [at - each // steepest for at, each in zip(theta, left, strict=True)]
