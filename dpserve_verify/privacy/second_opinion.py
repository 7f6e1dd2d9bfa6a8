"""Prices and claims from their definitions (PRIVACY section 2), for the auditor alone: shares no formula with
`dpserve_verify.privacy.events`, `selection`, `gdp` and `adaptive`.

Where the accountant has a closed form for the worst case, this searches for it; where it bounds the worst case between
two grid points, this solves for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from math import cos, exp, expm1, fsum, inf, log, log1p, pi, sqrt
from typing import TypeAlias, assert_never

from dpserve_verify.privacy.events import BoundedRange, Event, Gaussian, PureDp, RepeatAndSelect
from dpserve_verify.privacy.selection import Poisson, TruncatedNegativeBinomial

Figure: TypeAlias = Callable[[float], float]
GOLDEN = (sqrt(5) - 1) / 2
LOOKS = 42  # of a search: GOLDEN^42 of an interval is beyond what a float shows at a maximum
SECOND = tuple(1 + exp(place / 40) for place in range(-160, 441))  # orders from 1.02 to 60,000
CLOSER = 33  # orders between two neighbours, where a search looks closer


def to_epsilon(order: float, rdp: float, delta: float) -> float:
    """Convert a Renyi price to epsilon at `delta` (PRIVACY section 2, "Convert")."""
    return rdp + log(1 - 1 / order) - (log(delta) + log(order)) / (order - 1)


def pure(event: Event) -> Fraction | None:
    """Return the event's pure epsilon, exactly; None for infinity."""
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
    """Return the event's worst Renyi divergence at one order above 1, from its definition: for bounded range the worst
    case is searched for.
    """
    match event:
        case BoundedRange():
            e = float(event.epsilon)
            return min(order * e * e / 8, _search_maximum(e, order))
        case PureDp():
            e = float(event.epsilon)
            return min(order * e * e / 2, e, _randomized_response(e, order))
        case Gaussian():
            return order / (2 * float(event.noise_multiplier) ** 2)
        case RepeatAndSelect():
            return _selection(event, order)
        case _:
            assert_never(event)


def curve_at(event: Event, orders: Iterable[float]) -> tuple[float, ...]:
    """Return the event's worst Renyi divergence at each order above 1."""
    return tuple(renyi(event, order) for order in orders)


def _log_of_sum(first: float, second: float) -> float:
    """Return log(exp(one) + exp(other))."""
    top = max(first, second)
    return top + log1p(exp(min(first, second) - top)) if top > -inf else top


def _randomized_response(e: float, order: float) -> float:
    """Compute the divergence of (p, 1 - p) from (1 - p, p), with p / (1 - p) = exp(e)."""
    p, q = -log1p(exp(-e)), -e - log1p(exp(-e))
    return _log_of_sum(order * p + (1 - order) * q, order * q + (1 - order) * p) / (order - 1)


def _two_points(e: float, t: float, order: float) -> float:
    """Compute the divergence of losses t and t - e with the probabilities that make both distributions sum to one."""
    p = min(max(exp(-t) * expm1(t - e) / expm1(-e), 0.0), 1.0)
    high = log(p) + order * t if p > 0 else -inf
    low = log1p(-p) + order * (t - e) if p < 1 else -inf
    return _log_of_sum(high, low) / (order - 1)


def _search_maximum(e: float, order: float) -> float:
    """Search the maximum of `_two_points` over t in [0, e], where it rises and then falls, by the golden section."""
    low, high = 0.0, e
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = _two_points(e, left, order), _two_points(e, right, order)
    for _ in range(LOOKS):
        if at_left < at_right:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = _two_points(e, right, order)
        else:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = _two_points(e, left, order)
    return _two_points(e, (low + high) / 2, order)


# ---- private selection: Papernot and Steinke 2022, as their theorems are stated --------------------------------------


def _pure_selection(event: RepeatAndSelect) -> Fraction | None:
    prices = [(pure(each), count) for each, count in event.runs]
    if isinstance(event.distribution, Poisson) or any(epsilon is None for epsilon, _ in prices):
        return None
    once = sum((count * epsilon for epsilon, count in prices if epsilon is not None), Fraction(0))
    return once + (1 + Fraction(event.distribution.shape)) * once


@dataclass(frozen=True)
class _OneRun:
    """What one run of a selection costs: its Renyi curve, and its pure price or infinity."""

    runs: tuple[tuple[Event, int], ...]

    def at(self, order: float) -> float:
        return sum(count * renyi(event, order) for event, count in self.runs)

    @cached_property
    def second(self) -> list[float]:
        """Evaluate the curve at the orders of SECOND."""
        return [self.at(order) for order in SECOND]

    @cached_property
    def pure(self) -> float:
        prices = [(pure(event), count) for event, count in self.runs]
        return float(sum(inf if epsilon is None else count * float(epsilon) for epsilon, count in prices))

    def failing(self, epsilon: float) -> float:
        """Return a delta for which one run is (epsilon, delta)-DP: by `to_epsilon` at the best order of SECOND and of
        those close to it. The exponent is convex in the order, so that its least value is found by halving.
        """
        if self.pure <= epsilon:
            return 0.0
        low, high = 0, len(SECOND) - 1
        while low < high:
            middle = (low + high) // 2
            if self._exponent(middle, epsilon) <= self._exponent(middle + 1, epsilon):
                high = middle
            else:
                low = middle + 1
        least = self._exponent(low, epsilon)
        ends = SECOND[max(low - 1, 0)], SECOND[min(low + 1, len(SECOND) - 1)]
        return exp(min(0.0, least, _least(lambda order: _exponent(order, self.at(order), epsilon), *ends)))

    def _exponent(self, place: int, epsilon: float) -> float:
        return _exponent(SECOND[place], self.second[place], epsilon)


def _exponent(order: float, once: float, epsilon: float) -> float:
    """Return log(delta) of one run at an order where it costs `once`."""
    return (order - 1) * (once + log1p(-1 / order) - epsilon) - log(order)


def _least(figure: Figure, low: float, high: float) -> float:
    """Return the least value of a convex figure, where a search by the golden section ends after a few looks."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = figure(left), figure(right)
    for _ in range(LOOKS // 3):
        if at_left > at_right:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = figure(right)
        else:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = figure(left)
    return min(at_left, at_right)


@lru_cache(maxsize=1024)
def _one_run(event: RepeatAndSelect) -> _OneRun:
    return _OneRun(event.runs)


def _selection(event: RepeatAndSelect, order: float) -> float:
    """Return the least figure of the theorem at `order` and at those above it, each of which bounds it, and the pure
    price.
    """
    orders, figures = _looked_at(event)
    pure_price = pure(event)
    bounds = [_theorem(event)(order), inf if pure_price is None else float(pure_price)]
    return min(bounds + [figure for looked, figure in zip(orders, figures, strict=True) if looked >= order])


@lru_cache(maxsize=1024)
def _looked_at(event: RepeatAndSelect) -> tuple[list[float], list[float]]:
    """Return the orders where the theorem's figure may be least, and its figures there."""
    price = _one_run(event).pure
    edge = 1 / -expm1(-price) * (1 - 1e-12)  # the last order at which a run fails with no delta
    orders = list(SECOND)
    if edge > orders[0]:
        orders.insert(bisect_left(orders, edge), edge)
    return _points(_theorem(event), orders)


def _points(figure: Figure, orders: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return `orders` and others between them, closer and closer to where `figure` is least, and the figures there."""
    looked, figures = list(orders), [figure(order) for order in orders]
    for best in sorted(range(len(orders)), key=figures.__getitem__)[:2]:
        closer = list(orders)
        for _ in range(3):
            low, high = closer[max(best - 1, 0)], closer[min(best + 1, len(closer) - 1)]
            closer = [low + (high - low) * place / (CLOSER - 1) for place in range(CLOSER)]
            values = [figure(order) for order in closer]
            best = values.index(min(values))
            looked += closer
            figures += values
    return looked, figures


@lru_cache(maxsize=1024)
def _theorem(event: RepeatAndSelect) -> Figure:
    """Return the curve of the selection at each order by itself: Theorem 6 (Poisson) or 2 (truncated negative
    binomial).
    """
    law, run = event.distribution, _one_run(event)
    if not isinstance(law, Poisson):
        return _negative_binomial(run, law)
    mean = float(law.mean)
    return lambda order: run.at(order) + mean * run.failing(-log1p(-1 / order)) + log(mean) / (order - 1)


def _negative_binomial(run: _OneRun, law: TruncatedNegativeBinomial) -> Figure:
    """Apply Theorem 2 at its best second order, 1 and infinity included."""
    shape, gamma = float(law.shape), float(law.gamma)
    lost = expm1(-shape * log(gamma))
    mean = (1 - gamma) / gamma * (shape * (1 + lost) / lost if shape else -1 / log(gamma))
    _, figures = _points(lambda order: (1 - 1 / order) * run.at(order) - log(gamma) / order, SECOND)
    second = min(-log(gamma), run.pure, *figures)
    return lambda order: run.at(order) + (1 + shape) * second + log(mean) / (order - 1)


# ---- (epsilon, delta) of a whole plan --------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _legendre(degree: int = 40) -> tuple[tuple[float, float], ...]:
    """Compute nodes in (-1, 1), weights of Gauss-Legendre quadrature, by Newton's method from the usual first guess."""
    found = []
    for number in range(degree):
        x, slope = cos(pi * (number + 0.75) / (degree + 0.5)), 1.0
        for _ in range(8):
            before, here = 1.0, x
            for n in range(2, degree + 1):
                before, here = here, ((2 * n - 1) * x * here - (n - 1) * before) / n
            slope = degree * (x * here - before) / (x * x - 1)
            x -= here / slope
        found.append((x, 2 / ((1 - x * x) * slope * slope)))
    return tuple(found)


def gaussian_delta(squared_mu: float, epsilon: float) -> float:
    """Return delta at `epsilon` of a Gaussian whose means lie mu apart: the integral over s > 0 of phi(a + s) (1 -
    e^(-mu s)), a = epsilon / mu - mu / 2, by Gauss and Legendre.
    """
    mu = sqrt(squared_mu)
    a = epsilon / mu - mu / 2
    first, last = max(0.0, -a - 12), max(0.0, -a) + 14
    half = (last - first) / 128
    parts = []
    for panel in range(64):
        middle = first + (2 * panel + 1) * half
        for node, weight in _legendre():
            s = middle + half * node
            parts.append(weight * half * exp(-((a + s) ** 2) / 2) * -expm1(-mu * s))
    return fsum(parts) / sqrt(2 * pi)


def discrete_gaussian_mu(noise_multiplier: Decimal, sensitivity: int) -> Fraction:
    """Return mu^2 of one release on the integers: two grid units of its sigma go to the rounding. Infinite:
    ZeroDivisionError, or below 0, where nothing is left.
    """
    sigma = Fraction(noise_multiplier) * sensitivity
    return Fraction(sensitivity**2) / (sigma**2 - 4)
