"""Sums of weights for choices among many, compiled: near ones by floats, and, where these do not tell, in integers.

By floats: `accountant.noise.exact_weights.rough_weights` by FINE, the same operations. In integers of 128 bits: a gap
is written in digits of 8 bits, and its weight is the product of one number out of a table for each digit; all are
rounded down, so a sum is off by OFF for each weight at most (docs/privacy/prices.md). The work is the same whatever the
gaps are.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import ceil, floor
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numpy.typing import NDArray

from accountant.noise.exact_weights import FINE_ERROR, STEPS, step_weights, weight
from accountant.system.numba_cache import intrinsic, njit, types

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
BLOCK = 1024  # weights that are added up by themselves: floats do it better, and of integers one sum is kept for each
DIGIT = 8  # bits
MAX_GAP = 90  # a weight of exp(-MAX_GAP) is below half a unit
OFF = 32  # units that a weight is above what is worked out for it, at most
_DEEP = 192  # bits of the powers that tables are made of


def off(size: int) -> float:
    """Bound the relative error of each of `size` running sums: its weights by FINE_ERROR, allowed for twice, and by
    being added up as floats. That rounds as often as a block has weights, as there are blocks, and once more: each time
    by 2^-53, allowed for four times.
    """
    return 2 * FINE_ERROR + (min(size, BLOCK) + size / BLOCK) * 2.0**-51


def running_weights(values: NDArray[np.int64], scale: float) -> Floats:
    """Compute in every row of `values` (rows, candidates), running sums of `rough_weights`, by how far below the
    largest.
    """
    return _running_weights(values, scale, step_weights(), STEPS)


@njit()
def _running_weights(values: NDArray[np.int64], scale: float, table: Floats, steps: int) -> Floats:
    """Compute running sums. The work is the same for all values: loops without a branch run in vector registers."""
    sums, rest = np.empty(values.shape), np.empty(values.shape[1])
    place = np.empty(values.shape[1], np.int32)
    reach, unit = np.float64((table.size - 1) // steps), 1 / steps
    for row, out in zip(values, sums):  # noqa: B905 - numba knows no `strict`
        largest = row.max()
        for i in range(rest.size):
            rest[i] = np.uint64(largest - row[i]) / scale  # the difference of int64s never overflows so
        for i in range(rest.size):
            x = rest[i] if rest[i] < reach else reach
            place[i] = np.int32(x * steps)
            x -= place[i] * unit
            rest[i] = ((((x * (-1 / 120) + 1 / 24) * x + -1 / 6) * x + 0.5) * x - 1.0) * x + 1.0
        for i in range(rest.size):
            rest[i] *= table[np.uint32(place[i])]
        total = 0.0
        for start in range(0, rest.size, BLOCK):
            part = 0.0
            for i in range(start, min(start + BLOCK, rest.size)):
                part += rest[i]
                out[i] = total + part
            total += part
    return sums


class WideSums:
    """Sums of the first 1, 2, .. of the weights, in units of 2^-`unit`: none above the true one, or none below it.

    Args:
        below: (n,) how far each candidate is below the best.
        high: whether they are bounds from above.
    """

    def __init__(self, below: Words, scale: float, high: bool, ends: list[int] | None = None) -> None:
        self._below, self._scale, self._off = below, scale, OFF if high else 0
        self.ends = list(accumulate(self._sums(self._below))) if ends is None else ends

    @property
    def unit(self) -> int:
        """Choose the exponent of the unit such that no sum needs more than 127 bits."""
        return min(120, 126 - len(self._below).bit_length())

    def __len__(self) -> int:
        return len(self._below)

    def __getitem__(self, i: int, /) -> int:
        count = i % len(self) + 1
        start = (count - 1) // BLOCK * BLOCK
        before = self.ends[start // BLOCK - 1] if start else 0
        return before + sum(self._sums(self._below[start:count])) + self._off * count

    def _sums(self, below: Words) -> list[int]:
        """Sum each block, without what they may be off."""
        first, later = tables(self._scale, self.unit)
        high, low = _block_sums(below, np.uint64(reach(self._scale)), first, later)
        return [one << 64 | other for one, other in zip(high.tolist(), low.tolist(), strict=True)]


def wide_sums(below: Words, scale: float) -> tuple[WideSums, WideSums, int]:
    """Bound the partial sums from below and from above, and the whole from above; as `gap_sums`."""
    low = WideSums(below, scale, False)
    high = WideSums(below, scale, True, low.ends)
    return low, high, high[-1]


def reach(scale: float) -> int:
    """Return a gap from which on every weight is below half a unit; of larger ones no more is looked at."""
    return min(2**64 - 1, ceil(MAX_GAP * Fraction(scale)))


@lru_cache(maxsize=8)
def tables(scale: float, unit: int) -> tuple[Words, Words]:
    """Build the tables: for digit d and its value k, exp(-k 256^d / scale): of the lowest digit in units of 2^-`unit`,
    (256, 2), high word and low word; of the others in units of 2^-128, (digits - 1, 256, 2). Rounded down, by less than
    2 units.
    """
    places = -(-reach(scale).bit_length() // DIGIT)
    table_rows = []
    for place in range(places):
        least, _ = weight(1 << DIGIT * place, scale, _DEEP + 8)
        step, powers = floor(least * 2**_DEEP), [1 << _DEEP]
        for _ in range((1 << DIGIT) - 1):
            powers.append(powers[-1] * step >> _DEEP)
        bits = 128 if place else unit
        clipped = [min(power >> _DEEP - bits, 2**128 - 1) for power in powers]
        table_rows.append([(number >> 64, number & 2**64 - 1) for number in clipped])
    first, later = np.array(table_rows[0], np.uint64), np.array(table_rows[1:], np.uint64)
    return first, later.reshape(places - 1, 1 << DIGIT, 2)


def _multiply(context: Any, a: Any, b: Any) -> Any:
    """Tell numba how to make the high word of a product of two words: one instruction in place of a dozen."""

    def generate(context: Any, builder: Any, signature: Any, words: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(word, wide) for word in words))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


_high_word: Any = intrinsic(_multiply)


@njit()
def _block_sums(below: Words, most: np.uint64, first: Words, later: Words) -> tuple[Words, Words]:
    """Return high and low words of the sum of each block: a loop without a branch, whatever the gaps are."""
    blocks = (below.size + BLOCK - 1) // BLOCK
    highs, lows = np.empty(blocks, np.uint64), np.empty(blocks, np.uint64)
    mask, digit = np.uint64((1 << DIGIT) - 1), np.uint64(DIGIT)
    for block in range(blocks):
        high, low = np.uint64(0), np.uint64(0)
        for i in range(block * BLOCK, min(below.size, (block + 1) * BLOCK)):
            gap = min(below[i], most)
            w1, w0 = first[gap & mask, 0], first[gap & mask, 1]
            for place in range(later.shape[0]):
                gap >>= digit
                f1, f0 = later[place, gap & mask, 0], later[place, gap & mask, 1]
                p0 = w1 * f1
                q0 = p0 + _high_word(w0, f1)
                r0 = q0 + _high_word(w1, f0)
                w1 = _high_word(w1, f1) + np.uint64(q0 < p0) + np.uint64(r0 < q0)
                w0 = r0
            low += w0
            high += w1 + np.uint64(low < w0)
        highs[block], lows[block] = high, low
    return highs, lows


wide_sums(np.zeros(1, np.uint64), 1.0)  # compiled, or loaded, with the rest: else the first choice in doubt would wait
