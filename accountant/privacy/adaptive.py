"""The certified bound for a whole plan: what the best adaptive adversary reaches against releases of bounded range and
of pure DP, by value iteration (docs/privacy/prices.md). An upper bound: every rounding goes up.

V(x) is the largest delta at epsilon = x. It is known at the multiples of one step, from 0 to a public end; to the left
it follows by symmetry, to the right it only falls. In e^x it is convex, so chords lie above it.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from math import exp, expm1, log1p, tanh

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.privacy.board import Board, Events, board_of
from dpserve_verify.privacy.renyi import compose_grid, epsilon_at

Floats = NDArray[np.float64]
Left = tuple[Floats, Floats, NDArray[np.intp]]

SLACK = 1e-9  # floating point of reading the result: relative in delta, absolute in epsilon
STEP_SLACK = 1e-14  # floating point of one release: relative


@lru_cache(maxsize=4096)
def epsilon_of(events: Events, delta: Decimal) -> Decimal | None:
    """Compute the smallest epsilon at `delta`, rounded up to 6 digits, for releases made in this order, chosen
    adaptively. None where a release has no pure price, or the bound is too dear to compute."""
    board = board_of(events, float(delta)) if delta > 0 else None
    if board is None:
        return None
    values, allowed = play(board), float(delta) * (1 - SLACK)
    if values[-1] > allowed:
        return None
    first = int(np.argmax(values <= allowed))
    if first == 0:
        return Decimal(0)
    share = (values[first - 1] - allowed) / (values[first - 1] - values[first])
    epsilon = (first - 1) * board.step + log1p(share * expm1(board.step))
    return Decimal(epsilon + SLACK).quantize(Decimal("0.000001"), rounding=ROUND_CEILING)


def delta_of(events: Events, epsilon: float) -> float:
    """Return an upper bound of delta at `epsilon` >= 0; 1.0 where this bound does not apply."""
    # delta at `epsilon` from Renyi DP: the inverse of `epsilon_at`
    exponents = ((order - 1) * (epsilon_at(order, rdp, 1.0) - epsilon) for order, rdp in compose_grid(events))
    board = board_of(events, max(1e-300, exp(min(0.0, *exponents))))
    if board is None:
        return 1.0
    values, place = play(board), min(epsilon / board.step, board.size - 1.0)
    share = expm1((place - int(place)) * board.step) / expm1(board.step)
    return float((values[int(place)] * (1 - share) + values[int(place) + 1] * share) * (1 + SLACK))


def play(board: Board) -> Floats:
    """Compute V after every release, at 0, step, .., size * step."""
    values = np.zeros(board.size + 1)
    for is_bounded, steps, count in board.moves:
        values = (bounded_range if is_bounded else pure)(values, steps, board.step, count)
    return values


def _shift_left(steps: int, step: float) -> Left:
    """Compute 1 - e^-x, e^-x and the place of V(x) for each V(-x), at x = steps h .. h."""
    places = np.arange(steps, 0, -1)
    more, share = ([each(-i * step) for i in places.tolist()] for each in (expm1, exp))
    return -np.array(more), np.array(share), places


def _widen(values: Floats, left: Left) -> Floats:
    """Extend values at 0.. to -steps..: V(-x) = 1 - e^-x + e^-x V(x) to the left, the last value to the right."""
    more, share, places = left
    return np.concatenate((more + share * values.take(places, mode="clip"), values))


def bounded_range(values: Floats, steps: int, step: float, count: int) -> Floats:
    """Play `count` releases whose losses lie in [t - e, t], e = steps * step, at the worst t each time.

    Between two grid points t the worst exceeds both ends by at most `rise` times `bend` (the proof's c2). Every t is a
    row of the same values, shifted: all of them are asked at once, in buffers that are made once.
    """
    size, out, whole, grown = values.size, values.copy(), expm1(steps * step), exp(step)
    moves, places, left = range(1, steps + 1), size + steps + 1, _shift_left(steps + 1, step)
    high = np.array([exp(j * step) * expm1((steps - j) * step) / whole for j in moves])[:, np.newaxis]
    low = np.array([expm1(j * step) / whole for j in moves])[:, np.newaxis]
    rise = np.array([exp((j - 1) * step) * tanh(step / 4) / whole for j in moves])[:, np.newaxis]
    # bend[i] = e^h (V(x - h) - V(x - h + e)) - (V(x) - V(x + e)) at x = (i - steps) h, rounded up; not below 0
    wide, bend, spare = np.empty(places + 2 * steps + 2), np.empty(places), np.empty(places)
    near, far, bent = _shift(wide, steps, size), _shift(wide[steps:], steps, size), _shift(bend, steps, size)
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


def _shift(values: Floats, steps: int, size: int) -> Floats:
    """Present `values` in rows, uncopied: for j = 1..steps, row j - 1 has `size` of them from place steps + 1 - j."""
    stride = values.strides[0]
    return np.lib.stride_tricks.as_strided(values[steps:], (steps, size), (-stride, stride), writeable=False)


def pure(values: Floats, steps: int, step: float, count: int) -> Floats:
    """Play `count` randomized responses of e = steps * step, the worst of the e-DP releases."""
    size, out, yes, left = values.size, values, 1 / (1 + exp(-steps * step)), _shift_left(steps, step)
    for _ in range(count):
        wide = np.concatenate((_widen(out, left), np.full(steps, out[-1])))
        out = yes * wide[:size] + exp(-steps * step) * yes * wide[2 * steps : 2 * steps + size]
        out = np.minimum(1.0, out * (1 + STEP_SLACK))
    return out
