"""The dataset's privacy filter: the admission rule of PRIVACY section 3, whose proof stands in docs/privacy/filter.md.

Fixed at registration and public. A job is admitted when its price, added to all that was ever reserved and not
released, keeps the pure sum within epsilon, or keeps SOME Renyi order within its cap. Each order's cap converts to
(epsilon, weight * delta); the weights sum to 1, so "some order" costs no more than delta in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from math import floor
from operator import add
from typing import Any

from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import NANO, Budget, from_nano, nano, nano_string, parse_nano
from dpserve_verify.privacy.renyi import epsilon_at

WEIGHTS: tuple[Decimal, ...] = (Decimal("0.90"), Decimal("0.05"), Decimal("0.05"))
FACTORS = (1, 2, 4)
PARTS = 10**12  # a weight that is scaled is rounded down to so many parts of delta


def round_up(value: float | Decimal, digits: int = 6) -> Decimal:
    """Return `value` rounded up to `digits` decimals."""
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
        if len(self.rdp) != len(other.rdp):
            raise ValueError(f"rdp: {len(self.rdp)} orders and {len(other.rdp)} do not add up")
        return Price(self.pure + other.pure, self.unbounded + other.unbounded, tuple(map(add, self.rdp, other.rdp)))

    def __sub__(self, other: Price) -> Price:
        rdp = tuple(a - b for a, b in zip(self.rdp, other.rdp, strict=True))
        return Price(self.pure - other.pure, self.unbounded - other.unbounded, rdp)


def _cap(order: float, budget: Budget, weight: Decimal) -> float:
    """Compute the largest Renyi figure at `order` that still converts to (epsilon, weight * delta)."""
    return float(budget.epsilon) - epsilon_at(order, 0.0, float(budget.delta * weight))


@dataclass(frozen=True)
class Criterion:
    """One Renyi order of the filter, its share of delta, and its cap in nano-units."""

    order: Decimal
    weight: Decimal
    cap: int


@dataclass(frozen=True)
class Filter:
    """Caps are rounded down, and one nano-unit less for the last digits of floating point. Without delta: pure sums
    alone.
    """

    budget: Budget
    criteria: tuple[Criterion, ...]

    @classmethod
    def design(cls, budget: Budget) -> Filter:
        """Return the filter of a budget: a0 maximises cap / order on a grid of 0.1; orders {a0, 2 a0, 4 a0} get .90,
        .05, .05 of delta, less what the budget sets apart of it; caps <= 0 are dropped.
        """
        return cls(budget, _criteria(budget))

    def with_total(self, epsilon: Decimal) -> Filter:
        """Return the filter for another total at the same delta, orders and weights, so that what was added up still
        counts.

        A cap that is not above 0 admits nothing and is stored as 0.
        """
        budget = replace(self.budget, epsilon=epsilon)
        lines = [(line, _cap(float(line.order), budget, line.weight)) for line in self.criteria]
        criteria = tuple(replace(line, cap=max(0, floor(cap * NANO) - 1)) for line, cap in lines)
        return Filter(budget, criteria)

    def part(self, share: Decimal) -> Filter:
        """Return every cap times `share` (above 0, at most 1), rounded down: a quota inside the budget."""
        scaled = tuple(replace(line, cap=floor(line.cap * Fraction(share))) for line in self.criteria)
        pure = from_nano(max(1, floor(nano(self.budget.epsilon) * Fraction(share))))
        return Filter(Budget(pure, self.budget.delta), scaled)

    @cached_property
    def orders(self) -> tuple[Decimal, ...]:
        """Return the Renyi orders that it adds up."""
        return tuple(criterion.order for criterion in self.criteria)

    @cached_property
    def _total(self) -> int:
        return nano(self.budget.epsilon)

    def nothing(self) -> Price:
        """Return the price of no job at all."""
        return Price(0, 0, (0,) * len(self.criteria))

    def admits(self, used: Price, job: Price) -> bool:
        """Return whether a job fits in. `used`: the sum over entries RESERVED, STARTED, COMMITTED, BURNED."""
        total = used + job
        if not total.unbounded and total.pure <= self._total:
            return True
        return any(figure <= criterion.cap for figure, criterion in zip(total.rdp, self.criteria, strict=True))

    def share(self, used: Price) -> float:
        """Return how much of the criterion that lasts longest is used up, in 0..1. A gauge, not a guarantee."""
        shares = [figure / line.cap for figure, line in zip(used.rdp, self.criteria, strict=True) if line.cap]
        if not used.unbounded:
            shares.append(used.pure / nano(self.budget.epsilon))
        return min([1.0, *shares])

    def epsilon_of(self, used: Price) -> Decimal:
        """Return `used` converted at the filter's own delta, rounded up to 6 digits: what was spent so far. At most the
        total of what this filter admits; above it where the total was lowered. Infinity without any bound.

        A gauge as well: the promise to the people in the data is the total, whatever was spent of it.
        """
        if used == self.nothing():
            return Decimal(0)
        bounds = [self.budget.epsilon] if self.admits(self.nothing(), used) else [Decimal("Infinity")]
        if not used.unbounded:
            bounds.append(round_up(from_nano(used.pure)))
        for figure, criterion in zip(used.rdp, self.criteria, strict=True):
            delta = float(self.budget.delta * criterion.weight)
            bounds.append(round_up(max(0.0, epsilon_at(float(criterion.order), figure / NANO, delta))))
        return min(bounds)

    def jobs_left(self, used: Price, job: Price) -> int:
        """Return how many jobs of this price would still be admitted, one after the other."""
        if job == self.nothing():
            raise InputError("plan: costs nothing, so any number of such jobs is left")
        counts = [
            (criterion.cap - figure) // cost
            for figure, cost, criterion in zip(used.rdp, job.rdp, self.criteria, strict=True)
        ]
        if job.pure and not used.unbounded and not job.unbounded:
            counts.append((nano(self.budget.epsilon) - used.pure) // job.pure)
        return max([0, *counts])

    def to_json(self) -> list[dict[str, str]]:
        """Return the stored form: order, weight and cap of each criterion, decimals as texts."""
        return [
            {
                "order": decimal_string(criterion.order),
                "weight": decimal_string(criterion.weight),
                "cap": nano_string(criterion.cap),
            }
            for criterion in self.criteria
        ]


@lru_cache(maxsize=1024)
def _criteria(budget: Budget) -> tuple[Criterion, ...]:
    if budget.delta == 0:
        return ()
    epsilon, delta = float(budget.epsilon), float(budget.delta)
    tenths = max(range(11, 20001), key=lambda each: (epsilon - epsilon_at(each / 10, 0.0, delta)) / (each / 10))
    best = Decimal(tenths) / 10
    weights = WEIGHTS
    if budget.outside:
        left = Fraction(budget.delta - budget.outside) / Fraction(budget.delta)
        weights = tuple(Decimal(floor(Fraction(weight) * left * PARTS)) / PARTS for weight in WEIGHTS)
    criteria = [
        Criterion(best * factor, weight, floor(_cap(float(best * factor), budget, weight) * NANO) - 1)
        for factor, weight in zip(FACTORS, weights, strict=True)
        if weight
    ]
    return tuple(criterion for criterion in criteria if criterion.cap > 0)


@lru_cache(maxsize=256)
def _order_texts(orders: tuple[Decimal, ...]) -> tuple[str, ...]:
    """Return orders as texts, from a cache: the same few orders are spelled eight times for each admission."""
    return tuple(map(decimal_string, orders))


def price_to_json(price: Price, orders: tuple[Decimal, ...]) -> dict[str, Any]:
    """Spell a price at `orders` as it is stored: exact decimals as texts. LedgerInvalid where a figure is below zero:
    no more can be given back, or begin, than was charged.
    """
    if min(price.pure, price.unbounded, *price.rdp) < 0:
        raise LedgerInvalid("sums: would fall below zero; nothing was written (dpserve ledger audit)")
    rdp = {order: nano_string(figure) for order, figure in zip(_order_texts(orders), price.rdp, strict=True)}
    return {"pure": nano_string(price.pure), "unbounded": price.unbounded, "rdp": rdp}


def price_from_json(body: Mapping[str, Any], orders: tuple[Decimal, ...]) -> Price:
    """Read what `price_to_json` wrote, of those of its orders that are asked for. KeyError where one is missing."""
    rdp = tuple(parse_nano(body["rdp"][order]) for order in _order_texts(orders))
    return Price(parse_nano(body["pure"]), body["unbounded"], rdp)
