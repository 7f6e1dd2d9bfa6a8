"""Numba kernels for a convex loss over packed bins: slopes of rows' losses, and what they change by, summed per code.
All sums are integers: the same bits whatever the order or the threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit

BLOCK = 2048  # rows whose values stay in cache
FAR = 2.0**16  # logits beyond which a score need not be known
SPLIT = 31  # binary digits of the lower part of a slope
Integers = NDArray[np.int64]


@njit()
def sum_slopes(
    bins: NDArray[Any],
    low: int,
    labels: NDArray[np.uint8],
    places: Integers,
    terms: Integers,
    table: Integers,
    bends: Integers,
    digits: int,
    rises: NDArray[np.int32],
) -> Integers:
    """Sum per code the slopes of rows' losses, as higher and lower parts, and how they bend: (3, codes).

    A row's score is the sum of terms[places[feature] + code] in some unit. `table`: the slope of class 0 at ends of
    steps of 2^`digits` of that unit, the middle one at score 0, linear between them and level beyond; class 1 has the
    mirror image. `bends`: how a row is taken to bend below the table, in each of its steps, and above it; `rises`: set
    to that of each row.
    """
    sums = np.zeros((3, terms.size), np.int64)
    scores, higher = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    lower, rise = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    steps = table.size - 1
    middle, mask = (steps // 2) << digits, (np.int64(1) << digits) - 1
    for first in range(0, labels.size, BLOCK):
        count = min(BLOCK, labels.size - first)
        scores[:] = 0
        for feature in range(places.size):
            codes, place = bins[feature, low + first : low + first + count], places[feature]
            for i in range(count):
                scores[i] += terms[place + codes[i]]
        for i in range(count):
            label = labels[first + i]
            at = (-scores[i] if label else scores[i]) + middle
            step = at >> digits
            inside = 0 <= step < steps
            step = min(max(step, 0), steps - 1)
            bend = bends[step + 1] if inside else bends[0 if at < 0 else steps + 1]
            edge = table[step] if at < middle + middle else table[steps]
            slope = (edge << digits) + (table[step + 1] - table[step] if inside else 0) * (at & mask)
            slope = -slope if label else slope
            higher[i] = slope >> SPLIT
            lower[i] = slope - (higher[i] << SPLIT)
            rise[i] = rises[first + i] = bend
        for feature in range(places.size):
            codes, place = bins[feature, low + first : low + first + count], places[feature]
            for i in range(count):
                code = place + codes[i]
                sums[0, code] += higher[i]
                sums[1, code] += lower[i]
                sums[2, code] += rise[i]
    return sums


@njit()
def sum_curved(
    bins: NDArray[Any], low: int, places: Integers, along: Integers, rises: NDArray[np.int32], dropped: int
) -> Integers:
    """Sum per code, over rows, how the loss bends times what the score changes by `along`, each without its `dropped`
    last binary digits: (codes,).
    """
    sums = np.zeros(along.size, np.int64)
    changes = np.empty(BLOCK, np.int64)
    for first in range(0, rises.size, BLOCK):
        count = min(BLOCK, rises.size - first)
        changes[:] = 0
        for feature in range(places.size):
            codes, place = bins[feature, low + first : low + first + count], places[feature]
            for i in range(count):
                changes[i] += along[place + codes[i]]
        for i in range(count):
            changes[i] = (changes[i] * rises[first + i]) >> dropped
        for feature in range(places.size):
            codes, place = bins[feature, low + first : low + first + count], places[feature]
            for i in range(count):
                sums[place + codes[i]] += changes[i]
    return sums


@njit()
def sum_long(
    bins: NDArray[Any],
    low: int,
    labels: NDArray[np.uint8],
    places: Integers,
    terms: Integers,
    behind: Integers,
    rough: NDArray[np.float64],
    table: Integers,
    digits: int,
    longer: int,
) -> Integers:
    """Sum per code the slopes of rows' losses as `sum_slopes` has them, of scores with `longer` more binary digits,
    those of `behind`: three parts of a sum, the lowest of `longer` digits, the next of SPLIT. (3, codes)

    `rough`: the terms in logits. Where their sum is beyond FAR the row is level, and `terms`, which are known but for
    multiples of 2^64, are not asked.
    """
    sums = np.zeros((3, terms.size), np.int64)
    scores, rest, wide = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK)
    steps = table.size - 1
    middle, mask, tail = (steps // 2) << digits, (np.int64(1) << digits) - 1, (np.int64(1) << longer) - 1
    for first in range(0, labels.size, BLOCK):
        count = min(BLOCK, labels.size - first)
        scores[:] = 0
        rest[:] = 0
        wide[:] = 0
        for feature in range(places.size):
            codes, place = bins[feature, low + first : low + first + count], places[feature]
            for i in range(count):
                scores[i] += terms[place + codes[i]]
                rest[i] += behind[place + codes[i]]
                wide[i] += rough[place + codes[i]]
        for i in range(count):
            label = labels[first + i]
            if label:
                scores[i], rest[i], wide[i] = -scores[i], -rest[i], -wide[i]
            at = scores[i] + (rest[i] >> longer) + middle
            if abs(wide[i]) > FAR:
                at = np.int64(-1) if wide[i] < 0 else middle + middle
            step = at >> digits
            inside = 0 <= step < steps
            step = min(max(step, 0), steps - 1)
            rise = table[step + 1] - table[step] if inside else 0
            edge = table[step] if at < middle + middle else table[steps]
            slope, fine = (edge << digits) + rise * (at & mask), rise * (rest[i] & tail)
            scores[i], rest[i] = (-slope, -fine) if label else (slope, fine)
        for feature in range(places.size):
            codes, place = bins[feature, low + first : low + first + count], places[feature]
            for i in range(count):
                code = place + codes[i]
                whole = sums[0, code] + rest[i]
                sums[0, code] = whole & tail
                sums[1, code] += (scores[i] & ((np.int64(1) << SPLIT) - 1)) + (whole >> longer)
                sums[2, code] += scores[i] >> SPLIT
    return sums
