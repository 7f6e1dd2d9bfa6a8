"""The largest single job that a filter would still admit: what "one more job of at most epsilon X" says.

Docs: docs/budgets.md. Public figures alone. X is exact for jobs of Gaussian releases, whose claim and Renyi price are
two functions of one mu; a lower bound, rounded down, so that asking for X is asking for what fits.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal
from functools import lru_cache
from math import sqrt

from accountant.budget import MAX_EPSILON, NANO, from_nano, nano
from accountant.privacy.claims import Price
from accountant.privacy.events import PureDp
from accountant.privacy.filter import Filter
from accountant.privacy.gdp import SLACK, delta_of

MOST_RELEASES = 10_000  # of the job: each may cost two nano-units more than its law, for rounding
ROUNDING = 2 * MOST_RELEASES
THOUSANDTHS, MILLIONTHS = Decimal("0.001"), Decimal("0.000001")


def one_job(design: Filter, used: Price, delta: Decimal) -> Decimal:
    """The largest epsilon at `delta` of one more job of at most MOST_RELEASES Gaussian releases, 0 where there is none.

    Where `delta` is 0, or only the pure sum has room, of one more job that is pure. Rounded down to thousandths, below
    .1 to millionths.
    """
    pairs = zip(design.criteria, used.rdp, strict=True)
    nanos = [(float(line.order), line.cap - figure - ROUNDING) for line, figure in pairs]
    rooms = [(order, room / NANO) for order, room in nanos if room > 0]
    if delta > 0 and rooms:
        largest = _gaussian(max(sqrt(2 * room / order) for order, room in rooms), delta)
    else:
        summed = Decimal(0) if used.unbounded else from_nano(max(0, nano(design.budget.epsilon) - used.pure))
        largest = max([summed, *(_pure(order, room) for order, room in rooms)])
    return largest.quantize(THOUSANDTHS if largest >= Decimal("0.1") else MILLIONTHS, rounding=ROUND_FLOOR)


@lru_cache(maxsize=4096)
def _gaussian(mu: float, delta: Decimal) -> Decimal:
    """The claim of mu-GDP at `delta`, from below."""
    return _least(lambda epsilon: delta_of(mu, epsilon) <= float(delta))


@lru_cache(maxsize=4096)
def _pure(order: float, room: float) -> Decimal:
    """Pure releases of this epsilon together are at most one of it, and that has at most `room` at `order`."""
    return _least(lambda epsilon: PureDp(from_nano(max(1, int(epsilon * NANO)))).rdp(order) > room)


def _least(holds: Callable[[float], bool]) -> Decimal:
    """Just below where `holds` begins to, between 0 and the largest epsilon that a job may ask for."""
    low, high = 0.0, float(MAX_EPSILON)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return max(Decimal(0), Decimal(low) - Decimal(2 * SLACK))
