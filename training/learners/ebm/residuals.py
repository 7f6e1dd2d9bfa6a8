"""What is left to explain of a row by a released score, in whole numbers, and how much of it one row can be
(docs/privacy/ebm.md): of two classes, of a number, and of three classes or more.

What a row adds to a sum is at most GRID in size, or as long, by public bounds alone; a residual is brought to that
size, so that all releases have one sensitivity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import exp, sqrt
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.privacy.budget import Relation
from training.learners.base.class_weights import ONE, Balance, words_of
from training.rows import kernels
from training.rows.kernels import FRACTION
from training.rows.partitions.partition import TARGET_GRID
from training.rows.statistics.residuals import (
    ClippedResiduals,
    RowResiduals,
    Softmax,
    SoftmaxResiduals,
    TableResiduals,
)
from training.session.reach import Norm, reach

Integers = NDArray[np.int64]
GRID = 1 << 20
SCORES = 1 << 12  # scores per logit
CLIP = 8 * SCORES  # beyond, the chances of the last table entry stand
CHANCE = 1 << 20  # steps of a chance in a row's residual
SHIFT, TAIL = 2, 17  # scores are rounded to 2^SHIFT before they are exponents, and chances are 0 so many logits below


class Residuals(Protocol):
    """What is left to explain of a row."""

    @property
    def relation(self) -> Relation:
        """Return the relation of neighbours that they are scaled for."""

    @property
    def norm(self) -> Norm:
        """Return the norm that they are scaled for."""

    @property
    def outputs(self) -> int:
        """Count the numbers of a row."""

    @property
    def per(self) -> str:
        """Return what a plan says of sums, beside leaves."""

    @property
    def words(self) -> str:
        """Return what a plan says of class weights."""

    @property
    def worth(self) -> float:
        """Return the worth of one grid step of a sum, in logits or half ranges."""

    @property
    def longest(self) -> int:
        """Return what a row adds to a sum at most, in size or length."""

    @property
    def moved(self) -> int:
        """Return how far a row moves sums over leaves at most, in the norm."""

    @property
    def scored(self) -> int:
        """Return how far a row moves a pair's score at most."""

    def of_rows(self) -> RowResiduals:
        """Return what sums them over rows, in grid steps."""


class _OneNumber:
    """Residuals that are one number."""

    relation: Relation
    norm: Norm
    outputs: ClassVar[int] = 1
    per: ClassVar[str] = ""

    def extremes(self) -> tuple[int, int]:
        """Return what a row may add at most: (up, down), in grid steps."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """Return the size that no row's number exceeds, in grid steps."""
        return max(self.extremes())

    @property
    def moved(self) -> int:
        """Return how far a row moves sums over leaves at most, in whole numbers."""
        return reach(*self.extremes(), self.relation, self.norm)

    @property
    def scored(self) -> int:
        """Return how far one row moves one score at most, given that it moves sums over leaves by GRID at most."""
        return 2 * (reach(GRID, 0, self.relation, "l2") if self.norm == "l2" else GRID)


@dataclass(frozen=True)
class ClassResiduals(_OneNumber):
    """Two classes: y - p, p = 1 / (1 + exp(-score)), for scores that are known to lie in low..high (`constant`
    included). Clipped to -clip..clip, at most 1; then times what a row's class is `weighed`, at most 1.

    y - p is at most A = 1 - p(low) and at least -B, B = p(high): the further the released terms are from saying
    anything, the less one row counts.
    """

    constant: int
    low: int
    high: int
    clip: float
    relation: Relation
    norm: Norm
    weighed: Balance | None = None

    @property
    def words(self) -> str:
        """Return what a plan says of class weights."""
        return words_of(self.weighed)

    @property
    def weights(self) -> tuple[float, float]:
        """Return the weight of a row of each class."""
        first, last = self.weighed.pairs[0] if self.weighed else (ONE, ONE)
        return first / ONE, last / ONE

    @property
    def span(self) -> tuple[int, int]:
        """Return the lowest and the highest score of the table: a row beyond counts as one at its end."""
        return min(max(self.low, -CLIP), CLIP), max(min(self.high, CLIP), -CLIP)

    @cached_property
    def worth(self) -> float:
        """Return the worth of one grid step of a sum, in logits."""
        (low, high), (first, last) = self.span, self.weights
        up, down = (w * min(self.clip, 1 / (1 + exp(end / SCORES))) for w, end in ((last, low), (first, -high)))
        fine = 1 << 40
        return reach(int(fine * up) + 1, int(fine * down) + 1, self.relation, self.norm) / fine / (GRID - 2)

    @cached_property
    def table(self) -> NDArray[np.int32]:
        """Return the residuals by class and score - low: (2, scores), rounded toward zero."""
        return _table(*self.span, self.clip, *self.weights, self.worth)

    def extremes(self) -> tuple[int, int]:
        """Return what a row may add at most: (up, down), in grid steps. No row of the table rises anywhere."""
        return int(self.table[1, 0]), -int(self.table[0, -1])

    def of_rows(self) -> TableResiduals:
        """Return what sums them over rows, in grid steps."""
        return TableResiduals(self.table, self.span[0] - self.constant)


@lru_cache(maxsize=4)  # rounds that know the same of the scores share it
def _table(low: int, high: int, clip: float, first: float, last: float, worth: float) -> NDArray[np.int32]:
    weights = np.array([first, last])
    return kernels.additive.clipped_steps(_residuals(), low + CLIP, high + CLIP + 1, clip, weights, worth)


@lru_cache(maxsize=1)
def _residuals() -> NDArray[np.float64]:
    """Return y - p by class and score + CLIP, which never rises with the score, whatever rounding does: (2, 2 CLIP +
    1).
    """
    chances = 1 / (1 + np.exp(-np.arange(-CLIP, CLIP + 1) / SCORES))
    return np.minimum.accumulate([-chances, 1 - chances], axis=1)


@dataclass(frozen=True)
class NumberResiduals(_OneNumber):
    """A number: target - score, clipped to -clip..clip, all in steps of half the public range / TARGET_GRID. Targets
    are centred on the middle of that range: where it lies does not matter.
    """

    constant: int
    clip: int
    relation: Relation
    norm: Norm
    words: ClassVar[str] = ""

    @property
    def most(self) -> int:
        """Return the clip in grid steps: a row that is replaced moves a sum by twice as much, in either norm."""
        return GRID if self.relation is Relation.ADD_REMOVE else GRID // 2

    @property
    def factor(self) -> int:
        """Return the factor that scales a clipped residual to fill the grid, with FRACTION binary digits."""
        return (self.most << FRACTION) // self.clip

    @property
    def worth(self) -> float:
        """Return the worth of one grid step of a sum, in half ranges."""
        return (1 << FRACTION) / self.factor / TARGET_GRID

    def extremes(self) -> tuple[int, int]:
        """Return what a row may add at most: (up, down), in grid steps."""
        most = self.clip * self.factor >> FRACTION
        return most, most

    def of_rows(self) -> ClippedResiduals:
        """Return what sums them over rows, in grid steps."""
        return ClippedResiduals(self.constant, self.clip, self.factor)


@lru_cache(maxsize=1)
def exponentials() -> NDArray[np.int32]:
    """Return exp(-d) by d / 2^SHIFT in 2^-24, d in scores."""
    steps = np.arange(TAIL * SCORES >> SHIFT)
    return np.asarray((1 << 24) * np.exp(-steps * (1 << SHIFT) / SCORES), np.int32)


def softmax_of(constant: Integers) -> Softmax:
    """Return how scores with this constant become chances."""
    return Softmax(constant, exponentials(), SHIFT, SCORES.bit_length() - 1)


@dataclass(frozen=True, eq=False)
class ClassVectors:
    """What is left to explain: for each class [it is the row's] - p, p the softmax of scores that are known to lie in
    lows..highs (`constant` included). No longer than `clip` times what any could be, sqrt(2) in L2 and 2 in L1; then
    times what a row's class is `weighed`, at most 1.
    """

    constant: Integers
    lows: Integers
    highs: Integers
    clip: float
    relation: Relation
    norm: Norm
    weighed: Balance | None = None
    per: ClassVar[str] = " and class"
    scored: ClassVar[int] = 2 * GRID + 4  # a length is rounded down, before and after, and of each row replaced

    @property
    def outputs(self) -> int:
        """Count the numbers of a row: one for each class."""
        return self.constant.size

    @property
    def words(self) -> str:
        """Return what a plan says of class weights."""
        return words_of(self.weighed)

    @cached_property
    def length(self) -> int:
        """Return the length beyond which a row's numbers are shortened, in steps of a chance: the clip, or what public
        bounds of the scores allow, if that is less. Were it too small, rows would be shortened more: no row's numbers
        are ever longer.
        """
        least, most = _bounds(self.lows), _bounds(self.highs)
        others = most.sum() - most
        left = others / (least + others)  # of a row of each class at most, which is 1 - p of its class
        far = most / (most + least.sum() - least)  # the largest chance of each class
        if self.norm == "l1":
            whole, limit = 2 * left.max(), 2.0
        else:
            whole, limit = float(np.sqrt(left**2 + left * np.minimum(left, far.max())).max()), sqrt(2)
        return max(1, int(CHANCE * min(self.clip * limit, whole)) + 1)

    @property
    def longest(self) -> int:
        """Return the length that no row's numbers exceed, in grid steps: a row replaced is one taken away and one
        added, which may point the other way.
        """
        return GRID if self.relation is Relation.ADD_REMOVE else GRID // 2

    @cached_property
    def worth(self) -> float:
        """Return the worth of one grid step of a sum, in logits."""
        return self.length / CHANCE / self.longest

    @property
    def most(self) -> Integers:
        """Return the length that a row of each class does not exceed, in grid steps."""
        count = self.constant.size
        weights = [pair[1] for pair in self.weighed.pairs] if self.weighed else [ONE] * count
        return np.array([self.longest * weight // ONE for weight in weights], np.int64)

    @property
    def moved(self) -> int:
        """Return how far a row moves sums over leaves at most: any two rows' vectors, in one leaf or in two, are as far
        apart as both are long at most.
        """
        return int(self.most.max()) * (1 if self.relation is Relation.ADD_REMOVE else 2)

    def of_rows(self) -> SoftmaxResiduals:
        """Return what sums them over rows, in grid steps."""
        return SoftmaxResiduals(softmax_of(self.constant), self.length, self.most, self.norm == "l1")


def _bounds(scores: Integers) -> NDArray[np.float64]:
    """Return exp(scores), on one scale for bounds that are compared."""
    return np.asarray(np.exp(np.clip(scores / SCORES, -300.0, 300.0)))


def class_balance(shares: tuple[float, ...], power: float) -> Balance | None:
    """Return what rows of each of three classes or more weigh by the declared shares: the rarest 1, others less, so
    that classes are alike as far as `power` says. None where all weigh the same.
    """
    weights = [max(1, round(float((min(shares) / share) ** power) * ONE)) for share in shares] if power else []
    if all(weight == ONE for weight in weights):
        return None
    logs = [power * np.log(share) for share in shares]
    offsets = tuple(float(each - np.mean(logs)) for each in logs)
    return Balance(tuple((weight, weight) for weight in weights), offsets, power)
