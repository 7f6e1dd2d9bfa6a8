"""The public random partitions of a feature's bins: drawn from a fixed hash of public numbers, the same for everybody.

Privacy needs no secret here (docs/privacy/ebm.md): what is released is protected whatever the partition.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray

from models.features import Feature, NumericFeature

Integers = NDArray[np.int64]


def partition(feature: Feature, leaves: int, place: int, epoch: int) -> Integers:
    """The leaf of each bin, (bins,): at most `leaves` of them, or (0) every bin its own. `place`: of the feature.

    Of a number: random cuts between bins; missing is a leaf of its own. Else: bins dealt out in a random order.
    """
    return _partition(isinstance(feature, NumericFeature), feature.bins, leaves, place, epoch)


@lru_cache(maxsize=4096)
def _partition(ordered: bool, bins: int, leaves: int, place: int, epoch: int) -> Integers:
    if leaves == 0 or bins <= leaves:
        return np.arange(bins, dtype=np.int64)
    if not ordered:
        found = np.empty(bins, dtype=np.int64)
        found[_shuffled(bins, place, epoch)] = np.arange(bins) * leaves // bins
        return found
    last = bins - 1  # the missing value's
    cuts = np.zeros(bins, dtype=np.int64)
    cuts[1 + _shuffled(last - 1, place, epoch)[: max(0, leaves - 2)]] = cuts[last] = 1
    return np.cumsum(cuts)


def _shuffled(size: int, place: int, epoch: int) -> Integers:
    raw = shake_256(f"partition of feature {place} in epoch {epoch}".encode()).digest(8 * size)
    return np.argsort(np.frombuffer(raw, dtype="<u8"), kind="stable")
