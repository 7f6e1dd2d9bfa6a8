"""A single job that a filter would surely admit: what "one more job of at most epsilon X" says.

Docs: docs/budgets.md; proof: docs/privacy/filter.md. Public figures alone. A claim alone does not tell what a job costs
beside others: few large selections cost more than many small releases of the same claim. So what is told is told of the
jobs of which it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

from accountant.privacy.gdp import SLACK, delta_of
from dpserve_verify.privacy.budget import MAX_EPSILON, NANO, from_nano, nano
from dpserve_verify.privacy.events import PureDp
from dpserve_verify.privacy.filter import Filter, Price

MAX_RELEASES = 10_000  # of the job: each may cost two nano-units more than its law, for rounding
ROUNDING = 2 * MAX_RELEASES
THOUSANDTHS, MILLIONTHS = Decimal("0.001"), Decimal("0.000001")


class Room(NamedTuple):
    """Epsilons of single jobs that fit: of Gaussian releases alone, at the delta that was asked; of any, at delta 0."""

    gaussian: Decimal
    pure: Decimal


@dataclass(frozen=True)
class OneJob:
    """Every job of at most `epsilon` at `delta` is admitted; where it says `gaussian`, every job of Gaussian releases
    alone, whatever their number up to MOST_RELEASES. `epsilon` 0: none is.
    """

    epsilon: Decimal
    delta: Decimal
    gaussian: bool = False


def one_job(rooms: Iterable[Room], delta: Decimal) -> OneJob:
    """Return the largest job that fits into all of these: by Gaussian noise at `delta`; where that has no room, at
    delta 0.
    """
    gaussian, pure = (min(figures) for figures in zip(*rooms, strict=True))
    return OneJob(gaussian, delta, gaussian=True) if gaussian else OneJob(pure, Decimal(0))


def room(design: Filter, used: Price, delta: Decimal) -> Room:
    """Return the largest jobs that fit in what is left, each at most MOST_RELEASES releases; 0 where none does. Rounded
    down to thousandths, below .1 to millionths.
    """
    pairs = zip(design.criteria, used.rdp, strict=True)
    nanos = [(float(line.order), line.cap - figure - ROUNDING) for line, figure in pairs]
    rooms = [(order, remaining / NANO) for order, remaining in nanos if remaining > 0]
    gaussian = Decimal(0)
    if delta > 0 and rooms:
        gaussian = _gaussian(max(sqrt(2 * remaining / order) for order, remaining in rooms), delta)
    summed = Decimal(0) if used.unbounded else from_nano(max(0, nano(design.budget.epsilon) - used.pure))
    return Room(
        _round_down(gaussian), _round_down(max([summed, *(_pure(order, remaining) for order, remaining in rooms)]))
    )


def _round_down(epsilon: Decimal) -> Decimal:
    return epsilon.quantize(THOUSANDTHS if epsilon >= Decimal("0.1") else MILLIONTHS, rounding=ROUND_FLOOR)


@lru_cache(maxsize=4096)
def _gaussian(mu: float, delta: Decimal) -> Decimal:
    """Return the claim of mu-GDP at `delta`, from below."""
    return _least(lambda epsilon: delta_of(mu, epsilon) <= float(delta))


@lru_cache(maxsize=4096)
def _pure(order: float, room: float) -> Decimal:
    """Search the largest pure epsilon with at most `room` at `order`: several releases that sum to it cost no more."""
    return _least(lambda epsilon: PureDp(from_nano(max(1, int(epsilon * NANO)))).rdp(order) > room)


def _least(holds: Callable[[float], bool]) -> Decimal:
    """Search between 0 and the largest epsilon that a job may ask for; return just below where `holds` begins to."""
    low, high = 0.0, float(MAX_EPSILON)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return max(Decimal(0), Decimal(low) - Decimal(2 * SLACK))
