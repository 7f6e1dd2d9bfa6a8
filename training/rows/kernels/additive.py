"""Numba kernels for additive models over packed bins. All sums are integers: the same bits whatever the order or the
threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit
from training.rows.kernels import FRACTION

BLOCK = 2048  # rows whose values stay in cache
LANES = 4  # neighbouring rows add to different places: an addition waits for the one before it to the same place
Integers = NDArray[np.int64]


@njit()
def clipped_steps(
    exact: NDArray[np.float64], first: int, end: int, clip: float, weights: NDArray[np.float64], step: float
) -> NDArray[np.int32]:
    """Return `exact` by class and place, from `first` to before `end`: clipped to -clip..clip, times the class's
    weight, in steps, rounded toward zero: where `exact` does not rise, neither does that. Rows are whole, so that they
    run in vector registers.
    """
    steps_of_classes = np.empty((len(exact), end - first), np.int32)
    for k in range(len(exact)):
        exact_values, out, steps = exact[k, first:end], steps_of_classes[k], weights[k] / step
        for i in range(out.size):
            value = exact_values[i]
            value = -clip if value < -clip else value
            value = clip if value > clip else value
            out[i] = np.int32(value * steps)
    return steps_of_classes


@njit()
def count_codes(codes: NDArray[Any], width: int) -> Integers:
    """Return rows per code: (width,)."""
    counts = np.zeros((LANES, width), dtype=np.int64)
    for i in range(codes.size):
        counts[i & (LANES - 1), codes[i]] += 1
    return np.asarray(counts.sum(axis=0))


@njit()
def add_change(codes: NDArray[Any], change: NDArray[np.int32], scores: NDArray[np.int32]) -> None:
    """Add change[codes[i]] to scores[i]: what was released of one feature's term, applied to every row."""
    for i in range(codes.size):
        scores[i] += change[codes[i]]


@njit()
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
    sums = np.zeros((LANES, leaves.size), dtype=np.int64)
    flat, width = table.ravel(), table.shape[1]
    place, value = np.empty(BLOCK, dtype=np.uint32), np.empty(BLOCK, dtype=np.int32)
    for first in range(0, codes.size, BLOCK):
        end = first + BLOCK
        block, block_scores, block_labels = codes[first:end], scores[first:end], labels[first:end]
        for j in range(block.size):
            place[j] = min(max(block_scores[j] - low, 0), width - 1) + block_labels[j] * width
        for j in range(block.size):
            value[j] = flat[place[j]]
        _add(block, value, sums[0], sums[1], sums[2], sums[3])
    return _by_leaf(sums, leaves, size)


@njit()
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
    sums = np.zeros((LANES, leaves.size), dtype=np.int64)
    value = np.empty(BLOCK, dtype=np.int32)
    for first in range(0, codes.size, BLOCK):
        end = first + BLOCK
        block, block_scores, block_targets = codes[first:end], scores[first:end], targets[first:end]
        number_values(block_targets, block_scores, constant, clip, factor, value[: block.size])
        _add(block, value, sums[0], sums[1], sums[2], sums[3])
    return _by_leaf(sums, leaves, size)


@njit(inline="always")
def _add(
    codes: NDArray[Any], value: NDArray[np.int32], first: Integers, second: Integers, third: Integers, fourth: Integers
) -> None:
    """Add the values of rows to the sums of their codes."""
    whole_lanes = codes.size - codes.size % LANES
    for j in range(0, whole_lanes, LANES):
        first[codes[j]] += value[j]
        second[codes[j + 1]] += value[j + 1]
        third[codes[j + 2]] += value[j + 2]
        fourth[codes[j + 3]] += value[j + 3]
    for j in range(whole_lanes, codes.size):
        first[codes[j]] += value[j]


@njit()
def _by_leaf(sums: Integers, leaves: Integers, size: int) -> Integers:
    """Sum (LANES, codes) per leaf: (size,)."""
    leaf_sums = np.zeros(size, dtype=np.int64)
    for lane in range(LANES):
        for code in range(leaves.size):
            leaf_sums[leaves[code]] += sums[lane, code]
    return leaf_sums


@njit()
def class_values(
    labels: NDArray[np.uint8], scores: NDArray[np.int32], table: NDArray[np.int32], low: int, out: NDArray[np.int32]
) -> None:
    """Set out[i] = table[label, score - low], the score being clipped into the table."""
    last = table.shape[1] - 1
    for i in range(out.size):
        out[i] = table[labels[i], min(max(scores[i] - low, 0), last)]


@njit()
def number_values(
    targets: NDArray[np.int32],
    scores: NDArray[np.int32],
    constant: int,
    clip: int,
    factor: int,
    out: NDArray[np.int32],
) -> None:
    """Set out[i] = the residual target - score - constant, clipped to -clip..clip, times factor / 2^FRACTION, rounded
    toward zero.
    """
    for i in range(out.size):
        residual = targets[i] - scores[i] - constant
        part = (min(abs(residual), clip) * factor) >> FRACTION
        out[i] = part if residual > 0 else -part


@njit()
def join(
    first: NDArray[Any],
    second: NDArray[Any],
    down: NDArray[np.uint16],
    across: NDArray[np.uint16],
    out: NDArray[Any],
) -> None:
    """Set out[i] = down[first[i]] + across[second[i]]: the cell of two features."""
    for i in range(out.size):
        out[i] = down[first[i]] + across[second[i]]


@njit()
def count_bands(labels: NDArray[np.uint8], scores: NDArray[np.int32], last: Integers) -> Integers:
    """Return rows per class and band of scores: (2, bands). `last`: the last score of every band but the highest."""
    counts = np.zeros((2, last.size + 1), dtype=np.int64)
    for i in range(scores.size):
        band = 0
        for end in last:
            band += scores[i] > end
        counts[labels[i], band] += 1
    return counts


@njit()
def count_joint(
    one: NDArray[Any], other: NDArray[Any], down: NDArray[np.uint16], across: NDArray[np.uint16], size: int
) -> Integers:
    """Return rows per cell: (size,)."""
    counts = np.zeros((LANES, size), dtype=np.int64)
    for i in range(one.size):
        counts[i & (LANES - 1), down[one[i]] + across[other[i]]] += 1
    return np.asarray(counts.sum(axis=0))


@njit()
def sum_joint(
    one: NDArray[Any],
    other: NDArray[Any],
    down: NDArray[np.uint16],
    across: NDArray[np.uint16],
    values: NDArray[np.int32],
    size: int,
) -> Integers:
    """Sum the values per cell: (size,)."""
    sums = np.zeros((LANES, size), dtype=np.int64)
    for i in range(one.size):
        sums[i & (LANES - 1), down[one[i]] + across[other[i]]] += values[i]
    return np.asarray(sums.sum(axis=0))


@njit()
def sum_squares(targets: NDArray[np.int32], constant: int, most: int) -> int:
    """Sum min(|target - constant|, most)^2 / most, each rounded down; `most` is a power of two."""
    total = 0
    for i in range(targets.size):
        residual = min(abs(targets[i] - constant), most)
        total += residual * residual // most
    return total
