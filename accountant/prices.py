"""From a plan to its price: composition and conversion. Integers in nano-units; prices round up.

Two prices for every job (PRIVACY section 2): the pure sum, and Renyi at fixed orders. Both add up over adaptive and
concurrent releases, which is what makes them valid filters; a claim (epsilon, delta) is derived from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from math import ceil, log, log1p

from accountant.budget import NANO, from_nano, nano
from accountant.events import Event, Plan

Events = Sequence[tuple[Event, int]]
GRID: tuple[float, ...] = (
    *(1 + j / 10 for j in range(1, 90)),
    *(10 + j / 2 for j in range(109)),
    *(64 * 1.08**j for j in range(1, 55)),
)


@lru_cache(maxsize=65536)
def rdp_nano(event: Event, order: float) -> int:
    """The event's Renyi price at `order`, rounded up, with one nano-unit for the last digits of floating point."""
    return ceil(event.rdp(order) * NANO) + 1


def compose_rdp(events: Events, order: float) -> int:
    """Renyi price of the whole sequence at one order: a plain sum, whatever the order of play."""
    return sum(count * rdp_nano(event, order) for event, count in events)


def compose_pure(events: Events) -> int | None:
    """Sum of the pure prices in nano-units, or None where one of them is infinite."""
    total = 0
    for event, count in events:
        if event.pure is None:
            return None
        total += count * nano(event.pure)
    return total


def epsilon_at(order: float, rdp: float, delta: float) -> float:
    """(epsilon, delta)-DP from Renyi DP at one order: Canonne, Kamath and Steinke 2020, Proposition 12."""
    return rdp + log1p(-1 / order) - (log(delta) + log(order)) / (order - 1)


PURE, RENYI = "pure", "renyi"
BOUNDS = (PURE, RENYI)


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta) of a plan and the `bound` it comes from, one of BOUNDS. `order` is that of a Renyi bound;
    epsilon is rounded up to 6 digits.
    """

    epsilon: Decimal
    delta: Decimal
    order: float | None
    bound: str


def claim(plan: Plan, delta: Decimal) -> Claim:
    """The smallest epsilon that the pure sum or one Renyi order gives for the plan at `delta`."""
    pure = compose_pure(plan.events)
    best, order = (Decimal("Infinity") if pure is None else round_up(from_nano(pure))), None
    for a in GRID if delta > 0 else ():
        epsilon = round_up(epsilon_at(a, compose_rdp(plan.events, a) / NANO, float(delta)))
        if epsilon < best:
            best, order = max(epsilon, Decimal(0)), a
    return Claim(best, delta, order, PURE if order is None else RENYI)


def round_up(value: float | Decimal, digits: int = 6) -> Decimal:
    return Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING)


@dataclass(frozen=True)
class Price:
    """What admission adds up: the pure sum, how many jobs have no pure price at all, and one Renyi figure per order
    of the filter.
    """

    pure: int
    unbounded: int
    rdp: tuple[int, ...]

    def __add__(self, other: Price) -> Price:
        rdp = tuple(a + b for a, b in zip(self.rdp, other.rdp, strict=True))
        return Price(self.pure + other.pure, self.unbounded + other.unbounded, rdp)

    def __sub__(self, other: Price) -> Price:
        rdp = tuple(a - b for a, b in zip(self.rdp, other.rdp, strict=True))
        return Price(self.pure - other.pure, self.unbounded - other.unbounded, rdp)


def price(plan: Plan, orders: Iterable[Decimal]) -> Price:
    pure = compose_pure(plan.events)
    return Price(pure or 0, int(pure is None), tuple(compose_rdp(plan.events, float(order)) for order in orders))
