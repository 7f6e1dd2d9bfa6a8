"""Numba kernels between values, fine cells and bins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit


@njit()
def encode(
    values: NDArray[np.float64],
    edges: NDArray[np.float64],
    low: float,
    scale: float,
    starts: NDArray[np.int32],
    missing: int,
) -> NDArray[np.uint16]:
    """Return the number of edges below each value, `missing` for NaN. `starts[p]`: the first edge of part p of the
    range, by the same arithmetic: it never falls with the value, so that edges of parts before a value's are below it.
    """
    codes = np.empty(values.size, np.uint16)
    last = starts.size - 2
    for i in range(values.size):
        value = values[i]
        if np.isnan(value):
            codes[i] = missing
            continue
        place = (value - low) * scale
        part = int(min(place, last)) if place > 0 else 0
        code, end = starts[part], starts[part + 1]
        while code < end:
            middle = (code + end) // 2
            if edges[middle] < value:
                code = middle + 1
            else:
                end = middle
        codes[i] = code
    return codes


@njit()
def merge(codes: NDArray[Any], table: NDArray[Any], out: NDArray[Any]) -> None:
    """Set out[i] = table[codes[i]]."""
    for i in range(codes.size):
        out[i] = table[codes[i]]
