"""Numba kernels over packed bins. All sums are integers: the same bits whatever the order, threads or partitions."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

BLOCK = 4096


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

    Rows go block by block, so that a block's signed weights stay in cache while every feature reads them. The loop is
    bound by dependent additions, not by memory: four features at a time, and two accumulators each, hide their latency.
    """
    features, rows = bins.shape
    even = np.zeros((features, width), dtype=np.int64)
    odd = np.zeros((features, width), dtype=np.int64)
    signed = np.empty(BLOCK, dtype=np.int64)
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        for j in range(size):
            signed[j] = signs[start + j] * weights[margins[start + j] + bound]
        for f in range(0, features - 3, 4):
            _add_four(bins[f : f + 4, start : start + size], signed, even[f : f + 4], odd[f : f + 4])
        for f in range(features - features % 4, features):
            for j in range(size):
                even[f, bins[f, start + j]] += signed[j]
    return even + odd


@numba.njit(nogil=True, cache=True, inline="always")
def _add_four(
    bins: NDArray[np.uint8], signed: NDArray[np.int64], even: NDArray[np.int64], odd: NDArray[np.int64]
) -> None:
    a, b, c, d = bins[0], bins[1], bins[2], bins[3]
    even_a, even_b, even_c, even_d = even[0], even[1], even[2], even[3]
    odd_a, odd_b, odd_c, odd_d = odd[0], odd[1], odd[2], odd[3]
    pairs = a.size - a.size % 2
    for j in range(0, pairs, 2):
        s, t = signed[j], signed[j + 1]
        even_a[a[j]] += s
        even_b[b[j]] += s
        even_c[c[j]] += s
        even_d[d[j]] += s
        odd_a[a[j + 1]] += t
        odd_b[b[j + 1]] += t
        odd_c[c[j + 1]] += t
        odd_d[d[j + 1]] += t
    if pairs < a.size:
        s = signed[pairs]
        even_a[a[pairs]] += s
        even_b[b[pairs]] += s
        even_c[c[pairs]] += s
        even_d[d[pairs]] += s
