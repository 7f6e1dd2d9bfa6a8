"""Prices and claims from their definitions (PRIVACY section 2), for the auditor alone: shares no formula with
`accountant.privacy.events`, `selection`, `gdp` and `adaptive`.

Where the accountant has a closed form for the worst case, this searches for it; where it bounds the worst case between
two grid points, this solves for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, exp, expm1, inf, log, log1p, pi, sqrt
from typing import TYPE_CHECKING, assert_never

from accountant.privacy.events import BoundedRange, Event, Gaussian, PureDp, RepeatAndSelect
from accountant.privacy.selection import Poisson, TruncatedNegativeBinomial
from accountant.system.lazy_import import later

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
else:
    np = later("numpy")  # most commands judge nothing

Runs = Iterable[tuple[Event, int]]
SLACK = 1e-9  # floating point of looking where the worst case is
THIRDS = 48  # of a search: (2/3)^48 of an interval is beyond what a float tells at a maximum
CLOSER = 33  # orders between two neighbours, where a search looks closer


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


def renyi(event: Event, order: float) -> float:
    """The event's worst Renyi divergence at one order above 1."""
    return curve_at(event, (order,))[0]


@lru_cache(maxsize=65536)
def curve_at(event: Event, orders: tuple[float, ...]) -> tuple[float, ...]:
    """The event's worst Renyi divergence at each order above 1."""
    return tuple(map(float, curve(event, np.array(orders))))


def curve(event: Event, order: Floats) -> Floats:
    """The event's worst Renyi divergence at each order above 1, from its definition: for bounded range the worst case
    is searched for."""
    match event:
        case BoundedRange():
            e = float(event.epsilon)
            return np.minimum(order * e * e / 8, _searched(e, order))
        case PureDp():
            e = float(event.epsilon)
            return np.minimum(np.minimum(order * e * e / 2, e), _randomized_response(e, order))
        case Gaussian():
            return order / (2 * float(event.noise_multiplier) ** 2)
        case RepeatAndSelect():
            return np.array([_selection(event, each) for each in order.tolist()])
        case _:
            assert_never(event)


def _randomized_response(e: float, order: Floats) -> Floats:
    """Divergence of (p, 1 - p) from (1 - p, p), with p / (1 - p) = exp(e)."""
    p, q = -log1p(exp(-e)), -e - log1p(exp(-e))
    found: Floats = np.logaddexp(order * p + (1 - order) * q, order * q + (1 - order) * p) / (order - 1)
    return found


def _two_points(e: float, t: Floats, order: Floats) -> Floats:
    """Divergence of losses t and t - e with the probabilities that make both distributions sum to one."""
    p = np.clip(np.exp(-t) * np.expm1(t - e) / expm1(-e), 0, 1)
    with np.errstate(divide="ignore"):
        high, low = np.log(p) + order * t, np.log1p(-p) + order * (t - e)
    found: Floats = np.logaddexp(high, low) / (order - 1)
    return found


def _searched(e: float, order: Floats) -> Floats:
    """Maximum of `_two_points` over t in [0, e], where it rises and then falls, by thirds at all orders at once."""
    low, high = np.zeros(order.size), np.full(order.size, e)
    for _ in range(THIRDS):
        third = (high - low) / 3
        rises = _two_points(e, low + third, order) < _two_points(e, high - third, order)
        low, high = np.where(rises, low + third, low), np.where(rises, high, high - third)
    return _two_points(e, (low + high) / 2, order)


# ---- private selection: Papernot and Steinke 2022, as their theorems are stated --------------------------------------


def _pure_selection(event: RepeatAndSelect) -> Fraction | None:
    known = [(pure(each), count) for each, count in event.runs]
    if isinstance(event.distribution, Poisson) or any(epsilon is None for epsilon, _ in known):
        return None
    once = sum((count * epsilon for epsilon, count in known if epsilon is not None), Fraction(0))
    return once + (1 + Fraction(event.distribution.shape)) * once


@lru_cache(maxsize=1)
def _second() -> Floats:
    """Orders from 1.02 to 60,000."""
    return 1 + np.exp(np.arange(-160, 441) / 40)


@dataclass(frozen=True)
class _OneRun:
    """What one run of a selection costs: its Renyi curve, and its pure price or infinity."""

    runs: tuple[tuple[Event, int], ...]

    def at(self, orders: Floats) -> Floats:
        found: Floats = sum((count * curve(event, orders) for event, count in self.runs), np.zeros(orders.size))
        return found

    @cached_property
    def second(self) -> Floats:
        """The curve at the orders of `_second`."""
        return self.at(_second())

    @cached_property
    def pure(self) -> float:
        known = [(pure(event), count) for event, count in self.runs]
        return float(sum(inf if epsilon is None else count * float(epsilon) for epsilon, count in known))

    def failing(self, at: Floats) -> Floats:
        """For each epsilon of `at`, a delta for which one run is (epsilon, delta)-DP: by `to_epsilon` at the best order
        of `_second` and of those close to it."""
        second = _second()
        exponents = self._exponents(second, self.second, at[:, None])
        best = exponents.argmin(axis=1)
        least = exponents[np.arange(at.size), best]
        share = np.linspace(0, 1, CLOSER)
        low, high = second[np.maximum(best - 1, 0)], second[np.minimum(best + 1, second.size - 1)]
        for _ in range(2):
            orders = low[:, None] + share * (high - low)[:, None]
            closer = self._exponents(orders, self.at(orders.ravel()).reshape(orders.shape), at[:, None])
            best = closer.argmin(axis=1)
            least = np.minimum(least, closer.min(axis=1))
            rows = np.arange(at.size)
            low, high = orders[rows, np.maximum(best - 1, 0)], orders[rows, np.minimum(best + 1, CLOSER - 1)]
        return np.where(self.pure <= at, 0.0, np.exp(np.minimum(0, least)))

    @staticmethod
    def _exponents(orders: Floats, once: Floats, at: Floats) -> Floats:
        found: Floats = (orders - 1) * (once + np.log1p(-1 / orders) - at) - np.log(orders)
        return found


@lru_cache(maxsize=1024)
def _one_run(event: RepeatAndSelect) -> _OneRun:
    return _OneRun(event.runs)


def _selection(event: RepeatAndSelect, order: float) -> float:
    """The least figure of the theorem at `order` and at those above it, each of which bounds it, and the pure price."""
    orders, figures = _looked_at(event)
    here, above = _theorem(event)(np.array([order])), figures[orders >= order]
    known = pure(event)
    return float(np.min([*here, *above, inf if known is None else float(known)]))


@lru_cache(maxsize=1024)
def _looked_at(event: RepeatAndSelect) -> tuple[Floats, Floats]:
    """Orders where the theorem's figure may be least, and its figures there."""
    edge = 1 / -expm1(-_one_run(event).pure) * (1 - 1e-12)  # the last order at which a run fails with no delta
    second = _second()
    return _points(_theorem(event), np.sort(np.append(second, edge)) if edge > second[0] else second)


def _points(figure: Callable[[Floats], Floats], orders: Floats) -> tuple[Floats, Floats]:
    """`orders` and others between them, closer and closer to where `figure` is least, and the figures there."""
    looked = [(orders, figure(orders))]
    for best in np.argsort(looked[0][1], kind="stable")[:2].tolist():
        near = orders
        for _ in range(3):
            near = np.linspace(near[max(best - 1, 0)], near[min(best + 1, near.size - 1)], CLOSER)
            looked.append((near, figure(near)))
            best = int(looked[-1][1].argmin())
    return np.concatenate([each for each, _ in looked]), np.concatenate([each for _, each in looked])


@lru_cache(maxsize=1024)
def _theorem(event: RepeatAndSelect) -> Callable[[Floats], Floats]:
    """The curve of the selection at each order by itself: Theorem 6 (Poisson) or 2 (truncated negative binomial)."""
    law, run = event.distribution, _one_run(event)
    if not isinstance(law, Poisson):
        return _negative_binomial(run, law)
    mean = float(law.mean)
    return lambda orders: run.at(orders) + mean * run.failing(-np.log1p(-1 / orders)) + log(mean) / (orders - 1)


def _negative_binomial(run: _OneRun, law: TruncatedNegativeBinomial) -> Callable[[Floats], Floats]:
    """Theorem 2, at its best second order, 1 and infinity included."""
    shape, gamma = float(law.shape), float(law.gamma)
    lost = expm1(-shape * log(gamma))
    mean = (1 - gamma) / gamma * (shape * (1 + lost) / lost if shape else -1 / log(gamma))
    _, figures = _points(lambda orders: (1 - 1 / orders) * run.at(orders) - log(gamma) / orders, _second())
    second = min(-log(gamma), run.pure, float(figures.min()))
    return lambda orders: run.at(orders) + (1 + shape) * second + log(mean) / (orders - 1)


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
    place = min(epsilon / step, float(size))  # beyond, it only falls
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
