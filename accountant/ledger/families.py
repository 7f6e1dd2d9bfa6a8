"""Families: people who share one budget, whatever tables hold their rows.

A family is founded with a dataset and its total. Refreshed, filtered or joined copies are further datasets of it; rows
joined from several families belong to all of them, and are charged to each. A family's total may be changed by a
reasoned entry; what was spent never becomes unspent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from accountant.budget import Budget, Relation
from accountant.canonical import decimal_string
from accountant.errors import BudgetRefused, LedgerInvalid, UnknownName
from accountant.ledger.records import Registration, Request, Unit
from accountant.log.entries import dumps, read_entry
from accountant.privacy.claims import Price, price
from accountant.privacy.events import Plan
from accountant.privacy.filter import Filter, price_from_json, price_to_json
from accountant.store.store import body_at
from accountant.store.tables import analyst_table, dataset_table, family_table

EVERYBODY = "*"

# Built once: building a statement costs more than running it. A parameter that is a column's name is a value to set.
_DATASET = select(dataset_table).where(dataset_table.c.name == bindparam("at"))
_VERSION = (
    select(func.count())
    .select_from(dataset_table)
    .where(dataset_table.c.seq <= bindparam("upto"), dataset_table.c.families.contains(bindparam("family")))
)
_FAMILY = select(family_table).where(family_table.c.id == bindparam("at"))
_ACCOUNT = update(family_table).where(family_table.c.id == bindparam("at"))
_ANALYSTS = select(analyst_table).where(analyst_table.c.family == bindparam("at")).order_by(analyst_table.c.name)
_NAMED = _ANALYSTS.where(analyst_table.c.name.in_(bindparam("names", expanding=True)))
_PUT_ANALYST = update(analyst_table).where(
    analyst_table.c.family == bindparam("at"), analyst_table.c.name == bindparam("who")
)


@dataclass(frozen=True)
class Quota:
    """An analyst's own part of a family's budget: the family's filter, scaled, and what the analyst has used of it."""

    analyst: str
    share: Decimal
    filter: Filter
    used: Price


@dataclass(frozen=True)
class Family:
    """Who shares a budget, and where it stands. `used` includes `reserved`; `quota` is that of the analyst who asks."""

    identity: str
    seq: int
    relation: Relation
    unit: Unit
    filter: Filter
    used: Price
    reserved: Price
    quota: Quota | None = None

    @property
    def budget(self) -> Budget:
        """The total in force."""
        return self.filter.budget

    @property
    def share(self) -> float:
        return self.filter.share(self.used)

    def admits(self, cost: Price) -> bool:
        return self.filter.admits(self.used, cost) and not self.over_quota(cost)

    def fullness(self, cost: Price) -> float:
        """How full it would be with a job of this price, the analyst's quota too: above 1 where it does not fit. A
        gauge, for a search; `admits` decides."""
        total = self.filter.fullness(self.used + cost)
        return total if self.quota is None else max(total, self.quota.filter.fullness(self.quota.used + cost))

    def over_quota(self, cost: Price) -> bool:
        return self.quota is not None and not self.quota.filter.admits(self.quota.used, cost)

    def jobs_left(self, cost: Price) -> int:
        left = self.filter.jobs_left(self.used, cost)
        return left if self.quota is None else min(left, self.quota.filter.jobs_left(self.quota.used, cost))

    def with_job(self, cost: Price) -> Family:
        """As it would stand with one more job of this price."""
        quota = self.quota and replace(self.quota, used=self.quota.used + cost)
        return replace(self, used=self.used + cost, quota=quota)

    def summary(self) -> dict[str, Any]:
        """Total, reserved, spent and left, for people and programs. All of it public."""
        left = max(Decimal(0), self.budget.epsilon - self.filter.epsilon_of(self.used))
        return {
            "total": self.budget.to_json(),
            "reserved": self._figure(self.reserved),
            "spent": self._figure(self.used - self.reserved),
            "left": {"epsilon": decimal_string(left), "share": f"{1 - self.share:.6f}"},
        }

    def _figure(self, used: Price) -> dict[str, Any]:
        epsilon, share = decimal_string(self.filter.epsilon_of(used)), f"{self.filter.share(used):.6f}"
        return {"epsilon": epsilon, "share": share, **price_to_json(used, self.filter.orders)}


@dataclass(frozen=True)
class Dataset:
    """A registered dataset and the families its rows belong to. `version`: the how-manieth of its first family."""

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
        return self.tightest.budget

    @property
    def filter(self) -> Filter:
        return self.tightest.filter

    @property
    def used(self) -> Price:
        return self.tightest.used

    @property
    def reserved(self) -> Price:
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

    def costs_from_json(self, body: dict[str, Any]) -> tuple[Price, ...]:
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
        pairs = zip(self.families, costs, strict=True)
        return replace(self, families=tuple(family.with_job(cost) for family, cost in pairs))

    def summary(self) -> dict[str, Any]:
        return self.tightest.summary()


def load(connection: Connection, name: str, analyst: str | None = None) -> Dataset:
    """A dataset as it stands; with `analyst`, under that analyst's quotas. UnknownName where there is none."""
    row = connection.execute(_DATASET, {"at": name}).first()
    if row is None:
        raise UnknownName(f"dataset={name}: no such dataset", dataset=name)
    entry = read_entry(row.seq, body_at(connection, row.seq)).value
    identities = json.loads(row.families)
    found = tuple(load_family(connection, identity, analyst, {row.seq: entry}) for identity in identities)
    registration = Registration(
        entry["dataset"],
        Relation(entry["relation"]),
        _budget(entry) if "budget" in entry else None,
        Unit(**entry["unit"]),
        entry["records"],
        entry["schema"],
        entry["commitment"],
        () if "budget" in entry else tuple(identities),
    )
    return Dataset(registration, entry["uuid"], row.seq, _version(connection, row.seq, identities[0]), found)


def _version(connection: Connection, seq: int, family: str) -> int:
    return int(connection.execute(_VERSION, {"upto": seq, "family": family}).scalar_one())


def load_family(
    connection: Connection, identity: str, analyst: str | None = None, read: Mapping[int, dict[str, Any]] | None = None
) -> Family:
    """A family as it stands. The stored filter must be the one that its budget gives. `read`: entries at hand."""
    row = connection.execute(_FAMILY, {"at": identity}).first()
    if row is None:
        raise UnknownName(f"family={identity}: no such family", family=identity)
    founding = (read or {}).get(row.seq) or read_entry(row.seq, body_at(connection, row.seq)).value
    design = Filter.design(_budget(founding))
    stored = founding
    if row.changed is not None:
        stored = read_entry(row.changed, body_at(connection, row.changed)).value
        design = design.with_total(_budget(stored).epsilon)
    if stored["filter"] != design.to_json():
        at = row.seq if row.changed is None else row.changed
        raise LedgerInvalid(f"entry {at}: the stored filter is not the one that its budget gives", entry=at)
    used, reserved = (price_from_json(json.loads(text), design.orders) for text in (row.used, row.reserved))
    unit, relation = Unit(**founding["unit"]), Relation(founding["relation"])
    quota = None if analyst is None else _quota(connection, identity, analyst, design)
    return Family(identity, row.seq, relation, unit, design, used, reserved, quota)


def _budget(entry: dict[str, Any]) -> Budget:
    return Budget.of(entry["budget"]["epsilon"], entry["budget"]["delta"])


def _quota(connection: Connection, family: str, analyst: str, design: Filter) -> Quota | None:
    """The analyst's own quota, else everybody's; None where neither was set."""
    rows = {row.name: row for row in _analysts(connection, family, (analyst, EVERYBODY))}
    shares = [rows[name].share for name in (analyst, EVERYBODY) if name in rows and rows[name].share is not None]
    if not shares:
        return None
    used = price_from_json(json.loads(rows[analyst].used), design.orders) if analyst in rows else design.nothing()
    return Quota(analyst, Decimal(shares[0]), design.part(Decimal(shares[0])), used)


def _analysts(connection: Connection, family: str, names: Iterable[str] | None = None) -> list[Any]:
    if names is None:
        return list(connection.execute(_ANALYSTS, {"at": family}))
    return list(connection.execute(_NAMED, {"at": family, "names": list(names)}))


def quotas(connection: Connection, family: Family) -> list[dict[str, Any]]:
    """What each analyst used of the family's budget, as a share of it, and the quota that holds for each."""
    rows = _analysts(connection, family.identity)
    general = next((row.share for row in rows if row.name == EVERYBODY), None)
    found = []
    for row in rows:
        used = price_from_json(json.loads(row.used), family.filter.orders)
        quota = row.share if row.share is not None else general
        found.append({"analyst": row.name, "quota": quota, "used": f"{family.filter.share(used):.6f}"})
    return found


def found_family(connection: Connection, identity: str, seq: int, design: Filter) -> None:
    nothing = price_text(design.nothing(), design)
    values = {"id": identity, "seq": seq, "changed": None, "used": nothing, "reserved": nothing}
    connection.execute(insert(family_table).values(**values))


def account(connection: Connection, family: Family, used: Price, reserved: Price) -> None:
    """Put a family's sums at `used`, of which `reserved` has not started."""
    texts = {"used": price_text(used, family.filter), "reserved": price_text(reserved, family.filter)}
    connection.execute(_ACCOUNT, {"at": family.identity, **texts})


def charge_analyst(connection: Connection, family: Family, analyst: str, cost: Price, sign: int = 1) -> None:
    """Add `cost` to what the analyst used of the family's budget, or take it back."""
    rows = _analysts(connection, family.identity, (analyst,))
    design = family.filter
    before = price_from_json(json.loads(rows[0].used), design.orders) if rows else design.nothing()
    put_analyst(connection, family, analyst, before + cost if sign > 0 else before - cost)


def put_analyst(
    connection: Connection, family: Family, analyst: str, used: Price | None = None, share: str | None = None
) -> None:
    """Write an analyst's row; what is None keeps its value."""
    design = family.filter
    changes = {"used": used and price_text(used, design), "share": share}
    values = {name: value for name, value in changes.items() if value is not None}
    if not connection.execute(_PUT_ANALYST, {"at": family.identity, "who": analyst, **values}).rowcount:
        fresh = {"share": None, "used": price_text(design.nothing(), design), **values}
        connection.execute(insert(analyst_table).values(family=family.identity, name=analyst, **fresh))


def price_text(figure: Price, design: Filter) -> str:
    return dumps(price_to_json(figure, design.orders))


@dataclass(frozen=True)
class Started:
    """The right to read rows for one job, once. Only `Ledger.start` makes it."""

    seq: int
    dataset: Dataset
    request: Request
    unit: Decimal
    plan: Plan


def refusal(
    dataset: Dataset, request: Request, plan: Plan, would_fit: Mapping[str, Any] | None = None
) -> BudgetRefused:
    """The refusal: asked, spent, left, and what would fit. Every part of it is public."""
    family = dataset.refusing(dataset.costs(plan)) or dataset.tightest
    summary, cost = family.summary(), price(plan, family.filter.orders)
    by_quota = family.filter.admits(family.used, cost)
    asked = {**request.budget.to_json(), "price": price_to_json(cost, family.filter.orders)}
    fits = "nothing more fits" if would_fit is None else f"epsilon {would_fit['epsilon']} would fit"
    quota = family.quota if by_quota else None
    why = "" if quota is None else f"{quota.analyst} may use {quota.share} of it; "
    message = (
        f"dataset={request.dataset}: asked epsilon {request.budget.epsilon} at delta {request.budget.delta}; "
        f"of epsilon {family.budget.epsilon}, {summary['spent']['epsilon']} is spent and "
        f"{summary['reserved']['epsilon']} reserved; {why}{fits}"
    )
    return BudgetRefused(
        message, dataset=request.dataset, asked=asked, spent=summary["spent"], left=summary["left"],
        reserved=summary["reserved"], reason="quota" if by_quota else "budget", would_fit=would_fit,
    )  # fmt: skip
