"""Numba kernels for additive models over packed bins. All sums are integers: the same bits whatever the order or the
threads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from training.rows.kernels import FRACTION

LANES = 4  # neighbouring rows add to different places: an addition waits for the one before it to the same place
Integers = NDArray[np.int64]


@numba.njit(nogil=True, cache=True)
def clipped_steps(
    exact: NDArray[np.float64], clip: float, weights: NDArray[np.float64], step: float
) -> NDArray[np.int32]:
    """By class and place: clipped to -clip..clip, times the class's weight, in steps, rounded toward zero."""
    found = np.empty(exact.shape, np.int32)
    for k in range(len(exact)):
        for i in range(exact.shape[1]):
            found[k, i] = np.int32(min(max(exact[k, i], -clip), clip) * weights[k] / step)
    return found


@numba.njit(nogil=True, cache=True)
def count_codes(codes: NDArray[Any], width: int) -> Integers:
    """Rows per code: (width,)."""
    counts = np.zeros((LANES, width), dtype=np.int64)
    for i in range(codes.size):
        counts[i & (LANES - 1), codes[i]] += 1
    return np.asarray(counts.sum(axis=0))


@numba.njit(nogil=True, cache=True)
def add_change(codes: NDArray[Any], change: NDArray[np.int32], scores: NDArray[np.int32]) -> None:
    """scores[i] += change[codes[i]]: what was released of one feature's term, applied to every row."""
    for i in range(codes.size):
        scores[i] += change[codes[i]]


@numba.njit(nogil=True, cache=True)
def sum_classes(
    codes: NDArray[Any],
    leaves: Integers,
    labels: NDArray[np.uint8],
    scores: NDArray[np.int32],
    table: NDArray[np.int32],
    low: int,
    size: int,
) -> Integers:
    """Sum per leaf of table[label, score - low], the score being clipped into the table: (size,).

    `leaves`: the leaf of each code; `table`: (2, scores).
    """
    sums = np.zeros((LANES, size), dtype=np.int64)
    last = table.shape[1] - 1
    for i in range(codes.size):
        place = min(max(scores[i] - low, 0), last)
        sums[i & (LANES - 1), leaves[codes[i]]] += table[labels[i], place]
    return np.asarray(sums.sum(axis=0))


@numba.njit(nogil=True, cache=True)
def sum_numbers(
    codes: NDArray[Any],
    leaves: Integers,
    targets: NDArray[np.int32],
    scores: NDArray[np.int32],
    constant: int,
    clip: int,
    factor: int,
    size: int,
) -> Integers:
    """Sum per leaf of the residual target - score - constant, clipped to -clip..clip, times factor / 2^FRACTION, each
    rounded toward zero: (size,).
    """
    sums = np.zeros((LANES, size), dtype=np.int64)
    for i in range(codes.size):
        residual = targets[i] - scores[i] - constant
        part = (min(abs(residual), clip) * factor) >> FRACTION
        sums[i & (LANES - 1), leaves[codes[i]]] += part if residual > 0 else -part
    return np.asarray(sums.sum(axis=0))


@numba.njit(nogil=True, cache=True)
def class_values(
    labels: NDArray[np.uint8], scores: NDArray[np.int32], table: NDArray[np.int32], low: int, found: NDArray[np.int32]
) -> None:
    """found[i] = table[label, score - low], the score being clipped into the table."""
    last = table.shape[1] - 1
    for i in range(found.size):
        found[i] = table[labels[i], min(max(scores[i] - low, 0), last)]


@numba.njit(nogil=True, cache=True)
def number_values(
    targets: NDArray[np.int32],
    scores: NDArray[np.int32],
    constant: int,
    clip: int,
    factor: int,
    found: NDArray[np.int32],
) -> None:
    """found[i] = the residual target - score - constant, clipped to -clip..clip, times factor / 2^FRACTION, rounded
    toward zero.
    """
    for i in range(found.size):
        residual = targets[i] - scores[i] - constant
        part = (min(abs(residual), clip) * factor) >> FRACTION
        found[i] = part if residual > 0 else -part


@numba.njit(nogil=True, cache=True)
def join(
    one: NDArray[Any],
    other: NDArray[Any],
    down: NDArray[np.uint16],
    across: NDArray[np.uint16],
    found: NDArray[Any],
) -> None:
    """found[i] = down[one[i]] + across[other[i]]: the cell of two features."""
    for i in range(found.size):
        found[i] = down[one[i]] + across[other[i]]


@numba.njit(nogil=True, cache=True)
def count_joint(
    one: NDArray[Any], other: NDArray[Any], down: NDArray[np.uint16], across: NDArray[np.uint16], size: int
) -> Integers:
    """Rows per cell: (size,)."""
    counts = np.zeros((LANES, size), dtype=np.int64)
    for i in range(one.size):
        counts[i & (LANES - 1), down[one[i]] + across[other[i]]] += 1
    return np.asarray(counts.sum(axis=0))


@numba.njit(nogil=True, cache=True)
def sum_joint(
    one: NDArray[Any],
    other: NDArray[Any],
    down: NDArray[np.uint16],
    across: NDArray[np.uint16],
    values: NDArray[np.int32],
    size: int,
) -> Integers:
    """Sum of the values per cell: (size,)."""
    sums = np.zeros((LANES, size), dtype=np.int64)
    for i in range(one.size):
        sums[i & (LANES - 1), down[one[i]] + across[other[i]]] += values[i]
    return np.asarray(sums.sum(axis=0))


@numba.njit(nogil=True, cache=True)
def sum_squares(targets: NDArray[np.int32], constant: int, most: int) -> int:
    """Sum of min(|target - constant|, most)^2 / most, each rounded down; `most` is a power of two."""
    total = 0
    for i in range(targets.size):
        residual = min(abs(targets[i] - constant), most)
        total += residual * residual // most
    return total
