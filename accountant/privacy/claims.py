"""From a plan to its price and its claim.

Two prices for every job (PRIVACY section 2): the pure sum, and Renyi at fixed orders (`dpserve_verify.privacy.renyi`).
A claim (epsilon, delta) speaks of one plan, fixed beforehand, so it may also come from tighter bounds that do not
add up: `accountant.privacy.gdp` and `accountant.privacy.adaptive`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from accountant.privacy import gdp
from dpserve_verify.privacy.budget import from_nano
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.filter import Price, round_up
from dpserve_verify.privacy.renyi import compose_grid, compose_pure, compose_rdp, epsilon_at

PURE, RENYI, GAUSSIAN, ADAPTIVE = "pure", "renyi", "gaussian", "adaptive"
BOUNDS = (PURE, RENYI, GAUSSIAN, ADAPTIVE)
CHEAP_BOUNDS = (PURE, RENYI, GAUSSIAN)


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta) of a plan and the `bound` it comes from, one of BOUNDS. `order` is that of a Renyi bound;
    epsilon is rounded up to 6 digits.
    """

    epsilon: Decimal
    delta: Decimal
    order: float | None
    bound: str

    @property
    def exact_order(self) -> Decimal | None:
        """Return the order as entries state it."""
        return None if self.order is None else Decimal(repr(self.order))


@lru_cache(maxsize=4096)
def claim(plan: Plan, delta: Decimal, bounds: tuple[str, ...] = BOUNDS) -> Claim:
    """Return the smallest epsilon that one of `bounds` gives for the plan at `delta`; of equal ones, the first of
    BOUNDS.

    Infinity where the plan has no pure price and delta is 0.
    """
    claims = [_CLAIMS[bound](plan, delta) for bound in BOUNDS if bound in bounds]
    return min((candidate for candidate in claims if candidate), key=lambda each: each.epsilon)


def _pure_claim(plan: Plan, delta: Decimal) -> Claim:
    pure = compose_pure(plan.events)
    return Claim(Decimal("Infinity") if pure is None else round_up(from_nano(pure)), delta, None, PURE)


def _renyi_claim(plan: Plan, delta: Decimal) -> Claim | None:
    if not delta > 0:
        return None
    epsilons = [(epsilon_at(order, rdp, float(delta)), order) for order, rdp in compose_grid(plan.events)]
    least = round_up(min(epsilons)[0])
    if least < 0:  # of the orders that give less than nothing, the last
        return Claim(Decimal(0), delta, [order for epsilon, order in epsilons if round_up(epsilon) < 0][-1], RENYI)
    return Claim(least, delta, next(order for epsilon, order in epsilons if round_up(epsilon) == least), RENYI)


def _gaussian_claim(plan: Plan, delta: Decimal) -> Claim | None:
    epsilon = gdp.epsilon_of(plan, delta)
    return None if epsilon is None else Claim(epsilon, delta, None, GAUSSIAN)


def _adaptive_claim(plan: Plan, delta: Decimal) -> Claim | None:
    from accountant.privacy import adaptive  # loads numpy

    epsilon = adaptive.epsilon_of(plan.events, delta)
    return None if epsilon is None else Claim(epsilon, delta, None, ADAPTIVE)


_CLAIMS = {PURE: _pure_claim, RENYI: _renyi_claim, GAUSSIAN: _gaussian_claim, ADAPTIVE: _adaptive_claim}


def price(plan: Plan, orders: Iterable[Decimal]) -> Price:
    """Return the plan's price at these Renyi orders, each above 1."""
    pure = compose_pure(plan.events)
    return Price(pure or 0, int(pure is None), tuple(compose_rdp(plan.events, float(order)) for order in orders))
