"""Families: people who share one budget, whatever tables hold their rows.

A family is founded with a dataset and its total. Refreshed, filtered or joined copies are further datasets of it; rows
joined from several families belong to all of them, and are charged to each. A family's total may be changed by a
reasoned entry; what was spent never becomes unspent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from accountant.budget import Budget, Relation
from accountant.canonical import decimal_string
from accountant.ledger.left import left_to_json
from accountant.ledger.records import Registration, Unit
from accountant.privacy.claims import Price, price
from accountant.privacy.events import Plan
from accountant.privacy.filter import Filter, price_from_json, price_to_json
from accountant.privacy.one_job import one_job

EVERYBODY = "*"


@dataclass(frozen=True)
class Quota:
    """An analyst's own part of a family's budget: the family's filter, scaled, and what the analyst has used of it."""

    analyst: str
    share: Decimal
    filter: Filter
    used: Price


@dataclass(frozen=True)
class Family:
    """Who shares a budget, and where it stands. `used` includes `reserved`; `quota` is that of the analyst who asks.
    `name`: given at founding, else that of the dataset that founded it."""

    identity: str
    seq: int
    relation: Relation
    unit: Unit
    filter: Filter
    used: Price
    reserved: Price
    quota: Quota | None = None
    name: str = ""

    @property
    def budget(self) -> Budget:
        """The total in force."""
        return self.filter.budget

    @property
    def share(self) -> float:
        """How much of the budget is used up, in 0..1. A gauge; `admits` decides."""
        return self.filter.share(self.used)

    def admits(self, cost: Price) -> bool:
        """Whether a job of this price fits into the budget and the quota of the analyst who asks."""
        return self.filter.admits(self.used, cost) and not self.over_quota(cost)

    def fullness(self, cost: Price) -> float:
        """How full it would be with a job of this price, the analyst's quota too: above 1 where it does not fit. A
        gauge, for a search; `admits` decides."""
        total = self.filter.fullness(self.used + cost)
        return total if self.quota is None else max(total, self.quota.filter.fullness(self.quota.used + cost))

    def over_quota(self, cost: Price) -> bool:
        """Whether a job of this price exceeds the quota of the analyst who asks; False without one."""
        return self.quota is not None and not self.quota.filter.admits(self.quota.used, cost)

    def jobs_left(self, cost: Price) -> int:
        """How many jobs of this price would still be admitted. InputError where it costs nothing."""
        left = self.filter.jobs_left(self.used, cost)
        return left if self.quota is None else min(left, self.quota.filter.jobs_left(self.quota.used, cost))

    def with_job(self, cost: Price) -> Family:
        """As it would stand with one more job of this price."""
        quota = self.quota and replace(self.quota, used=self.quota.used + cost)
        return replace(self, used=self.used + cost, quota=quota)

    def one_job(self, delta: Decimal) -> Decimal:
        """The largest single job at `delta` that would be admitted now, by the quota of the analyst who asks as well:
        its epsilon, 0 where there is none (docs/budgets.md)."""
        largest = one_job(self.filter, self.used, delta)
        return largest if self.quota is None else min(largest, one_job(self.quota.filter, self.quota.used, delta))

    def summary(self, delta: Decimal | None = None) -> dict[str, Any]:
        """Total, reserved, spent and left, for people and programs. All of it public. `delta`: of the one more job
        that is told of; None: the family's."""
        at = self.budget.delta if delta is None else delta
        left = max(Decimal(0), self.budget.epsilon - self.filter.epsilon_of(self.used))
        return {
            "total": self.budget.to_json(),
            "reserved": self._figure(self.reserved),
            "spent": self._figure(self.used - self.reserved),
            "left": {"epsilon": decimal_string(left), **left_to_json(1 - self.share, self.one_job(at), at)},
        }

    def _figure(self, used: Price) -> dict[str, Any]:
        epsilon, share = decimal_string(self.filter.epsilon_of(used)), f"{self.filter.share(used):.6f}"
        return {"epsilon": epsilon, "share": share, **price_to_json(used, self.filter.orders)}


@dataclass(frozen=True)
class Dataset:
    """A registered dataset and the families its rows belong to. `version`: its ordinal in the first family."""

    registration: Registration
    uuid: str
    seq: int
    version: int
    families: tuple[Family, ...]

    @property
    def tightest(self) -> Family:
        """The family with the least left: what a job will feel first. The figures below are its."""
        return max(self.families, key=lambda family: family.share)

    @property
    def family(self) -> str:
        """The identity of the first family."""
        return self.families[0].identity

    @property
    def budget(self) -> Budget:
        """The total in force."""
        return self.tightest.budget

    @property
    def filter(self) -> Filter:
        """The admission rule."""
        return self.tightest.filter

    @property
    def used(self) -> Price:
        """All that was reserved and not given back."""
        return self.tightest.used

    @property
    def reserved(self) -> Price:
        """The part of `used` whose jobs have not started."""
        return self.tightest.reserved

    @property
    def delta(self) -> Decimal:
        """The largest delta that a job on these rows may ask for."""
        return min(family.budget.delta for family in self.families)

    @property
    def orders(self) -> tuple[Decimal, ...]:
        """Every Renyi order that one of the families adds up."""
        return tuple(sorted({order for family in self.families for order in family.filter.orders}))

    def costs(self, plan: Plan) -> tuple[Price, ...]:
        """The plan's price in each family's orders."""
        return tuple(price(plan, family.filter.orders) for family in self.families)

    def price_to_json(self, plan: Plan) -> dict[str, Any]:
        """The plan's price as its entry states it: at every order that one of the families adds up."""
        return price_to_json(price(plan, self.orders), self.orders)

    def costs_from_json(self, body: dict[str, Any]) -> tuple[Price, ...]:
        """The price that an entry states, in each family's orders: the inverse of `price_to_json`."""
        return tuple(price_from_json(body, family.filter.orders) for family in self.families)

    def refusing(self, costs: Sequence[Price]) -> Family | None:
        """The first family that does not admit a job of these prices."""
        pairs = zip(self.families, costs, strict=True)
        return next((family for family, cost in pairs if not family.admits(cost)), None)

    def fullness(self, costs: Sequence[Price]) -> float:
        """Of the fullest family, with a job of these prices."""
        return max(family.fullness(cost) for family, cost in zip(self.families, costs, strict=True))

    def jobs_left(self, costs: Sequence[Price]) -> int:
        """How many such jobs would still be admitted, one after the other."""
        return min(family.jobs_left(cost) for family, cost in zip(self.families, costs, strict=True))

    def with_job(self, costs: Sequence[Price]) -> Dataset:
        """As it would stand with one more job of these prices, one for each family."""
        pairs = zip(self.families, costs, strict=True)
        return replace(self, families=tuple(family.with_job(cost) for family, cost in pairs))

    def one_job(self, delta: Decimal) -> Decimal:
        """As of `Family`, in every family: a job on these rows is charged to each."""
        return min(family.one_job(delta) for family in self.families)

    def summary(self, delta: Decimal | None = None) -> dict[str, Any]:
        """Total, reserved, spent and left, as `Family.summary` of the tightest; the one more job fits into each."""
        at, tightest = self.delta if delta is None else delta, self.tightest
        summary = tightest.summary(at)
        return summary | {"left": summary["left"] | left_to_json(1 - tightest.share, self.one_job(at), at)}


def families_of(datasets: Iterable[Dataset]) -> list[tuple[Family, list[str]]]:
    """Every family with the names of its datasets, by its name: the rows that people see."""
    families: dict[str, Family] = {}
    members: dict[str, list[str]] = {}
    for dataset in datasets:
        for family in dataset.families:
            families[family.identity] = family
            members.setdefault(family.identity, []).append(dataset.registration.name)
    return [(family, members[family.identity]) for family in sorted(families.values(), key=lambda one: one.name)]
