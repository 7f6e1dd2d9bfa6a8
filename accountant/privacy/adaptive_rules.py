"""The rules of the game of `accountant.privacy.adaptive`, by numpy: nothing is to be loaded for them, and each board
takes five times as long as by `adaptive_compiled`, which does the same operations.
"""

from __future__ import annotations

from math import exp, expm1, tanh

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEP_SLACK = 1e-14  # floating point, relative, for one release


Left = tuple[Floats, Floats, NDArray[np.intp]]


def _left(steps: int, step: float) -> Left:
    """1 - e^-x, e^-x and the place of V(x) for each V(-x), at x = steps h .. h."""
    places = np.arange(steps, 0, -1)
    more, share = ([each(-i * step) for i in places.tolist()] for each in (expm1, exp))
    return -np.array(more), np.array(share), places


def _widen(values: Floats, left: Left) -> Floats:
    """values at 0.. as they are at -steps..: V(-x) = 1 - e^-x + e^-x V(x) to the left, the last value to the right."""
    more, share, places = left
    return np.concatenate((more + share * values.take(places, mode="clip"), values))


def bounded(values: Floats, steps: int, step: float, count: int) -> Floats:
    """`count` releases whose losses lie in [t - e, t], e = steps * step, at the worst t each time.

    Between two grid points t the worst exceeds both ends by at most `rise` times `bend` (the proof's c2). Every t is a
    row of the same values, shifted: all of them are asked at once, in buffers that are made once.
    """
    size, out, whole, grown = values.size, values.copy(), expm1(steps * step), exp(step)
    moves, places, left = range(1, steps + 1), size + steps + 1, _left(steps + 1, step)
    high = np.array([exp(j * step) * expm1((steps - j) * step) / whole for j in moves])[:, np.newaxis]
    low = np.array([expm1(j * step) / whole for j in moves])[:, np.newaxis]
    rise = np.array([exp((j - 1) * step) * tanh(step / 4) / whole for j in moves])[:, np.newaxis]
    # bend[i] = e^h (V(x - h) - V(x - h + e)) - (V(x) - V(x + e)) at x = (i - steps) h, rounded up; not below 0
    wide, bend, spare = np.empty(places + 2 * steps + 2), np.empty(places), np.empty(places)
    near, far, bent = _shifted(wide, steps, size), _shifted(wide[steps:], steps, size), _shifted(bend, steps, size)
    here, top, most = np.empty((steps + 1, size)), np.empty((steps, size)), spare[:size]
    last, now = here[:-1], here[1:]
    for _ in range(count):
        wide[: steps + 1 + size] = _widen(out, left)
        wide[steps + 1 + size :] = out[-1]
        np.subtract(wide[:places], wide[steps : steps + places], out=bend)
        np.multiply(bend, grown, out=bend)
        np.subtract(wide[1 : 1 + places], wide[1 + steps : 1 + steps + places], out=spare)
        np.maximum(np.subtract(bend, spare, out=bend), 0.0, out=bend)
        np.add(bend, np.multiply(wide[:places], 1e-15 * grown, out=spare), out=bend)
        here[0] = out
        np.multiply(near, high, out=now)
        np.add(now, np.multiply(far, low, out=top), out=now)
        np.maximum(last, now, out=top)
        np.add(top, np.multiply(bent, rise, out=now), out=top)
        np.maximum(out, np.maximum.reduce(top, axis=0, out=most), out=out)
        np.minimum(np.multiply(out, 1 + STEP_SLACK, out=out), 1.0, out=out)
    return out


def _shifted(values: Floats, steps: int, size: int) -> Floats:
    """Row j - 1: `size` values from place steps + 1 - j on, for j = 1..steps. A view: it shows what `values` holds."""
    stride = values.strides[0]
    return np.lib.stride_tricks.as_strided(values[steps:], (steps, size), (-stride, stride), writeable=False)


def pure(values: Floats, steps: int, step: float, count: int) -> Floats:
    """`count` randomized responses of e = steps * step, the worst of the e-DP releases."""
    size, out, yes, left = values.size, values, 1 / (1 + exp(-steps * step)), _left(steps, step)
    for _ in range(count):
        wide = np.concatenate((_widen(out, left), np.full(steps, out[-1])))
        out = yes * wide[:size] + exp(-steps * step) * yes * wide[2 * steps : 2 * steps + size]
        out = np.minimum(1.0, out * (1 + STEP_SLACK))
    return out
