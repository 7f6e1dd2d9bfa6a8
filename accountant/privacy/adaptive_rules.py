"""The rules of the game of `accountant.privacy.adaptive`, by numpy: nothing is to be loaded for them, and each board
takes ten times as long as by `adaptive_compiled`, which does the same operations in the same order.
"""

from __future__ import annotations

from math import exp, expm1, tanh

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEP_SLACK = 1e-14  # floating point, relative, for one release


def _widen(values: Floats, steps: int, step: float) -> Floats:
    """values at 0.. as they are at -steps..: V(-x) = 1 - e^-x + e^-x V(x) to the left, the last value to the right."""
    back = range(steps, 0, -1)
    left = np.array([-expm1(-i * step) for i in back]) + np.array([exp(-i * step) for i in back]) * values.take(
        np.arange(steps, 0, -1), mode="clip"
    )
    return np.concatenate((left, values))


def bounded(values: Floats, steps: int, step: float, count: int) -> Floats:
    """`count` releases whose losses lie in [t - e, t], e = steps * step, at the worst t each time.

    Between two grid points t the worst exceeds both ends by at most `rise` times `bend` (the proof's c2).
    """
    size, out, whole, grown = values.size, values.copy(), expm1(steps * step), exp(step)
    factors = [
        (
            exp(j * step) * expm1((steps - j) * step) / whole,
            expm1(j * step) / whole,
            exp((j - 1) * step) * tanh(step / 4) / whole,
        )
        for j in range(1, steps + 1)
    ]
    # bend[i] = e^h (V(x - h) - V(x - h + e)) - (V(x) - V(x + e)) at x = (i - steps) h, rounded up; not below 0
    here, low_part, top = np.empty(size), np.empty(size), np.empty(size)
    for _ in range(count):
        wide = np.concatenate((_widen(out, steps + 1, step), np.full(2 * steps + 2, out[-1])))
        places = size + steps + 1
        outer = grown * (wide[:places] - wide[steps : steps + places])
        bend = np.maximum(0.0, outer - (wide[1 : 1 + places] - wide[1 + steps : 1 + steps + places]))
        bend += 1e-15 * grown * wide[:places]
        last = out.copy()
        for j, (high, low, rise) in enumerate(factors, 1):
            start = steps + 1 - j
            np.multiply(wide[start : start + size], high, out=here)
            np.multiply(wide[start + steps : start + steps + size], low, out=low_part)
            np.add(here, low_part, out=here)
            np.maximum(last, here, out=top)
            np.multiply(bend[start : start + size], rise, out=low_part)
            np.add(top, low_part, out=top)
            np.maximum(out, top, out=out)
            last, here = here, last
        out = np.minimum(1.0, out * (1 + STEP_SLACK))
    return out


def pure(values: Floats, steps: int, step: float, count: int) -> Floats:
    """`count` randomized responses of e = steps * step, the worst of the e-DP releases."""
    size, out, yes = values.size, values, 1 / (1 + exp(-steps * step))
    for _ in range(count):
        wide = np.concatenate((_widen(out, steps, step), np.full(steps, out[-1])))
        out = yes * wide[:size] + exp(-steps * step) * yes * wide[2 * steps : 2 * steps + size]
        out = np.minimum(1.0, out * (1 + STEP_SLACK))
    return out
