"""The M-alpha loss (Nock and Henecka, "Boosted and differentially private ensembles of decision trees", section 4): its
Bayes risk, canonical link and weights, in the fixed point that queries are made of. Proofs: docs/privacy/trees.md.

The Bayes risk of class 1's share q is L(q) = 2 alpha sqrt(q (1 - q)) + 2 (1 - alpha) min(q, 1 - q): Matsushita's at
alpha = 1, the 0/1 loss's at alpha = 0. The more curved it is, the faster boosting, and the more one record moves it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt, sqrt

import numpy as np
from numpy.typing import NDArray

from training.rows.partitions.rows import FEW_ROWS

Integers = NDArray[np.int64]
WEIGHT_ONE = 1 << 24  # the largest weight of a row
SCORE_ONE = 64  # a score of 1, as the canonical link counts


def link(q: float, alpha: float) -> float:
    """Return the canonical link psi = -L' at 0 < q < 1; at q = 1/2, where L has a corner unless alpha = 1, it is 0."""
    corner = (q > 0.5) - (q < 0.5)
    return alpha * (2 * q - 1) / sqrt(q * (1 - q)) + 2 * (1 - alpha) * corner


def inverse_link(z: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Return the inverse of the canonical link: 1/2 on the flat part, |z| <= 2 (1 - alpha) (Theorem 8)."""
    past = np.maximum(np.abs(z) / 2 - (1 - alpha), 0.0)
    is_past = past > 0
    spread = np.sqrt(alpha**2 + past**2)
    return np.asarray((1 + np.sign(z) * np.divide(past, spread, out=np.zeros_like(past), where=is_past)) / 2)


@lru_cache(maxsize=64)
def weights(bound: int, alpha: float) -> Integers:
    """Return the weight of a row by margin + bound, for scores within -bound .. bound: (2 bound + 1,), at most
    WEIGHT_ONE.

    Mirror update: w = psi^-1(-margin), divided by the largest weight that any row can have after what was released. A
    public table: a row's weight depends on its own margin alone.
    """
    shape = inverse_link(-np.arange(-bound, bound + 1) / SCORE_ONE, alpha)
    table: Integers = np.minimum(WEIGHT_ONE * (shape / shape[0]), WEIGHT_ONE).astype(np.int64)
    table.flags.writeable = False
    return table


def risk(a: Integers, b: Integers, alpha: float, cap: int) -> Integers:
    """Return (a + b) L(b / (a + b)) of parts with class weights a and b, either counted up to `cap`; off by at most 1
    and a 2^-49th of itself (docs/privacy/trees.md, lemma 3).
    """
    a, b = np.minimum(a, cap), np.minimum(b, cap)
    matsushita = np.sqrt(a.astype(np.float64) * b.astype(np.float64))
    return np.asarray(2 * alpha * matsushita + 2 * (1 - alpha) * np.minimum(a, b), np.int64)


def most(size: int, alpha: float) -> int:
    """Return P(size) = size L(1 / size) = 2 - 2 alpha + 2 alpha sqrt(size - 1) in units of WEIGHT_ONE, rounded up: the
    most that one row of weight 1 adds to the risk of `size` rows, itself included.
    """
    root = Fraction(isqrt((max(size, 2) - 1) << 64) + 1, 1 << 32)
    share = Fraction(alpha)
    return ceil(2 * WEIGHT_ONE * (1 - share + share * root))


def rounding(leaves: int, rows: int = FEW_ROWS) -> int:
    """Return what computing risks in floating point can add to their range, over a level of `leaves` leaves, of at most
    so many rows (lemma 3).
    """
    return (WEIGHT_ONE * rows >> 46) + 8 * leaves + 8
