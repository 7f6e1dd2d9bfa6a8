"""`accountant.weights.rough_weights` by FINE, the same operations, compiled: for choices among many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accountant.machine_code import njit
from accountant.weights import CLOSE, STEPS, step_weights

Floats = NDArray[np.float64]
BLOCK = 1024  # weights that are added up by themselves, as floats do it better


def off(size: int) -> float:
    """How far each of `size` running sums is off at most, of itself: its weights by CLOSE, allowed for twice, and by
    being added up as floats. That rounds as often as a block has weights, as there are blocks, and once more: each time
    by 2^-53, allowed for four times.
    """
    return 2 * CLOSE + (min(size, BLOCK) + size / BLOCK) * 2.0**-51


def running_weights(values: NDArray[np.int64], scale: float) -> Floats:
    """In every row of `values` (rows, candidates), running sums of `rough_weights`, by how far below the largest."""
    return _running_weights(values, scale, step_weights(), STEPS)


@njit()
def _running_weights(values: NDArray[np.int64], scale: float, table: Floats, steps: int) -> Floats:
    """Whatever the values, the work is the same: loops without a branch, which run in vector registers one by one."""
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
