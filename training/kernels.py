"""Numba kernels over packed bins. All sums are integers: the same bits whatever the order, threads or partitions."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

BLOCK = 8192


@numba.njit(nogil=True, cache=True)
def advance(
    codes: NDArray[np.uint8], signs: NDArray[np.int8], table: NDArray[np.int32], margins: NDArray[np.int32]
) -> None:
    """margins[i] += signs[i] * table[codes[i]]: one released vote applied to its feature's column of codes."""
    for i in range(margins.size):
        margins[i] += signs[i] * table[codes[i]]


@numba.njit(nogil=True, cache=True)
def count_margins(margins: NDArray[np.int32], bound: int) -> NDArray[np.int64]:
    """Rows per margin: (2 bound + 1,), index margin + bound."""
    counts = np.zeros(2 * bound + 1, dtype=np.int64)
    for i in range(margins.size):
        counts[margins[i] + bound] += 1
    return counts


@numba.njit(nogil=True, cache=True)
def signed_sums(
    bins: NDArray[np.uint8],
    signs: NDArray[np.int8],
    margins: NDArray[np.int32],
    weights: NDArray[np.int64],
    bound: int,
    width: int,
) -> NDArray[np.int64]:
    """Sum of sign * weights[margin + bound] per feature and code: (features, width).

    Rows go block by block, so that the signed weights of a block stay in cache while every feature reads them;
    two accumulators per feature hide the latency of dependent additions.
    """
    features, rows = bins.shape
    even = np.zeros((features, width), dtype=np.int64)
    odd = np.zeros((features, width), dtype=np.int64)
    signed = np.empty(BLOCK, dtype=np.int64)
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        for j in range(size):
            signed[j] = signs[start + j] * weights[margins[start + j] + bound]
        for f in range(features):
            for j in range(0, size - 1, 2):
                even[f, bins[f, start + j]] += signed[j]
                odd[f, bins[f, start + j + 1]] += signed[j + 1]
            if size % 2:
                even[f, bins[f, start + size - 1]] += signed[size - 1]
    return even + odd
