"""Numba kernels for trees over packed bins. All sums are integers: the same bits whatever the order or the threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit

BLOCK, CACHED = 2048, 8192
NEAR = 1024  # sums of a feature, at most, whose place beside other features' is known when this is compiled
Integers = NDArray[np.int64]


@njit()
def descend(bins: NDArray[Any], low: int, leaves: NDArray[np.uint8], cuts: Integers) -> None:
    """Move rows to the leaves that cuts made, one cut after the other. `cuts` (cuts, 5): leaf, feature, lowest,
    highest, new leaf.

    A row in the leaf goes to the new leaf where lowest <= code <= highest, else it stays. Row i of `leaves` is row
    low + i of `bins`. Every row is asked about every cut, with comparisons that run in vector registers, block by
    block: much faster than to look up each row's own cut, whose branches cannot be guessed.
    """
    for first in range(0, leaves.size, CACHED):
        block = leaves[first : first + CACHED]
        for leaf, feature, lowest, highest, new in cuts:
            if lowest > highest:
                continue
            codes = bins[feature, low + first : low + first + block.size]
            code, name = codes.dtype.type, block.dtype.type
            _cut(codes, block, code(lowest), code(highest), name(leaf), name(new))


@njit()
def _cut(codes: NDArray[Any], leaves: NDArray[np.uint8], lowest: Any, highest: Any, leaf: Any, new: Any) -> None:
    for i in range(leaves.size):
        leaves[i] = new if (leaves[i] == leaf) & (codes[i] >= lowest) & (codes[i] <= highest) else leaves[i]


@njit()
def add_votes(leaves: NDArray[np.uint8], votes: NDArray[np.int32], scores: NDArray[np.int32]) -> None:
    """Add votes[leaves[i]] to scores[i]: one released tree applied to every row."""
    for i in range(leaves.size):
        scores[i] += votes[leaves[i]]


@njit()
def count_scores(labels: NDArray[np.uint8], scores: NDArray[np.int32], bound: int) -> Integers:
    """Return rows per class and score: (2, 2 bound + 1), index score + bound."""
    counts = np.zeros((2, 2 * bound + 1), dtype=np.int64)
    for i in range(scores.size):
        counts[labels[i], scores[i] + bound] += 1
    return counts


@njit()
def weigh_leaves(
    labels: NDArray[np.uint8],
    leaves: NDArray[np.uint8],
    scores: NDArray[np.int32],
    weights: Integers,
    bound: int,
    size: int,
) -> Integers:
    """Sum the weight per leaf and class: (size, 2). `weights` (2, 2 bound + 1) by class and score + bound."""
    sums = np.zeros((size, 2), dtype=np.int64)
    for i in range(leaves.size):
        sums[leaves[i], labels[i]] += weights[labels[i], scores[i] + bound]
    return sums


@njit()
def histograms(
    bins: NDArray[Any],
    low: int,
    labels: NDArray[np.uint8],
    leaves: NDArray[np.uint8],
    scores: NDArray[np.int32],
    weights: Integers,
    bound: int,
    size: int,
    width: int,
    apart: bool,
) -> Integers:
    """Sum the weight per feature, leaf and code: (features, size, width); where classes stand `apart`, (features,
    2 size, width), the middle index being 2 leaf + class. `weights` as in `weigh_leaves`; row i of `labels` is row
    low + i of `bins`.

    Rows go block by block, so that a block's weights and keys stay in cache while every feature reads them; up to four
    features go side by side, which load them once.
    """
    features, parts = bins.shape[0], 2 if apart else 1
    bins_used = parts * size * width
    room = max(bins_used, NEAR)
    sums = np.zeros(features * room, dtype=np.int64)
    weight, start, place = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    flat, row = weights.ravel(), np.uint32(weights.shape[1])
    of_leaf, of_class = np.uint32(parts * width), np.uint32((parts - 1) * width)
    together = features - features % 4
    for first in range(0, labels.size, BLOCK):
        end = min(first + BLOCK, labels.size)
        label, leaf, score = labels[first:end], leaves[first:end], scores[first:end]
        for j in range(label.size):  # one by one these loops run in vector registers
            place[j] = label[j] * row + np.uint32(score[j] + bound)
        for j in range(label.size):
            weight[j] = flat[place[j]]
        for j in range(label.size):
            start[j] = leaf[j] * of_leaf + label[j] * of_class
        a, b = low + first, low + end
        for f in range(0, together, 4):
            if room == NEAR:
                _add_four(bins, f, a, b, start, weight, sums[f * room :], NEAR)
            else:
                _add_four(bins, f, a, b, start, weight, sums[f * room :], room)
        for f in range(together, features):
            codes, feature_sums = bins[f, a:b], sums[f * room :]
            for j in range(codes.size):
                feature_sums[np.uint64(start[j]) + np.uint64(codes[j])] += weight[j]
    return np.ascontiguousarray(sums.reshape((features, room))[:, :bins_used]).reshape((features, parts * size, width))


@njit(inline="always")
def _add_four(
    bins: NDArray[Any],
    f: int,
    low: int,
    end: int,
    start: NDArray[np.uint32],
    weight: Integers,
    sums: Integers,
    room: int,
) -> None:
    """Add to the sums of four features, which lie `room` apart: if that is known when this is compiled, it costs
    nothing. An index that is known not to be negative is not looked up from the other end.
    """
    a, b, c, d = bins[f, low:end], bins[f + 1, low:end], bins[f + 2, low:end], bins[f + 3, low:end]
    for j in range(a.size):
        key, row_weight = np.uint64(start[j]), weight[j]
        sums[key + np.uint64(a[j])] += row_weight
        sums[key + np.uint64(b[j]) + np.uint64(room)] += row_weight
        sums[key + np.uint64(c[j]) + np.uint64(2 * room)] += row_weight
        sums[key + np.uint64(d[j]) + np.uint64(3 * room)] += row_weight


@njit()
def impurity(a: int, b: int) -> int:
    """Return the floor of 4 a b / (a + b), computed in floating point: within a 2^-50th of its value, and 1
    (topdown.md).
    """
    return int(4.0 * a * b / (a + b)) if a > 0 and b > 0 else 0


@njit()
def gains(sums: Integers, tests: Integers, gini: bool) -> Integers:
    """Return what each test gains in each leaf: (leaves, tests). `tests` (tests, 3): feature, low, high; a row is in
    the first child where low <= code <= high. `sums` as from `histograms`, classes apart; it is overwritten.

    With a, b the weights of the classes: by `gini` the impurity of the leaf less that of its children, else
    |b - a| of the children less that of the leaf, which is twice the weight that their majorities no longer get wrong.
    """
    _accumulate(sums)
    _, keys, width = sums.shape
    gain_table = np.empty((keys // 2, len(tests)), dtype=np.int64)
    for leaf in range(keys // 2):
        a, b = sums[0, 2 * leaf, width - 1], sums[0, 2 * leaf + 1, width - 1]
        for t in range(len(tests)):
            f, low, high = tests[t]
            c, d = _between(sums[f, 2 * leaf], low, high), _between(sums[f, 2 * leaf + 1], low, high)
            if gini:
                gain_table[leaf, t] = impurity(a, b) - impurity(c, d) - impurity(a - c, b - d)
            else:
                gain_table[leaf, t] = abs(d - c) + abs(b - d - a + c) - abs(b - a)
    return gain_table


@njit()
def agreements(sums: Integers, tests: Integers) -> Integers:
    """Sum w y h(x) over each leaf's rows, h being +1 where a test holds and -1 where not, or always +1; then the
    same for -h: (leaves, 2 (tests + 1)). `sums` as from `histograms`, of w y; it is overwritten.
    """
    _accumulate(sums)
    _, leaves, width = sums.shape
    size = len(tests) + 1
    agreement_table = np.empty((leaves, 2 * size), dtype=np.int64)
    for leaf in range(leaves):
        total = sums[0, leaf, width - 1]
        for t in range(len(tests)):
            f, low, high = tests[t]
            agreement_table[leaf, t] = 2 * _between(sums[f, leaf], low, high) - total
        agreement_table[leaf, size - 1] = total
        agreement_table[leaf, size:] = -agreement_table[leaf, :size]
    return agreement_table


@njit()
def _accumulate(sums: Integers) -> None:
    features, keys, width = sums.shape
    for f in range(features):
        for k in range(keys):
            for c in range(1, width):
                sums[f, k, c] += sums[f, k, c - 1]


@njit()
def _between(running: Integers, low: int, high: int) -> int:
    below: int = running[low - 1] if low > 0 else 0
    return int(running[high]) - below
