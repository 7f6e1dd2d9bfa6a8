"""Numba kernels for a convex loss over packed bins: slopes of rows' losses, and what they change by, summed per code.
All sums are integers: the same bits whatever the order or the threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit

BLOCK = 2048  # rows whose values stay in cache
SPLIT = 28  # binary digits of the lower part of a slope
Integers = NDArray[np.int64]


@njit()
def sum_slopes(
    bins: NDArray[Any],
    low: int,
    labels: NDArray[np.uint8],
    places: Integers,
    terms: Integers,
    table: Integers,
    digits: int,
    rises: NDArray[np.int16],
) -> Integers:
    """Sum per code the slopes of rows' losses, as higher and lower parts, and what they rise by: (3, codes).

    A row's score is the sum of terms[places[feature] + code] in some unit. `table`: the slope of class 0 at ends of
    steps of 2^`digits` of that unit, the middle one at score 0, linear between them and level beyond; class 1 has the
    mirror image. `rises`: set to what the table rises by in each row's step.
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
            rise[i] = table[step + 1] - table[step] if inside else 0
            edge = table[step] if at < middle + middle else table[steps]
            slope = (edge << digits) + rise[i] * (at & mask)
            slope = -slope if label else slope
            higher[i] = slope >> SPLIT
            lower[i] = slope - (higher[i] << SPLIT)
            rises[first + i] = rise[i]
        for feature in range(places.size):
            codes, place = bins[feature, low + first : low + first + count], places[feature]
            for i in range(count):
                code = place + codes[i]
                sums[0, code] += higher[i]
                sums[1, code] += lower[i]
                sums[2, code] += rise[i]
    return sums


@njit()
def sum_curved(bins: NDArray[Any], low: int, places: Integers, along: Integers, rises: NDArray[np.int16]) -> Integers:
    """Sum per code, over rows, of what the slope rises by times what the score changes by `along`: (codes,)."""
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
            changes[i] *= rises[first + i]
        for feature in range(places.size):
            codes, place = bins[feature, low + first : low + first + count], places[feature]
            for i in range(count):
                sums[place + codes[i]] += changes[i]
    return sums
