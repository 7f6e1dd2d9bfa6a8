"""Prices from their definitions (PRIVACY section 2), for the auditor alone: shares no formula with `accountant.events`.

Where the accountant has a closed form for the worst case, this searches for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import exp, expm1, inf, log, log1p

from accountant.events import Event, Gaussian, PureDp


def to_epsilon(order: float, rdp: float, delta: float) -> float:
    """PRIVACY section 2, "Convert"."""
    return rdp + log(1 - 1 / order) - (log(delta) + log(order)) / (order - 1)


@lru_cache(maxsize=65536)
def renyi(event: Event, order: float) -> float:
    """The event's worst Renyi divergence, from its definition: for bounded range the worst case is searched for."""
    if isinstance(event, Gaussian):
        return order / (2 * float(event.noise_multiplier) ** 2)
    e = float(event.epsilon)
    if isinstance(event, PureDp):
        return min(order * e * e / 2, e, _randomized_response(e, order))
    return min(order * e * e / 8, _searched(lambda t: _two_points(e, t, order), e))


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
