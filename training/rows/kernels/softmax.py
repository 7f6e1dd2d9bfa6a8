"""Numba kernels for additive models of several classes over packed bins: a score for each class, and what softmax
leaves to explain. All of it is whole numbers but for one square root, which is rounded the same everywhere: the same
bits whatever the order, the threads or the place of a row.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit

DIGITS = 20  # binary digits of a chance, and of what a residual is multiplied by
RECIPROCAL = 56  # of 1 over a sum of exponentials, which have 24
Integers = NDArray[np.int64]


@njit()
def add_changes(codes: NDArray[Any], change: NDArray[np.int32], scores: NDArray[np.int32]) -> None:
    """Add change[codes[i]] to scores[i], a number for each class: what was released of one feature's terms, applied to
    every row.
    """
    for i in range(codes.size):
        code = codes[i]
        for k in range(change.shape[1]):
            scores[i, k] += change[code, k]


@njit(inline="always")
def _chances(
    scores: NDArray[np.int32], constant: Integers, powers: NDArray[np.int32], shift: int, below: Integers, out: Integers
) -> None:
    """Set out[k] = softmax(scores + constant)[k] in steps of 2^-DIGITS, each rounded down, and below[k] to how far the
    score is below the highest. `powers`: exp(-d) for d in steps of 2^shift scores, in 2^-24; 0 beyond.
    """
    highest = scores[0] + constant[0]
    for k in range(1, out.size):
        highest = max(highest, scores[k] + constant[k])
    total = 0
    for k in range(out.size):
        below[k] = highest - (scores[k] + constant[k])
        place = below[k] >> shift
        out[k] = powers[place] if place < powers.size else 0
        total += out[k]
    part = (1 << RECIPROCAL) // total
    for k in range(out.size):
        out[k] = (out[k] * part) >> (RECIPROCAL - DIGITS)


@njit()
def sum_residuals(
    codes: NDArray[Any],
    leaves: Integers,
    labels: NDArray[np.uint8],
    scores: NDArray[np.int32],
    constant: Integers,
    powers: NDArray[np.int32],
    shift: int,
    length: int,
    most: Integers,
    taxicab: bool,
    size: int,
) -> Integers:
    """Sum per leaf and class of [label is the class] less its chance: (size, classes). A row's numbers are multiplied
    by most[label] over their length, or over `length`, in steps of 2^-DIGITS, if that is larger, and rounded toward
    zero: together they are never longer than most[label]. Lengths are L1 where `taxicab`, else L2.
    """
    classes = constant.size
    sums = np.zeros((size, classes), dtype=np.int64)
    left, below = np.empty(classes, dtype=np.int64), np.empty(classes, dtype=np.int64)
    for i in range(codes.size):
        label, leaf = labels[i], leaves[codes[i]]
        _chances(scores[i], constant, powers, shift, below, left)
        far = 0
        for k in range(classes):
            left[k] = -left[k]
            if k == label:
                left[k] += 1 << DIGITS
            far += abs(left[k]) if taxicab else left[k] * left[k]
        if not taxicab:
            root = int(sqrt(float(far)))
            while root * root < far:  # never shorter than it is, whatever a root rounds to
                root += 1
            far = root
        by = (most[label] << DIGITS) // max(length, far, 1)
        for k in range(classes):
            part = (abs(left[k]) * by) >> DIGITS
            sums[leaf, k] += part if left[k] > 0 else -part
    return sums


@njit()
def sum_slopes(
    labels: NDArray[np.uint8],
    scores: NDArray[np.int32],
    constant: Integers,
    powers: NDArray[np.int32],
    shift: int,
    digits: int,
    farthest: int,
    most: int,
) -> Integers:
    """Sum over rows of how the log likelihood rises with the scores' slope, and of how that bends: the label's score
    less the mean over chances, clipped to -farthest..farthest logits, and the variance over chances, clipped to as
    much; either in steps of `most` for `farthest`, rounded toward zero. (2,). Scores have `digits` binary digits.
    """
    classes = constant.size
    sums = np.zeros(2, dtype=np.int64)
    chances, below = np.empty(classes, dtype=np.int64), np.empty(classes, dtype=np.int64)
    for i in range(labels.size):
        _chances(scores[i], constant, powers, shift, below, chances)
        mean, square = 0, 0
        for k in range(classes):
            far = min(below[k], 31 << digits) >> (digits - 8)  # in 256ths of a logit
            below[k] = far
            mean += chances[k] * far
            square += chances[k] * far * far
        rise = min(max(mean - (below[labels[i]] << DIGITS), -(farthest << 28)), farthest << 28)
        middle = mean >> DIGITS
        bend = min(max((square >> DIGITS) - middle * middle, 0), farthest << 16)
        part = abs(rise) * most // (farthest << 28)
        sums[0] += part if rise > 0 else -part
        sums[1] += bend * most // (farthest << 16)
    return sums
