"""Numba kernels over packed bins. All sums are integers: the same bits whatever the order, threads or partitions."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit

BLOCK = 8192
FEW_EDGES = 256
Integers = NDArray[np.int64]


@njit()
def encode_numbers(values: NDArray[np.float64], edges: NDArray[np.float64], missing: int) -> NDArray[np.uint16]:
    """Encode as `NumericFeature.encode` does: the number of edges below a value, `missing` for NaN. Every edge is
    compared, with many values at a time: for few edges much faster than a search, whose branches cannot be guessed.
    """
    codes = np.zeros(values.size, dtype=np.uint16)
    for start in range(0, values.size, 1024):
        block, block_codes = values[start : start + 1024], codes[start : start + 1024]
        for edge in edges:
            for j in range(block.size):
                block_codes[j] += np.uint16(edge < block[j])
        for j in range(block.size):
            if np.isnan(block[j]):
                block_codes[j] = missing
    return codes


@njit()
def advance(codes: NDArray[Any], low: Any, high: Any, change: Any, states: NDArray[Any]) -> None:
    """Add change to states[i] where low <= codes[i] <= high, else -= change: one released vote, applied to its
    feature's column.

    Comparisons instead of a table by code, and numbers of the arrays' own types, let it run in vector registers.
    """
    for i in range(states.size):
        states[i] += change if (codes[i] >= low) & (codes[i] <= high) else -change


@njit()
def advance_all(
    bins: NDArray[Any],
    low: int,
    changes: NDArray[Any],
    widths: Integers,
    groups: tuple[Integers, Integers, int],
    states: NDArray[Any],
) -> None:
    """Add changes[g, c] to states[i] for every group g of features (see `grouped`), c being the joint code of row low +
    i: all votes at once, whose number does not matter then.
    """
    members, starts, _ = groups
    codes = np.empty(BLOCK, dtype=np.uint16)
    for start in range(0, states.size, BLOCK):
        size = min(BLOCK, states.size - start)
        for g in range(starts.size - 1):
            _join(bins, members[starts[g] : starts[g + 1]], widths, low + start, codes[:size])
            change = changes[g]
            for j in range(size):
                states[start + j] += change[codes[j]]


@njit()
def count_states(states: NDArray[Any], zero: int, size: int) -> Integers:
    """Return rows per state: (size,), index state + zero. Neighbouring rows count apart: an addition waits for the one
    before it to the same place.
    """
    counts = np.zeros((4, size), dtype=np.int64)
    for i in range(states.size):
        counts[i & 3, np.uint64(states[i] + zero)] += 1
    return np.asarray(counts.sum(axis=0))


@njit()
def signed_sums(
    columns: NDArray[Any], states: NDArray[Any], low: int, weights: Integers, zero: int, size: int
) -> Integers:
    """Sum over rows of weights[state + zero], per column and code: (columns, size). Row i of `states` is row low + i of
    the `columns`: features, or groups of them with their joint codes (`training.rows.partitions.joined`).

    Rows go block by block, so that their weights stay in cache, and two columns go side by side: no addition waits for
    the one before it to the same place.
    """
    count = len(columns)
    sums = np.zeros((count, size), dtype=np.int64)
    signed = np.empty(BLOCK, dtype=np.int64)
    for start in range(0, states.size, BLOCK):
        count_rows = min(BLOCK, states.size - start)
        for j in range(count_rows):
            signed[j] = weights[np.uint64(states[start + j] + zero)]
        a, b = low + start, low + start + count_rows
        for c in range(0, count - 1, 2):
            codes, second_codes, first_sums, second_sums = columns[c, a:b], columns[c + 1, a:b], sums[c], sums[c + 1]
            for j in range(count_rows):
                weight = signed[j]
                # an index known not to be negative is not looked up from the end
                first_sums[np.uint64(codes[j])] += weight
                second_sums[np.uint64(second_codes[j])] += weight
        if count % 2:
            codes, first_sums = columns[count - 1, a:b], sums[count - 1]
            for j in range(count_rows):
                first_sums[np.uint64(codes[j])] += signed[j]
    return sums


@njit()
def _join(bins: NDArray[Any], members: Integers, widths: Integers, start: int, codes: NDArray[np.uint16]) -> None:
    """Combine the codes of a group in a block of rows: the features' codes as digits, the last one counting singly."""
    first = bins[members[0], start : start + codes.size]
    if members.size == 1:
        for j in range(codes.size):
            codes[j] = first[j]
        return
    second, width = bins[members[1], start : start + codes.size], np.uint16(widths[members[1]])
    for j in range(codes.size):
        codes[j] = np.uint16(first[j]) * width + np.uint16(second[j])
    for member in members[2:]:
        member_codes, width = bins[member, start : start + codes.size], np.uint16(widths[member])
        for j in range(codes.size):
            codes[j] = codes[j] * width + np.uint16(member_codes[j])


def grouped(widths: tuple[int, ...], limit: int) -> tuple[Integers, Integers, int]:
    """Group features into few groups with at most `limit` joint codes each, widest first: (members one group after the
    other, where each group starts and where the last ends, most joint codes of a group). A wider feature stands alone.
    """
    groups: list[tuple[int, list[int]]] = []
    for feature in sorted(range(len(widths)), key=lambda index: -widths[index]):
        for place, (codes, members) in enumerate(groups):
            if codes * widths[feature] <= limit:
                groups[place] = codes * widths[feature], [*members, feature]
                break
        else:
            groups.append((widths[feature], [feature]))
    starts = np.cumsum([0, *(len(members) for _, members in groups)], dtype=np.int64)
    order = np.array(list(chain.from_iterable(members for _, members in groups)), np.int64)
    return order, starts, max(codes for codes, _ in groups)
