"""The rules of the game of `accountant.privacy.adaptive`, compiled: for whoever plays many boards."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accountant.privacy.adaptive_rules import STEP_SLACK
from accountant.system.numba_cache import njit

Floats = NDArray[np.float64]


@njit()
def _widen(values: Floats, wide: Floats, steps: int, step: float) -> None:
    """values at 0.. into `wide` at -steps..: V(-x) = 1 - e^-x + e^-x V(x) to the left, the last value to the right."""
    size = values.size
    for i in range(wide.size - steps):
        wide[steps + i] = values[min(i, size - 1)]
    for i in range(1, steps + 1):
        wide[steps - i] = -np.expm1(-i * step) + np.exp(-i * step) * values[min(i, size - 1)]


@njit()
def bounded(values: Floats, steps: int, step: float, count: int) -> Floats:
    """`count` releases whose losses lie in [t - e, t], e = steps * step, at the worst t each time.

    Between two grid points t the worst exceeds both ends by at most `rise` times `bend` (the proof's c2).
    """
    size, out = values.size, values.copy()
    wide, bend = np.empty(size + 3 * steps + 3), np.empty(size + steps + 1)
    last = np.empty(size)
    whole = np.expm1(steps * step)
    for _ in range(count):
        _widen(out, wide, steps + 1, step)
        _bend(wide, bend, steps, step)
        last[:] = out
        for j in range(1, steps + 1):
            high = np.exp(j * step) * np.expm1((steps - j) * step) / whole
            low = np.expm1(j * step) / whole
            rise = np.exp((j - 1) * step) * np.tanh(step / 4) / whole
            near, far = wide[steps + 1 - j : steps + 1 - j + size], wide[2 * steps + 1 - j : 2 * steps + 1 - j + size]
            bent = bend[steps + 1 - j : steps + 1 - j + size]
            for i in range(size):
                here = high * near[i] + low * far[i]
                top = (last[i] if last[i] > here else here) + rise * bent[i]
                last[i] = here
                out[i] = top if top > out[i] else out[i]
        for i in range(size):
            out[i] = min(1.0, out[i] * (1 + STEP_SLACK))
    return out


@njit()
def _bend(wide: Floats, bend: Floats, steps: int, step: float) -> None:
    """bend[i] = e^h (V(x - h) - V(x - h + e)) - (V(x) - V(x + e)) at x = (i - steps) h, rounded up; not below 0."""
    grown = np.exp(step)
    for i in range(bend.size):
        outer = grown * (wide[i] - wide[i + steps])
        bend[i] = max(0.0, outer - (wide[i + 1] - wide[i + 1 + steps])) + 1e-15 * grown * wide[i]


@njit()
def pure(values: Floats, steps: int, step: float, count: int) -> Floats:
    """`count` randomized responses of e = steps * step, the worst of the e-DP releases."""
    size, out = values.size, values.copy()
    wide, yes = np.empty(size + 2 * steps), 1 / (1 + np.exp(-steps * step))
    for _ in range(count):
        _widen(out, wide, steps, step)
        for i in range(size):
            out[i] = min(1.0, (yes * wide[i] + np.exp(-steps * step) * yes * wide[i + 2 * steps]) * (1 + STEP_SLACK))
    return out
