"""Prices and claims from their definitions (PRIVACY section 2), for the auditor alone: shares no formula with
`accountant.privacy.events`, `selection`, `gdp` and `adaptive`.

Where the accountant has a closed form for the worst case, this searches for it; where it bounds the worst case between
two grid points, this solves for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, inf, log, log1p, pi, sqrt
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from accountant.privacy.events import BoundedRange, Event, Gaussian, PureDp, RepeatAndSelect
from accountant.privacy.selection import Poisson

Floats = NDArray[np.float64]
Runs = Iterable[tuple[Event, int]]
SLACK = 1e-9  # floating point of looking where the worst case is
SECOND = 1 + np.exp(np.arange(-160, 441) / 40)  # orders from 1.02 to 60,000, for private selection


def to_epsilon(order: float, rdp: float, delta: float) -> float:
    """PRIVACY section 2, "Convert"."""
    return rdp + log(1 - 1 / order) - (log(delta) + log(order)) / (order - 1)


def pure(event: Event) -> Fraction | None:
    """The event's pure epsilon, exactly; None for infinity."""
    match event:
        case BoundedRange() | PureDp():
            return Fraction(event.epsilon)
        case Gaussian():
            return None
        case RepeatAndSelect():
            return _pure_selection(event)
        case _:
            assert_never(event)


@lru_cache(maxsize=65536)
def renyi(event: Event, order: float) -> float:
    """The event's worst Renyi divergence, from its definition: for bounded range the worst case is searched for."""
    match event:
        case BoundedRange():
            e = float(event.epsilon)
            return min(order * e * e / 8, _searched(lambda t: _two_points(e, t, order), e))
        case PureDp():
            e = float(event.epsilon)
            return min(order * e * e / 2, e, _randomized_response(e, order))
        case Gaussian():
            return order / (2 * float(event.noise_multiplier) ** 2)
        case RepeatAndSelect():
            return _selection(event, order)
        case _:
            assert_never(event)


def _randomized_response(e: float, order: float) -> float:
    """Divergence of (p, 1 - p) from (1 - p, p), with p / (1 - p) = exp(e)."""
    p, q = -log1p(exp(-e)), -e - log1p(exp(-e))
    return _logsum(order * p + (1 - order) * q, order * q + (1 - order) * p) / (order - 1)


def _two_points(e: float, t: float, order: float) -> float:
    """Losses t and t - e with the probabilities that make both distributions sum to one."""
    p = exp(-t) * expm1(t - e) / expm1(-e)
    high, low = (log(p) + order * t if p > 0 else -inf), (log1p(-p) + order * (t - e) if p < 1 else -inf)
    return _logsum(high, low) / (order - 1)


def _searched(function: Callable[[float], float], end: float) -> float:
    """Maximum over [0, end] of a function that rises and then falls, by thirds."""
    low, high = 0.0, end
    for _ in range(90):
        third = (high - low) / 3
        low, high = (low + third, high) if function(low + third) < function(high - third) else (low, high - third)
    return function((low + high) / 2)


def _logsum(a: float, b: float) -> float:
    top = max(a, b)
    return top + log(exp(a - top) + exp(b - top))


# ---- private selection: Papernot and Steinke 2022, as their theorems are stated --------------------------------------


def _pure_selection(event: RepeatAndSelect) -> Fraction | None:
    known = [(pure(each), count) for each, count in event.runs]
    if isinstance(event.distribution, Poisson) or any(epsilon is None for epsilon, _ in known):
        return None
    once = sum((count * epsilon for epsilon, count in known if epsilon is not None), Fraction(0))
    return once + (1 + Fraction(event.distribution.shape)) * once


@lru_cache(maxsize=1024)
def _once(event: RepeatAndSelect) -> Floats:
    """The curve of one run at SECOND."""
    return np.array([sum(count * renyi(each, a) for each, count in event.runs) for a in SECOND.tolist()])


def _selection(event: RepeatAndSelect, order: float) -> float:
    """The least of the theorem's figures at `order` and at the orders above it, and of the pure price."""
    here = sum(count * renyi(each, order) for each, count in event.runs)
    orders, once = np.append(order, SECOND), np.append(here, _once(event))
    figures = once + _theorem(event, orders)
    known = pure(event)
    return min(float(figures[orders >= order].min()), inf if known is None else float(known))


def _theorem(event: RepeatAndSelect, orders: Floats) -> Floats:
    """What Theorem 6 (Poisson) or Theorem 2 (truncated negative binomial) adds to the curve of one run at `orders`."""
    law, once = event.distribution, _once(event)
    whole = sum(inf if (known := pure(each)) is None else count * float(known) for each, count in event.runs)
    if isinstance(law, Poisson):
        mean, at = float(law.mean), np.log(orders / (orders - 1))[:, None]
        failing = np.exp(
            np.minimum(0, (SECOND - 1) * (once + np.log(1 - 1 / SECOND) - at) - np.log(SECOND)).min(axis=1)
        )
        return mean * np.where(whole <= at[:, 0], 0, failing) + log(mean) / (orders - 1)
    shape, gamma = float(law.shape), float(law.gamma)
    lost = expm1(-shape * log(gamma))
    mean = (1 - gamma) / gamma * (shape * (1 + lost) / lost if shape else -1 / log(gamma))
    second = min(-log(gamma), whole, float(((1 - 1 / SECOND) * once - log(gamma) / SECOND).min()))
    return (1 + shape) * second + log(mean) / (orders - 1)


# ---- (epsilon, delta) of a whole plan --------------------------------------------------------------------------------


def gaussian_delta(squared_mu: float, epsilon: float) -> float:
    """delta at `epsilon` of a Gaussian whose means lie mu apart: the integral over s > 0 of phi(a + s) (1 - e^(-mu s)),
    a = epsilon / mu - mu / 2, by Gauss and Legendre."""
    mu = sqrt(squared_mu)
    a = epsilon / mu - mu / 2
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(max(0.0, -a - 12), max(0.0, -a) + 14, 65)
    half = (edges[1] - edges[0]) / 2
    s = (edges[:-1, None] + half * (nodes + 1)).ravel()
    return float(np.tile(weights * half, 64) @ (np.exp(-((a + s) ** 2) / 2) * -np.expm1(-mu * s)) / sqrt(2 * pi))


def discrete_gaussian_mu(noise_multiplier: Decimal, sensitivity: int) -> Fraction:
    """mu^2 of one release on the integers: two grid units of its sigma go to the rounding. Infinite: ZeroDivisionError,
    or below 0, where nothing is left."""
    sigma = Fraction(noise_multiplier) * sensitivity
    return Fraction(sensitivity**2) / (sigma**2 - 4)


def adaptive_delta(events: Runs, epsilon: float, step: float, size: int) -> float:
    """What the best adaptive adversary reaches at `epsilon`, from above: V(x) on a grid of `size` steps, the last
    release first. Any step and any size give a true bound."""
    value, reached = np.zeros(size + 1), 0
    for event, count in reversed(tuple(events)):
        exact = pure(event)
        cells = ceil((exact or Fraction(0)) / Fraction(step))
        for _ in range(count if cells else 0):
            reached = min(size, reached + cells)  # beyond, V is still 0
            if isinstance(event, BoundedRange):
                value[: reached + 1] = _worst_range(value[: reached + 1], cells, step)
            else:  # a coin
                line, e = _line(value, cells, step), cells * step
                value = (exp(e) * line[: value.size] + line[2 * cells :]) / (1 + exp(e))
    place = epsilon / step
    first = min(int(place), size - 1)
    share = expm1((place - first) * step) / expm1(step)
    return float(value[first] * (1 - share) + value[first + 1] * share)


def _line(value: Floats, cells: int, step: float) -> Floats:
    """V from -cells to size + cells: the two hypotheses change places on the left, V falls on the right."""
    x = step * np.arange(cells, 0, -1)
    right = np.append(value, np.full(cells, value[-1]))
    return np.concatenate([1 - np.exp(-x) * (1 - right[cells:0:-1]), right])


def _worst_range(value: Floats, cells: int, step: float) -> Floats:
    """One release with losses in [t - e, t], the worst t at every x, solved for within each step of t.

    With q = e^(jh - t) in [r, 1], r = e^-h, both outcomes spread to the grid points about them. That gives
    f(q) = next + (q - r) / (1 - r) (slope + bend (1 - q) / q), largest at q^2 = r bend / (bend - slope), or at an end:
    at few x for each step, since there the slope is within bend (1 - r) / r.
    """
    line, e, r = _line(value, cells + 1, step), cells * step, exp(-step)

    def at(j: int) -> Floats:
        return line[cells + 1 + j : cells + 1 + j + value.size]

    best, here, gap, looked = value.copy(), value, value - at(cells), []
    for j in range(cells):
        steep, near = exp(j * step) / expm1(e), at(-j - 1)
        gap_next = near - at(cells - j - 1)
        following = near - expm1((j + 1) * step) / expm1(e) * gap_next
        slope, bend = here - following, gap_next / r - gap
        np.maximum(best, following, out=best)
        (inside,) = np.nonzero(np.abs(slope) < (1 + SLACK) * steep * (1 - r) / r * bend)
        looked.append((inside, following[inside], slope[inside], steep * bend[inside]))
        here, gap = following, gap_next
    inside, following, slope, bend = (np.concatenate(each) for each in zip(*looked, strict=True))
    q = np.maximum(np.sqrt(r * bend / np.maximum(bend - slope, r * bend)), r)
    np.maximum.at(best, inside, following + (q - r) / (1 - r) * (slope + bend * (1 - q) / q))
    return best
