"""Weights between bounds, and where a uniform number falls among them: what exact draws are made of. Nothing here is
random; the draws are in `accountant.noise.mechanisms`, the proofs in docs/privacy/prices.md.
"""

from __future__ import annotations

from bisect import bisect_left
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, frexp
from operator import mul
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

STEPS, REACH = 128, 60  # of the table of exp(-x): by 1/128, up to 60
SERIES = (-1 / 6, 1 / 2, -1.0)  # of exp(-r) - 1, the last term first
FINE = (-1 / 120, 1 / 24, *SERIES)
ROUGH_ERROR, FINE_ERROR, MIN_WEIGHT = 1e-9, 1e-13, 9e-27  # MIN_WEIGHT is above exp(-REACH)
Sums = tuple[list[int], list[int], int]  # partial sums of weights between whole numbers, and a bound of them all


def rough_weights(below: NDArray[Any], scale: float, series: tuple[float, ...] = SERIES) -> NDArray[np.float64]:
    """Approximate exp(-x), x = below / scale, from sums and products of floats alone: x is a step of the table and a
    rest r < 1/128, and the series of exp(-r) alternates: what the first four terms lack is below r^4 / 24, 1.6e-10 of
    it, and what six lack, FINE, below r^6 / 720, 4e-16. Floats are off by 2e-14 where `below` is an integer, nearly all
    of it by x itself, 60 * 2^-52, and by 1e-12 where it was rounded before. ROUGH_ERROR of it is allowed for, and
    FINE_ERROR of it for FINE of integers. 0 where x is REACH or more, and a weight MIN_WEIGHT or less.
    """
    x: NDArray[np.float64] = below / scale
    np.minimum(x, REACH, out=x)
    step = (x * STEPS).astype(np.int32)
    rest = np.subtract(x, step * (1 / STEPS), out=x)
    weights: NDArray[np.float64] = rest * series[0]
    for term in series[1:]:  # 1 - r (1 - r (1/2 - r / 6))
        weights += term
        weights *= rest
    weights += 1.0
    weights *= step_weights().take(step)
    return weights


@lru_cache(maxsize=1)
def step_weights() -> NDArray[np.float64]:
    """Return the weight of each step; of the last one, where all that is beyond REACH stands, 0."""
    with localcontext(prec=30):
        return np.array([*(float((Decimal(-step) / STEPS).exp()) for step in range(STEPS * REACH)), 0.0])


def weight(gap: int, scale: float | Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Return exp(-gap / scale) between two numbers that are closer than 2^-bits.

    Decimal's functions are correctly rounded, and x exp(-x) < 1: it is off by less than 4 units of its last digit.
    """
    digits, exact = bits // 3 + 30, gap / Fraction(scale)
    with localcontext(prec=digits):
        middle = Fraction((-(Decimal(exact.numerator) / Decimal(exact.denominator))).exp())
    slack = Fraction(4, 10 ** (digits - 1))
    return max(middle - slack, Fraction(0)), middle + slack


class Numbers(Protocol):
    """What `place` looks at: a list will do."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> int: ...


class PartialSums:
    """Sums of the first 1, 2, .. of many weights that are of few kinds, each added up when it is looked at.

    Args:
        weights: of each kind.
        kinds: of every weight its kind, an index.
    """

    def __init__(self, weights: list[int], kinds: NDArray[np.intp]) -> None:
        self._weights, self._kinds = weights, kinds

    def __len__(self) -> int:
        return len(self._kinds)

    def __getitem__(self, i: int, /) -> int:
        counts: list[int] = np.bincount(self._kinds[: i % len(self) + 1]).tolist()
        return sum(map(mul, self._weights, counts))


def place(low: Numbers, high: Numbers, total: int, uniform: int, bits: int) -> int | None:
    """Return the i whose share of the whole holds all of [uniform, uniform + 1) / 2^bits, if these bounds can tell."""
    i = bisect_left(low, -(-(uniform + 1) * total >> bits))
    begins = high[i - 1] << bits if i else 0
    return i if i < len(low) and begins <= uniform * low[-1] else None


def gap_sums(below: NDArray[np.uint64], scale: float, bits: int) -> tuple[PartialSums, PartialSums, int]:
    """Bound the partial sums of weights exp(-below / scale) by integers, in units of 4^-bits, and the whole. Equal
    weights are worked out once: among millions there may be few.
    """
    gaps, kinds = np.unique(below, return_inverse=True)
    ends = [weight(gap, scale, bits + 64) for gap in gaps.tolist()]
    low = PartialSums([floor(least * 4**bits) for least, _ in ends], kinds)
    high = PartialSums([ceil(most * 4**bits) for _, most in ends], kinds)
    return low, high, high[-1]


@lru_cache(maxsize=16)
def run_sums(slope: Fraction, offset: Fraction, shift: int, bits: int) -> Sums:
    """Bound the partial sums of the weights by integers, in units of 4^-bits, until what follows is below 2^-bits of
    the whole; and the whole. Ratios only grow or only fall, to `slope`: the rest is below a geometric series.
    """
    least = most = 1 << 2 * bits
    low, high, rest = [least], [most], most << bits
    while rest << bits >= low[-1]:
        i = len(low) - 1
        ratio = (slope * i + offset) / (i + shift)
        least = least * ratio.numerator // ratio.denominator
        most = -(-most * ratio.numerator // ratio.denominator)
        low.append(low[-1] + least)
        high.append(high[-1] + most)
        after = max(slope, (slope * (i + 1) + offset) / (i + 1 + shift))
        rest = ceil(most * after / (1 - after)) if after < 1 else most << bits
    return low, high, high[-1] + rest


def width_of(scale: float) -> int:
    """Return how many sizes of noise are one block: the largest power of two that is at most scale / 8, or 1."""
    return 1 << max(0, frexp(scale / 8)[1] - 1)


def block_sums(scale: float, bits: int, power: int = 2) -> Sums:
    """Return, as `run_sums` does, of blocks by what their first size weighs, b = 0, 1, ..: exp(-(width b)^2 / (2
    scale^2)); by `power` 1, exp(-width b / scale).

    From one block to the next they fall by exp(-c), exp(-3 c), exp(-5 c), ..; by power 1, by exp(-c) each time. From a
    weight w on, all are together at most w / (1 - exp(-c)).
    """
    unit = 2 * bits + 64
    falls = weight(width_of(scale) ** power, divisor(scale, power), unit)
    fall_low, fall_high = floor(falls[0] * 2**unit), ceil(falls[1] * 2**unit)
    twice_low, twice_high = fall_low**2 >> unit, -(-(fall_high**2) >> unit)
    least = most = 1 << unit
    low, high, now_low, now_high = [least], [most], fall_low, fall_high
    while True:
        least, most = least * now_low >> unit, -(-most * now_high >> unit)
        rest = -(-(most << unit) // ((1 << unit) - fall_high))
        if rest << bits < low[-1]:
            return low, high, high[-1] + rest
        low.append(low[-1] + least)
        high.append(high[-1] + most)
        if power == 2:
            now_low, now_high = now_low * twice_low >> unit, -(-now_high * twice_high >> unit)


def divisor(scale: float, power: int) -> Fraction:
    """Return the divisor of a size's square, or by power 1 of the size, in its exponent."""
    return 2 * Fraction(scale) ** 2 if power == 2 else Fraction(scale)


@lru_cache(maxsize=64)
def block_ends(scale: float, power: int = 2) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Find which 64-bit numbers each block ends between: (sure to have ended, one less; not yet ended, 0 for the rest).

    A number u of them stands for [u, u + 1) / 2^64: it is behind a block where it is above the first of its two, and
    in a block or before it where it is below the second.
    """
    low, high, total = block_sums(scale, 64, power)
    ended = [-(-(end << 64) // low[-1]) - 1 for end in high]
    holds = [(end << 64) // total for end in low]
    return np.array([min(end, 2**64 - 1) for end in ended], np.uint64), np.array([*holds, 0], np.uint64)
