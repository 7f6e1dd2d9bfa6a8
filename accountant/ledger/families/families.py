"""Families: people who share one budget, whatever tables hold their rows.

A family is founded with a dataset and its total. Refreshed, filtered or joined copies are further datasets of it; rows
joined from several families belong to all of them, and are charged to each. A family's total may be changed by a
reasoned entry; what was spent never becomes unspent.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from accountant.ledger.families.records import SHARED, Registration, Request, Unit
from accountant.ledger.families.windows import Block, Window
from accountant.privacy.claims import Claim, price
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.filter import Filter, Price, price_from_json
from dpserve_verify.privacy.made_from import Source

EVERYBODY = "*"
REPORT = "one-of-k"  # what alone may be asked of owners, or, where shares are: the one noisy sum


@dataclass(frozen=True)
class Quota:
    """An analyst's own part of a family's budget: the family's filter, scaled, and what the analyst has used of it."""

    analyst: str
    share: Decimal
    filter: Filter
    used: Price


@dataclass(frozen=True)
class Spent:
    """What an analyst has used of a family's budget. `known`: whether they have a row that says so."""

    analyst: str
    used: Price
    known: bool = True


@dataclass(frozen=True)
class TotalClaim:
    """The job that took a family's whole total and closed it, and the epsilon that it claims. `job` None: only
    planned.
    """

    job: int | None
    epsilon: Decimal


@dataclass(frozen=True)
class Family:
    """People who share one budget, and its balance.

    Attributes:
        identity: uuid of the family.
        seq: the entry that founded it, or this account of it.
        filter: the admission rule of its total.
        used: what was charged, `reserved` included.
        reserved: the part of `used` of jobs that have not started.
        quota: that of the analyst who asks.
        name: given at founding, else that of the dataset that founded it.
        before: the largest total epsilon that was in force before this one.
        whole: the job that took the whole total and closed it.
        holdout: the share of its units that are kept aside.
        part: HOLDOUT where this is their account, which has the same total as that of the others.
        changed: the entry that gave the total, if it was changed.
        spent: what the analyst who asks has used.
        block: the block whose account it is, of a dataset that grows.
        person: whether it is the account of one person over all blocks, with a total of its own.
    """

    identity: str
    seq: int
    relation: Relation
    unit: Unit
    filter: Filter
    used: Price
    reserved: Price
    quota: Quota | None = None
    name: str = ""
    before: Decimal = Decimal(0)
    whole: TotalClaim | None = None
    holdout: Decimal | None = None
    part: str | None = None
    changed: int | None = None
    spent: Spent | None = None
    block: int | None = None
    person: bool = False

    @property
    def account(self) -> str:
        """Return the name of its sums: the family's identity, or that of its holdout's or a block's account."""
        return account_of(self.identity, self.part, self.block, self.person)

    @property
    def budget(self) -> Budget:
        """Return the total in force."""
        return self.filter.budget

    @property
    def largest(self) -> Decimal:
        """Return the largest total epsilon that was ever in force: what is promised to the people in the data."""
        return max(self.before, self.budget.epsilon)

    @property
    def share(self) -> float:
        """Return how much of the budget is used up, in 0..1. A gauge; `admits` decides."""
        return self.share_of(self.used)

    def share_of(self, used: Price) -> float:
        """Return the share of the budget that `used` takes, in 0..1: 1 where one job took the whole total."""
        if self.whole is not None:
            return float(used != self.filter.nothing())
        return self.filter.share(used)

    def epsilon_of(self, used: Price) -> Decimal:
        """Convert `used` into an epsilon at the family's delta: above the total where that was lowered; the claim of
        the job that took the whole total, if one did.
        """
        if self.whole is not None and used != self.filter.nothing():
            return self.whole.epsilon
        return self.filter.epsilon_of(used)

    def admits(self, cost: Price) -> bool:
        """Return whether a job of this price fits into what is left of the budget and of the analyst's quota.
        `can_close` may admit what this does not.
        """
        return self.whole is None and self.filter.admits(self.used, cost) and not self.over_quota(cost)

    @property
    def is_untouched(self) -> bool:
        """Return whether nothing was ever released or reserved, and the analyst may use the whole total."""
        return self.used == self.filter.nothing() and (self.quota is None or self.quota.share == 1)

    def can_close(self, claimed: Claim) -> bool:
        """Return whether a job with this claim may take the whole total and close the family."""
        fits = claimed.epsilon <= self.budget.epsilon and claimed.delta <= self.budget.delta
        return fits and self.is_untouched

    def may_start(self, cost: Price, claimed: Decimal) -> bool:
        """Return whether a reserved job of this price and claimed epsilon may start; False only where the total was
        lowered since it was reserved.
        """
        if self.whole is not None:
            return claimed <= self.budget.epsilon
        return self.filter.admits(self.used - self.reserved, cost)

    def over_quota(self, cost: Price) -> bool:
        """Return whether a job of this price exceeds the quota of the analyst who asks; False without one."""
        return self.quota is not None and not self.quota.filter.admits(self.quota.used, cost)

    def jobs_left(self, cost: Price) -> int:
        """Return how many more jobs of this price would be admitted. InputError where it costs nothing."""
        if self.whole is not None:
            return 0
        jobs = self.filter.jobs_left(self.used, cost)
        return jobs if self.quota is None else min(jobs, self.quota.filter.jobs_left(self.quota.used, cost))

    def with_job(self, cost: Price, whole: TotalClaim | None) -> Family:
        """Return the family with one more job of this price charged, which takes the `whole` total or not."""
        quota = self.quota and replace(self.quota, used=self.quota.used + cost)
        return replace(self, used=self.used + cost, quota=quota, whole=whole)


@lru_cache(maxsize=1 << 16)
def account_of(identity: str, part: str | None, block: int | None = None, person: bool = False) -> str:
    """Derive the name under which the sums of a family, a part of it, or a block of it are kept: from the family's
    identity, which is also the name for the first block. With `person`, it is that of one person over all blocks.
    """
    if person:
        identity = str(uuid.uuid5(uuid.UUID(identity), "person"))
    if block is not None and block > 1:
        identity = str(uuid.uuid5(uuid.UUID(identity), f"block-{block}"))
    return identity if part is None else str(uuid.uuid5(uuid.UUID(identity), part))


@dataclass(frozen=True)
class Dataset:
    """A registered dataset and the families its rows belong to, with the accounts of one part of them; behind them,
    that of one person over all blocks, where such a total was declared. `version`: its ordinal in the first family.
    `last`: of one that grew, how many blocks it has, `dropped` of which are deleted from disk; `blocks`: those whose
    accounts these are, and `window` where somebody named them; `made_from`: of a job's, what the job was made from.
    """

    registration: Registration
    uuid: str
    seq: int
    version: int
    families: tuple[Family, ...]
    last: int | None = None
    dropped: int = 0
    blocks: tuple[Block, ...] = ()
    window: Window | None = None
    made_from: tuple[Source, ...] = ()

    @property
    def records(self) -> int:
        """Return the public count of its rows, or guess at it: of its blocks together."""
        return sum(block.records for block in self.blocks) or self.registration.records

    @property
    def commitments(self) -> tuple[str, ...]:
        """Return the commitments of its rows, block by block."""
        return tuple(block.commitment for block in self.blocks) or (self.registration.commitment,)

    @property
    def identities(self) -> tuple[str, ...]:
        """Return its families' identities, each once."""
        return tuple(dict.fromkeys(family.identity for family in self.families))

    @property
    def own(self) -> tuple[Family, ...]:
        """Return its families, or the accounts of its blocks, without that of one person over all blocks."""
        return tuple(family for family in self.families if not family.person)

    @property
    def person(self) -> Family | None:
        """Return the account of one person over all blocks, where such a total was declared; else None."""
        return next((family for family in self.families if family.person), None)

    @property
    def most_used(self) -> Family:
        """Return the family or block whose budget is used up most: a certificate states it. What is left: `left`."""
        return max(self.own, key=lambda family: family.share)

    @property
    def holdout(self) -> Decimal | None:
        """Return the share of its units that are kept aside for evaluation; None where none are."""
        return self.families[0].holdout

    @property
    def family(self) -> str:
        """Return the identity of the first family."""
        return self.families[0].identity

    @property
    def budget(self) -> Budget:
        """Return the smallest total of its families: no job may ask for more epsilon."""
        return min((family.budget for family in self.own), key=lambda budget: budget.epsilon)

    @property
    def delta(self) -> Decimal:
        """Return the largest delta that a job on these rows may ask for."""
        return min(family.budget.delta for family in self.families)

    def check_delta(self, budget: Budget) -> None:
        """Raise InputError where no job on these rows may ask for this delta: above that of a total, or too large for
        so many rows.
        """
        budget.check_delta(self.records)
        if budget.delta > self.delta:
            raise InputError(f"delta={budget.delta}: dataset {self.registration.name} has {self.delta} in all")

    @property
    def orders(self) -> tuple[Decimal, ...]:
        """Return every Renyi order that one of the families adds up, in ascending order."""
        return tuple(sorted({order for family in self.families for order in family.filter.orders}))

    def costs(self, plan: Plan) -> tuple[Price, ...]:
        """Price the plan in each family's orders."""
        return self.costs_of(price(plan, self.orders))

    def price(self, plan: Plan) -> Price:
        """Price the plan at every order that one of the families adds up. InputError where it asks owners for anything
        but their reports, or rows for reports.
        """
        remote = self.registration.remote
        releases = [(release.mechanism, release.purpose, count) for release, count in plan.runs]
        if self.registration.shared:
            wrong = releases != [(*reversed(SHARED), 1)]
        elif self.registration.institutions is not None:
            wrong = any(mechanism != SHARED[1] for mechanism, _, _ in releases)
        else:
            wrong = any((mechanism == REPORT) != remote for mechanism, _, _ in releases)
        if wrong:
            problem = (
                "its rows stay with their owners; open a campaign to ask them" if remote else "reports are of owners"
            )
            raise InputError(f"dataset={self.registration.name}: {problem}")
        return price(plan, self.orders)

    def costs_of(self, cost: Price) -> tuple[Price, ...]:
        """Read a price at all of `orders` in each family's own."""
        rdp = dict(zip(self.orders, cost.rdp, strict=True))
        return tuple(
            Price(cost.pure, cost.unbounded, tuple(rdp[order] for order in family.filter.orders))
            for family in self.families
        )

    def costs_from_json(self, body: dict[str, Any]) -> tuple[Price, ...]:
        """Read the price that an entry states, in each family's orders."""
        prices = {
            orders: price_from_json(body, orders) for orders in {member.filter.orders for member in self.families}
        }
        return tuple(prices[family.filter.orders] for family in self.families)

    def refusing(self, costs: Sequence[Price]) -> Family | None:
        """Return the first family that does not admit a job of these prices; None where all do."""
        pairs = zip(self.families, costs, strict=True)
        return next((family for family, cost in pairs if not family.admits(cost)), None)

    def exceeds_lowered_total(self, costs: Sequence[Price], claimed: Decimal) -> Family | None:
        """Return the first family whose lowered total no longer lets a reserved job of these prices and this claimed
        epsilon start; None where all do.
        """
        pairs = zip(self.families, costs, strict=True)
        return next((family for family, cost in pairs if not family.may_start(cost, claimed)), None)

    @property
    def is_untouched(self) -> bool:
        """Return whether every family is untouched."""
        return all(family.is_untouched for family in self.own)

    def can_close(self, claimed: Claim, costs: Sequence[Price]) -> bool:
        """Return whether a job of this claim and these prices, which the filters do not admit, may take the whole total
        of every family, each untouched, and close them (docs/privacy/filter.md). The total for one person over all
        blocks is never taken whole: there the job must fit.
        """
        pairs = zip(self.families, costs, strict=True)
        return all(family.admits(cost) if family.person else family.can_close(claimed) for family, cost in pairs)

    def jobs_left(self, costs: Sequence[Price], claimed: Claim) -> int:
        """Return how many such jobs would still be admitted, one after the other."""
        jobs = min(family.jobs_left(cost) for family, cost in zip(self.families, costs, strict=True))
        return max(jobs, int(self.can_close(claimed, costs)))

    def with_job(self, costs: Sequence[Price], claimed: Claim) -> Dataset:
        """Return the dataset with one more job of these prices, one per family, and of this claim charged."""
        whole = TotalClaim(None, claimed.epsilon) if self.refusing(costs) else None
        pairs = zip(self.families, costs, strict=True)
        families = (family.with_job(cost, None if family.person else whole) for family, cost in pairs)
        return replace(self, families=tuple(families))


@dataclass(frozen=True)
class Started:
    """A job that has started: the right to read rows for it, once. Only `Ledger.start` makes it."""

    seq: int
    dataset: Dataset
    request: Request
    unit: Decimal
    plan: Plan
