"""The only place where noise exists. Price and draw read one number. Samplers are exact, over OS entropy, of uniform
numbers with as many bits as tell.

Every mechanism takes exact integers (fixed-point statistics) and the query's integer sensitivity, so no float order
and no float rounding can betray a row. Floating point appears once, in the scale, and is rounded towards more noise.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from math import ceil
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from accountant.noise.exact_weights import (
    MIN_WEIGHT,
    ROUGH_ERROR,
    Numbers,
    block_ends,
    block_sums,
    divisor,
    gap_sums,
    place,
    rough_weights,
    run_sums,
    weight,
    width_of,
)
from accountant.noise.noise_buffer import MAX_INT64, Adding
from accountant.system.lazy_import import later
from dpserve_verify.privacy.budget import NANO, from_nano
from dpserve_verify.privacy.drawing import scale_of
from dpserve_verify.privacy.events import MAX_NOISE, BoundedRange, Gaussian, PureDp, SimpleEvent
from dpserve_verify.privacy.pairs import WIDEST_GAUSSIAN, WIDEST_LAPLACE
from dpserve_verify.privacy.selection import Distribution, Poisson

compiled = later("accountant.noise.compiled_weights")

Integers = NDArray[np.int64]
AT_ONCE = 1 << 15  # candidates: what they need stays near the processor


class Mechanism(Protocol):
    """What a session can play: a name, the kind of sensitivity it needs, one event and one draw."""

    name: ClassVar[str]
    norm: ClassVar[str]

    @property
    def event(self) -> SimpleEvent:
        """Return what one draw costs."""

    def draw(self, values: Any, sensitivity: int) -> Any:
        """Draw the release from exact statistics, which nobody else may see.

        Args:
            values: the statistics, fixed-point integers; of objective perturbation, a loss.
            sensitivity: at least 1, in the same units and of the kind `norm`.

        Returns: an index for a selection, one for each row where it is per row; else noisy integers, as many as
            `values`.
        """


@dataclass(frozen=True)
class _RangeMechanism:
    epsilon: Decimal

    @cached_property
    def event(self) -> BoundedRange:
        """Return the cost of one draw: bounded range `epsilon`."""
        return BoundedRange(self.epsilon)


@dataclass(frozen=True)
class _PureMechanism:
    epsilon: Decimal

    @cached_property
    def event(self) -> PureDp:
        """Return the cost of one draw: `epsilon`-DP, and no better."""
        return PureDp(self.epsilon)


@dataclass(frozen=True)
class ExponentialSelection(_RangeMechanism):
    """The exponential mechanism: index h with P(h) ~ exp(epsilon * values[h] / sensitivity).

    `sensitivity` is the range over neighbours, max_h dq - min_h dq. Bounded range of `epsilon` (Durfee and Rogers
    2019), so epsilon-DP and much cheaper than that when composed. Drawn by `select_by_inversion`.
    """

    name: ClassVar[str] = "exponential"
    norm: ClassVar[str] = "range"

    def draw(self, values: Integers, sensitivity: int) -> int:
        """Draw the index, from 0 to len(values) - 1."""
        row = np.ascontiguousarray(values, np.int64)[None]
        return int(select_by_inversion(row, scale_of(sensitivity, self.epsilon))[0])


@dataclass(frozen=True)
class PermuteAndFlip(_PureMechanism):
    """Permute-and-flip (McKenna and Sheldon 2020): epsilon-DP, never worse than the exponential mechanism in utility,
    but NOT of bounded range. For datasets registered with delta = 0.

    In a random order each candidate flips a coin, heads with chance exp(epsilon * (values[h] - max) / sensitivity), and
    the first heads wins. The coins do not depend on the order, so it is the same to flip them all and to take one of
    the heads, each as likely: how much is flipped, and so the time, tells nothing of the values.
    """

    name: ClassVar[str] = "permute-and-flip"
    norm: ClassVar[str] = "range"

    def draw(self, values: Integers, sensitivity: int) -> int:
        """Draw the index, from 0 to len(values) - 1."""
        values = np.ascontiguousarray(values, np.int64)
        below = (values.max() - values).view(np.uint64)  # the difference of 64-bit integers never overflows so
        scale, starts = scale_of(sensitivity, self.epsilon), range(0, below.size, AT_ONCE)
        heads = np.concatenate([at + np.flatnonzero(flip_coins(below[at : at + AT_ONCE], scale)) for at in starts])
        return int(heads[secrets.randbelow(heads.size)])


@dataclass(frozen=True)
class DiscreteLaplace(_PureMechanism, Adding):
    """values + integer noise, P(z) ~ exp(-epsilon |z| / sensitivity); `sensitivity` in L1. epsilon-DP (Ghosh et al.
    2012).
    """

    name: ClassVar[str] = "discrete-laplace"
    norm: ClassVar[str] = "l1"

    def draw(self, values: Integers, sensitivity: int) -> Integers:
        """Draw the noisy integers, of shape (len(values),)."""
        scale, values = scale_of(sensitivity, self.epsilon), np.ascontiguousarray(values, np.int64)
        if scale > WIDEST_LAPLACE:
            return _add_wide_noise(values, scale, 1)
        return self.add_noise(values, scale, lambda count: sample_noise(scale, count, 1))


@dataclass(frozen=True)
class DiscreteGaussian(Adding):
    """values + integer noise, P(z) ~ exp(-z^2 / (2 (noise_multiplier * sensitivity)^2)); `sensitivity` in L2, rounded
    up.

    Its Renyi curve is at most the continuous Gaussian's (Canonne, Kamath and Steinke 2020, Theorem 14).
    """

    name: ClassVar[str] = "discrete-gaussian"
    norm: ClassVar[str] = "l2"
    noise_multiplier: Decimal

    @classmethod
    def of_unit(cls, unit: Decimal) -> DiscreteGaussian:
        """Return the noise whose multiplier is one over the unit, rounded up: a larger unit never has more."""
        return cls(min(MAX_NOISE, from_nano(ceil(NANO / Fraction(unit)))))

    @cached_property
    def event(self) -> Gaussian:
        """Return the cost of one draw: that of the continuous Gaussian."""
        return Gaussian(self.noise_multiplier)

    def draw(self, values: Integers, sensitivity: int) -> Integers:
        """Draw the noisy integers, of shape (len(values),)."""
        scale, values = scale_of(sensitivity, self.noise_multiplier, 1), np.ascontiguousarray(values, np.int64)
        if scale > WIDEST_GAUSSIAN:
            return _add_wide_noise(values, scale)
        return self.add_noise(values, scale, lambda count: sample_noise(scale, count))


def select_by_inversion(values: Integers, scale: float) -> Integers:
    """Choose a candidate in every row of `values` (rows, candidates), P(h) ~ exp(values[h] / scale). Return (rows,).

    By inversion: a uniform number in [0, 1) falls among the weights, laid side by side, where it falls. 64 bits of it
    and rough bounds of the sums nearly always tell; if not, sums in integers of 128 bits, and more bits of the same
    number. So nothing is rounded, and the time hardly depends on the values.
    """
    rows = max(1, AT_ONCE // values.shape[1])
    return np.concatenate([_choose(values[at : at + rows], scale) for at in range(0, len(values), rows)])


def _choose(values: Integers, scale: float) -> Integers:
    count, size = values.shape
    slack = compiled.off(size)
    sums = compiled.running_weights(values, scale)
    low, high = sums[:, -1] * (1 - slack), sums[:, -1] * (1 + slack) + size * MIN_WEIGHT
    uniform = np.frombuffer(os.urandom(8 * count), np.uint64)
    place, rows = uniform * 2.0**-64, np.arange(count)
    top, bottom = (place * (1 + 1e-14) + 2.0**-63) * high, (place * (1 - 1e-14) - 2.0**-63) * low
    behind = top * (1 + 2 * slack)  # a sum as large as this is
    indices: Integers = (sums[:, :-1] < behind[:, None]).sum(axis=1)  # the first that is sure to end behind the number
    sure = (indices == 0) | (sums[rows, indices - 1] * (1 + slack) + size * MIN_WEIGHT <= bottom)
    for row in np.flatnonzero(~sure):
        below = (values[row].max() - values[row]).view(np.uint64)  # the difference of int64s never overflows so
        indices[row] = select_by_digits(below, scale, int(uniform[row]))
    return indices


def select_by_digits(below: NDArray[np.uint64], scale: float, uniform: int) -> int:
    """Return where a number falls among weights exp(-below / scale). It begins with the 64 bits of `uniform`."""
    bits: int = 64
    sums: tuple[Numbers, Numbers, int] = compiled.wide_sums(below, scale)
    while (index := place(*sums, uniform, bits)) is None:
        bits, uniform = bits + 64, uniform << 64 | int.from_bytes(os.urandom(8), "big")
        if bits > 128:  # what 128 bits do not tell, one choice in 2^60 or fewer, digits do, as many as it takes
            sums = gap_sums(below, scale, bits)
    return index


def sample_noise(scale: float, count: int, *power: int) -> Integers:
    """Draw (count,) independent integers, P(z) ~ exp(-e(z)), e(z) = z^2 / (2 scale^2), or, by power 1, |z| / scale.

    By rejection: a size |z| is in a block with the chance of exp(-e(first)), its place there has chance 1 / width; it
    is kept with chance exp(e(first) - e(z)), and so is its sign, but for that of a zero. All three are exact
    (docs/privacy/prices.md), and their work has to do with the noise alone.
    """
    width = width_of(scale)
    noise = np.empty(0, np.int64)
    while noise.size < count:
        tries = (count - noise.size) * 9 // 8 + 8
        words = np.frombuffer(os.urandom(16 * tries), np.uint64)
        first = width * find_blocks(words[:tries], scale, *power)
        inside, negative = (words[tries:] & np.uint64(width - 1)).view(np.int64), words[tries:] >> np.uint64(63) > 0
        size = first + inside
        if power:
            accepted = flip_coins(inside, scale)
        else:

            def chance(i: int, bits: int, first: Integers = first, size: Integers = size) -> tuple[Fraction, Fraction]:
                return weight(int(size[i]) ** 2 - int(first[i]) ** 2, 2 * Fraction(scale) ** 2, bits)

            accepted = flip_coins(inside * (first + size.astype(np.float64)), 2 * scale * scale, chance)
        accepted &= ~negative | (size > 0)
        sampled = np.where(negative, -size, size)[accepted]
        noise = np.concatenate([noise, sampled]) if noise.size else sampled
    return noise[:count]


def _add_wide_noise(values: Integers, scale: float, *power: int) -> Integers:
    """Add noise wider than `sample_noise` has room for, clamped to 64 bits: (len(values),)."""
    noisy = (value + sample_wide_noise(scale, *power) for value in values.tolist())
    return np.array([min(max(number, -MAX_INT64 - 1), MAX_INT64) for number in noisy], np.int64)


def sample_wide_noise(scale: float, *power: int) -> int:
    """Draw one number as `sample_noise` does, in integers of any size."""
    width, square = width_of(scale), 1 if power else 2
    block: int
    while True:
        (block,) = find_blocks(np.frombuffer(os.urandom(8), np.uint64), scale, *power).tolist()
        first = width * block
        size, negative = first + secrets.randbelow(width), secrets.randbits(1)
        chance = partial(weight, size**square - first**square, divisor(scale, square))
        if _coin(int.from_bytes(os.urandom(8), "big"), Fraction(0), Fraction(1), chance) and (size or not negative):
            return -size if negative else size


def find_blocks(uniform: NDArray[np.uint64], scale: float, *power: int) -> Integers:
    """Find the block of sizes in which each number falls, by inversion. Draw more bits of it where 64 do not tell."""
    ended, holds = block_ends(scale, *power)
    blocks: Integers = ended.searchsorted(uniform)
    for i in (uniform >= holds[blocks]).nonzero()[0]:
        bits, number, block = 64, int(uniform[i]), None
        while block is None:
            bits, number = bits + 64, number << 64 | int.from_bytes(os.urandom(8), "big")
            block = place(*block_sums(scale, bits, *power), number, bits)
        blocks[i] = block
    return blocks


def flip_coins(
    below: NDArray[Any], scale: float, chance: Callable[[int, int], tuple[Fraction, Fraction]] | None = None
) -> NDArray[np.bool_]:
    """Flip independent exact coins, each true with chance exp(-below / scale). The time hardly depends on `below`: one
    in 1e8 needs more than 64 bits and the rough bounds of its chance.

    `chance(i, bits)`: that of coin i, between two numbers closer than 2^-bits, where `below` and `scale` are floats
    near the true ones (a 2^-50th of their size).
    """
    uniform = np.frombuffer(os.urandom(8 * below.size), np.uint64)
    rough, uniforms = rough_weights(below, scale), uniform * 2.0**-64
    low, high = rough * (1 - ROUGH_ERROR), rough * (1 + ROUGH_ERROR) + MIN_WEIGHT
    heads = uniforms * (1 + 1e-12) + 2.0**-63 <= low
    for i in (~heads & (uniforms * (1 - 1e-12) - 2.0**-63 < high)).nonzero()[0]:
        exact = partial(chance, int(i)) if chance else partial(weight, int(below[i]), scale)
        heads[i] = _coin(int(uniform[i]), Fraction(float(low[i])), Fraction(float(high[i])), exact)
    return heads


def _coin(uniform: int, low: Fraction, high: Fraction, chance: Callable[[int], tuple[Fraction, Fraction]]) -> bool:
    """Return True with a chance that lies from `low` to `high`, and within bounds closer than 2^-bits by
    `chance(bits)`.

    `uniform`, 64 random bits, and these bounds nearly always tell. If not, more bits are drawn of the same uniform
    number, and the chance is computed to more digits than those.
    """
    bits = 64
    while True:
        if uniform + 1 <= low * 2**bits:
            return True
        if uniform >= high * 2**bits:
            return False
        low, high = chance(bits + 64)
        bits, uniform = bits + 64, uniform << 64 | int.from_bytes(os.urandom(8), "big")


def draw_runs(distribution: Distribution) -> int:
    """Draw exactly how often a private selection runs. The number must never be released, nor leak by the time it
    takes.
    """
    if isinstance(distribution, Poisson):  # a sum of smaller ones, whose weights stay small
        parts = ceil(distribution.mean / 64)
        return sum(_draw(Fraction(0), Fraction(distribution.mean) / parts, 1) for _ in range(parts))
    going_on = 1 - Fraction(distribution.gamma)
    return 1 + _draw(going_on, going_on * (1 + Fraction(distribution.shape)), 2)


def _draw(slope: Fraction, offset: Fraction, shift: int) -> int:
    """Draw exactly an i = 0, 1, .. with weights w_0 = 1, w_{i+1} = w_i (slope i + offset) / (i + shift)."""
    bits, uniform = 0, 0
    index: int | None = None
    while index is None:  # 64 bits nearly always tell; if not, more of the same uniform number are drawn
        bits, uniform = bits + 64, uniform << 64 | int.from_bytes(os.urandom(8), "big")
        index = place(*run_sums(slope, offset, shift, bits), uniform, bits)
    return index


@dataclass(frozen=True)
class ExponentialSelections(_RangeMechanism):
    """One index in every row of `values` (rows, candidates): independent exponential mechanisms of one scale.

    Together they are ONE exponential mechanism over all combinations, whose score is the sum over rows: `sensitivity`
    is the range of that sum, and the whole release is of bounded range `epsilon` (docs/privacy/trees.md).
    """

    name: ClassVar[str] = "exponential-per-row"
    norm: ClassVar[str] = "range"

    def draw(self, values: Integers, sensitivity: int) -> Integers:
        """Draw the indices, of shape (rows,)."""
        return select_by_inversion(np.ascontiguousarray(values, np.int64), scale_of(sensitivity, self.epsilon))


@dataclass(frozen=True)
class PermuteAndFlips(_PureMechanism):
    """One index in every row of `values` (rows, candidates) by permute-and-flip. `sensitivity` is the range of the sum
    over rows, which is the sum of the ranges of the rows: epsilon-DP together, as each row costs its share.
    """

    name: ClassVar[str] = "permute-and-flip-per-row"
    norm: ClassVar[str] = "range"

    def draw(self, values: Integers, sensitivity: int) -> Integers:
        """Draw the indices, of shape (rows,)."""
        selection = PermuteAndFlip(self.epsilon)
        return np.array([selection.draw(row, sensitivity) for row in values], np.int64)
