"""Plans of Gaussian releases alone, by Gaussian DP (Dong, Roth and Su 2022), and what the integer sampler costs on top.

The discrete Gaussian is NOT mu-GDP. But noise of sigma in grid units is, up to a factor of 1 +- 1e-33 for each number
drawn, the continuous Gaussian of variance sigma^2 - 4 followed by a random rounding (docs/privacy/prices.md). So a plan
of such releases is charged mu^2 = sum of 1 / (noise_multiplier^2 - 4 / sensitivity^2).
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import lru_cache
from math import erfc, exp, inf, nextafter, pi, sqrt

from dpserve_verify.privacy.events import Plan

SLACK = 1e-12  # covers 2^64 numbers drawn (8e-15) and floating point, relative in delta and absolute in epsilon
MAX_DIRECT = 5.0
WIDEST = 10**4  # of mu^2: beyond, epsilon is above 5000, and floating point above SLACK


def squared_mu(plan: Plan) -> Fraction | None:
    """Return mu^2 of the plan; None where a release has none: not Gaussian, or its noise too narrow for the grid."""
    total = Fraction(0)
    for release, count in plan.runs:
        squared = release.event.squared_mu(release.sensitivity)
        if squared is None:
            return None
        total += count * squared
    return total or None


@lru_cache(maxsize=4096)
def epsilon_of(plan: Plan, delta: Decimal) -> Decimal | None:
    """Find the least epsilon with delta(epsilon) <= delta, rounded up to 6 digits; None where it does not apply."""
    squared = squared_mu(plan)
    if squared is None or delta <= 0 or squared > WIDEST:
        return None
    mu, allowed = nextafter(sqrt(squared), inf) * (1 + 1e-15), float(delta) * (1 - SLACK)
    low, high = 0.0, 1.0
    while delta_of(mu, high) > allowed:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(mu, middle) > allowed else (low, middle)
    epsilon = 0.0 if delta_of(mu, 0.0) <= allowed else high
    return Decimal(epsilon + SLACK).quantize(Decimal("0.000001"), rounding=ROUND_CEILING)


def delta_of(mu: float, epsilon: float) -> float:
    """Compute Phi(-a) - e^epsilon Phi(-b), with a, b = epsilon / mu -+ mu / 2, never below the truth.

    e^epsilon phi(b) = phi(a), so the second term is phi(a) times Mills' ratio at b: nothing overflows.
    """
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    density = exp(-a * a / 2) / sqrt(2 * pi)
    first = density * mills(a, upper=True) if a > MAX_DIRECT else erfc(a / sqrt(2)) / 2 * (1 + 1e-14)
    return max(0.0, first - density * mills(b, upper=False))


def mills(x: float, upper: bool) -> float:
    """Return a bound of Phi(-x) / phi(x), x >= 0, from above or below: far out by Laplace's continued fraction, whose
    convergents lie on either side in turn.
    """
    sign = 1 if upper else -1
    if x <= MAX_DIRECT:
        return erfc(x / sqrt(2)) / 2 * exp(x * x / 2) * sqrt(2 * pi) * (1 + sign * 1e-13)
    depth = 120 if upper else 121
    fraction = x
    for k in range(depth, 0, -1):
        fraction = x + k / fraction
    return (1 + sign * 1e-14) / fraction
