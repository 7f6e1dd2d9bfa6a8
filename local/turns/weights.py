"""What rows weigh for the votes so far, and the public coins by which a length becomes a direction. Pure functions.

A row weighs exp(-y F(x)), y the corner of its label and F the votes so far, divided by what such weights are on the
average, which the alphas say: SAMME's weights (Zhu et al. 2009), of two classes AdaBoost's. An owner of several rows
spreads one whole among them, as AdaBoost does; and no owner counts for more than one: `size`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STEEPEST = 30.0  # of a logarithm of a weight
LONGEST = 1e9  # of a number in a vector, which is of length 1 at most where rows are as the schema says


@dataclass(frozen=True, eq=False)
class Owned:
    """The rows of owners, one owner after the other. `y` (n, K - 1): corners; `rows` (owners,): how many each has;
    `share` (n,): of an owner's whole, 0 of a row that does not fit; `size` (owners,): of the owner, from 0 (too few of
    its rows fit) to 1; `fitting` (owners,): how many do.
    """

    y: Floats
    rows: NDArray[np.int64]
    share: Floats
    size: Floats
    fitting: Floats

    def total(self, values: Floats) -> Floats:
        """Return the sums (owners, ...) of each owner's `values` (n, ...) in their shares, times the owner's size."""
        spread = self.share.reshape(-1, *[1] * (values.ndim - 1))
        sums = np.add.reduceat(values * spread, _starts(self.rows), axis=0)
        return np.asarray(sums * self.size.reshape(-1, *[1] * (values.ndim - 1)), np.float64)


def weigh_rows(
    y: Floats, rows: NDArray[np.int64], margins: Floats, log_mass: float, least: int = 1,
    fits: NDArray[np.bool_] | None = None,
) -> Owned:  # fmt: skip
    """Weigh rows of labels y (n, K - 1) by the votes so far. Where fewer than `least` of an owner's fit, its size is 0.

    Args:
        rows: how many each owner has, (owners,), at least one.
        fits: which rows count (n,); None: all of them. The time does not depend on it.
        margins: F (n, K - 1) of the votes so far.
        log_mass: what `SoFar.log_mass` says of them.
    """
    counts = np.ones(len(y)) if fits is None else fits.astype(np.float64)
    weight = counts * np.exp(np.clip(-(y * margins).sum(axis=1) - log_mass, -STEEPEST, STEEPEST))
    totals, fitting = np.add.reduceat(weight, _starts(rows)), np.add.reduceat(counts, _starts(rows))
    size = np.where(fitting >= least, np.minimum(totals / np.maximum(fitting, 1.0), 1.0), 0.0)
    return Owned(y, rows, weight / np.repeat(np.where(totals > 0, totals, 1.0), rows), size, fitting)


def _starts(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(rows)[:-1]]).astype(np.int64)


def coins(seed: bytes, owners: NDArray[np.int64]) -> Floats:
    """Derive a public number of [0, 1) for each owner (owners,), the same on every machine; of multiples of 2^-53."""
    heads = [hashlib.sha256(seed + b" coin " + int(owner).to_bytes(8, "big")).digest()[:8] for owner in owners]
    return (np.frombuffer(b"".join(heads), ">u8") >> np.uint64(11)).astype(np.float64) / 2**53


def turn_into_directions(vectors: Floats, coin: Floats) -> Floats:
    """Turn vectors (owners, D) of lengths L at most 1 into unit vectors: the same way where the coin is below (1 + L) /
    2, else the opposite. On the average over coins they are the vectors themselves, lengths included. Longer ones are
    cut to 1; what is not finite is 0.
    """
    finite = np.clip(np.where(np.isfinite(vectors), vectors, 0.0), -LONGEST, LONGEST)
    length = np.linalg.norm(finite, axis=1)
    safe = np.where(np.isfinite(length) & (length > 0), length, 1.0)
    side = np.where(coin < (1 + np.minimum(safe, 1.0)) / 2, 1.0, -1.0)
    return np.asarray(finite / safe[:, np.newaxis] * side[:, np.newaxis], np.float64)
