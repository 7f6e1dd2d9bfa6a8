"""The public random partitions of a feature's bins: from a fixed hash of public numbers and the released histogram.

Privacy needs no secret here (docs/privacy/ebm.md): what is released is protected whatever the partition.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray

from models.features.features import Feature, NumericFeature

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def partition(feature: Feature, leaves: int, mass: float, rows: Floats, at: tuple[int, int]) -> Integers:
    """Return the leaf of each bin, (bins,), leaves counted from 0 without gaps. `at`: place of the feature, and epoch.

    Of a number: at most `leaves` by random cuts, and the missing value's, which is its own. A cut falls on a share
    `mass` of the noisy `rows` per bin, else on the bins evenly. Else, or with `leaves` 0: every bin is its own leaf.
    """
    return axis_partition(feature, feature.bins, leaves, mass, rows, at)


def axis_partition(
    feature: Feature, bins: int, leaves: int, mass: float, rows: Floats, at: tuple[int, int]
) -> Integers:
    """Return the same of so many groups of a feature's bins, of a number the missing value's last."""
    ordered = bins - 1
    if leaves == 0 or ordered <= leaves or not isinstance(feature, NumericFeature):
        return np.arange(bins, dtype=np.int64)
    seen = np.maximum(rows[:-1], 0)
    if not seen.any():
        return _evenly(ordered, leaves, at)
    return _cut(mass * seen / seen.sum() + (1 - mass) / ordered, leaves, at)


@lru_cache(maxsize=8192)
def _evenly(ordered: int, leaves: int, at: tuple[int, int]) -> Integers:
    """Draw cuts evenly before a histogram is there, as in every rehearsal; for all of them at once."""
    found = _cut(np.full(ordered, 1 / ordered), leaves, at)
    found.setflags(write=False)
    return found


def _cut(share: Floats, leaves: int, at: tuple[int, int]) -> Integers:
    found = np.searchsorted(_cuts(leaves - 1, at), np.cumsum(share) - share / 2)
    leaf = np.zeros(share.size + 1, np.int64)
    np.cumsum(found[1:] > found[:-1], out=leaf[1:-1])
    leaf[-1] = leaf[-2] + 1
    return leaf


@lru_cache(maxsize=8192)
def _cuts(count: int, at: tuple[int, int]) -> Floats:
    """Derive places in [0, 1) from a hash of the feature and epoch, ascending: (count,)."""
    raw = shake_256(f"partition of feature {at[0]} in epoch {at[1]}".encode()).digest(8 * count)
    return np.sort(np.frombuffer(raw, dtype="<u8") / 2.0**64)
