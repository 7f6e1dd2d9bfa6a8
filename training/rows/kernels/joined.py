"""Numba kernels for features in few columns (`training.rows.partitions.joined`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit

Integers = NDArray[np.int64]


@njit()
def join(
    bins: NDArray[Any],
    low: int,
    tables: NDArray[np.uint16],
    widths: Integers,
    groups: tuple[Integers, Integers, int],
    out: NDArray[Any],
) -> None:
    """Set out[g, i]: of row low + i, what the tables say of the codes of the features of group g, as digits, the last
    one counting singly.
    """
    members, starts, _ = groups
    for g in range(starts.size - 1):
        group_codes = out[g]
        group_codes[:] = 0
        for member in members[starts[g] : starts[g + 1]]:
            codes, table, width = bins[member], tables[member], group_codes.dtype.type(widths[member])
            for i in range(group_codes.size):
                group_codes[i] = group_codes[i] * width + group_codes.dtype.type(table[codes[low + i]])


@njit()
def part(joint: Integers, widths: Integers, groups: tuple[Integers, Integers, int], out: Integers) -> None:
    """Add to out[feature, key, code] every sum joint[group, key, joint code] in which the feature has this code."""
    members, starts, _ = groups
    for g in range(starts.size - 1):
        group_members = members[starts[g] : starts[g + 1]]
        outer, inner = 1, 1
        for member in group_members:
            inner *= widths[member]
        for member in group_members:
            width = widths[member]
            inner //= width
            for key in range(joint.shape[1]):
                for high in range(outer):
                    for code in range(width):
                        at, total = (high * width + code) * inner, 0
                        for place in range(at, at + inner):
                            total += joint[g, key, place]
                        out[member, key, code] += total
            outer *= width
