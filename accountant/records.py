"""What the ledger speaks of: datasets, requests, jobs, and how each stands in an entry."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from accountant import canonical
from accountant.budget import Budget, Relation
from accountant.errors import BudgetRefused, LedgerInvalid
from accountant.events import Plan
from accountant.filter import Filter, price_to_json
from accountant.log import Entry
from accountant.prices import Claim, Price


class State(StrEnum):
    RESERVED = "reserved"
    STARTED = "started"
    COMMITTED = "committed"
    BURNED = "burned"
    RELEASED = "released"


@dataclass(frozen=True)
class Unit:
    """The unit of privacy: one record, or all records that share a value of `column`, of which `contributions` are
    used.
    """

    name: str = "record"
    column: str | None = None
    contributions: int = 1


@dataclass(frozen=True)
class Registration:
    """What a steward fixes for ever. `commitment`: HMAC over the packed rows, its key held by the accountant."""

    name: str
    relation: Relation
    budget: Budget
    unit: Unit
    records: int
    schema: str
    commitment: str


@dataclass(frozen=True)
class Dataset:
    """A registered dataset and where its budget stands. `used` includes `reserved`."""

    registration: Registration
    uuid: str
    family: str
    seq: int
    filter: Filter
    used: Price
    reserved: Price

    def summary(self) -> dict[str, Any]:
        """Total, reserved, spent and left, for people and programs. All of it public."""
        spent = self.used - self.reserved
        left = self.registration.budget.epsilon - self.filter.epsilon_of(self.used)
        return {
            "total": self.registration.budget.to_json(),
            "reserved": self._figure(self.reserved),
            "spent": self._figure(spent),
            "left": {"epsilon": canonical.decimal_string(left), "share": f"{1 - self.filter.share(self.used):.6f}"},
        }

    def _figure(self, used: Price) -> dict[str, Any]:
        epsilon = canonical.decimal_string(self.filter.epsilon_of(used))
        return {
            "epsilon": epsilon,
            "share": f"{self.filter.share(used):.6f}",
            **price_to_json(used, self.filter.orders),
        }


@dataclass(frozen=True)
class Request:
    """A job as it was asked for: what its digest and idempotency are about. `parameters` hold texts, integers,
    booleans, None.
    """

    dataset: str
    learner: str
    budget: Budget
    parameters: Mapping[str, str | int | bool | None]
    model: str

    def to_json(self) -> dict[str, Any]:
        own = {
            "dataset": self.dataset,
            "learner": self.learner,
            "parameters": dict(self.parameters),
            "model": self.model,
        }
        return {**own, **self.budget.to_json()}

    @property
    def digest(self) -> str:
        return hashlib.sha256(canonical.encode(self.to_json())).hexdigest()


@dataclass(frozen=True)
class Job:
    """A reservation and what became of it. `seq` is the index of its `reserved` entry: the job's number."""

    seq: int
    dataset: str
    state: State
    model: str
    issued: int | None
    queued: bool
    done: int
    total: int


@dataclass(frozen=True)
class Holding:
    """Who runs a job, and until when without a word the job is taken to be theirs."""

    seq: int
    state: State
    owner: str
    expires: float


@dataclass(frozen=True)
class Started:
    """The right to read rows for one job, once. Only `Ledger.start` makes it."""

    seq: int
    dataset: Dataset
    request: Request
    unit: Decimal
    plan: Plan


def refusal(
    dataset: Dataset, request: Request, cost: Price, would_fit: Mapping[str, Any] | None = None
) -> BudgetRefused:
    """The refusal: asked, spent, left, and what would fit. Every part of it is public."""
    summary = dataset.summary()
    asked = {**request.budget.to_json(), "price": price_to_json(cost, dataset.filter.orders)}
    fits = "nothing more fits" if would_fit is None else f"epsilon {would_fit['epsilon']} would fit"
    message = (
        f"dataset={request.dataset}: asked epsilon {request.budget.epsilon} at delta {request.budget.delta}; "
        f"of epsilon {dataset.registration.budget.epsilon}, {summary['spent']['epsilon']} is spent and "
        f"{summary['reserved']['epsilon']} reserved; {fits}"
    )
    return BudgetRefused(
        message, dataset=request.dataset, asked=asked, spent=summary["spent"], left=summary["left"],
        reserved=summary["reserved"], would_fit=would_fit,
    )  # fmt: skip


def registration_fields(registration: Registration, design: Filter, identity: str) -> dict[str, Any]:
    unit = registration.unit
    return {
        "dataset": registration.name,
        "uuid": identity,
        "family": identity,
        "relation": registration.relation.value,
        "budget": registration.budget.to_json(),
        "filter": design.to_json(),
        "unit": {"name": unit.name, "column": unit.column, "contributions": unit.contributions},
        "records": registration.records,
        "schema": registration.schema,
        "commitment": registration.commitment,
    }


def reservation_fields(
    request: Request, unit: Decimal, plan: Plan, claimed: Claim, cost: dict[str, Any], by: str, key: str | None
) -> dict[str, Any]:
    order = None if claimed.order is None else canonical.decimal_string(Decimal(repr(claimed.order)))
    return {
        **request.to_json(),
        "unit": canonical.decimal_string(unit),
        "plan": plan.to_json(),
        "price": cost,
        "claim": {
            "epsilon": canonical.decimal_string(claimed.epsilon),
            "delta": request.budget.to_json()["delta"],
            "bound": claimed.bound,
            "order": order,
        },
        "request": request.digest,
        "idempotency_key": key,
        "by": by,
    }


def request_from_entry(value: Mapping[str, Any]) -> Request:
    budget = Budget.of(value["epsilon"], value["delta"])
    return Request(value["dataset"], value["learner"], budget, value["parameters"], value["model"])


def dataset_from_entry(entry: Entry, used: Price | None = None, reserved: Price | None = None) -> Dataset:
    """A `dataset-registered` entry, read back. The stored filter must be the one that its budget designs."""
    value = entry.value
    budget = Budget.of(value["budget"]["epsilon"], value["budget"]["delta"])
    design = Filter.design(budget)
    if value["filter"] != design.to_json():
        raise LedgerInvalid(f"entry {entry.seq}: the stored filter is not the one that {budget} gives", entry=entry.seq)
    registration = Registration(
        value["dataset"],
        Relation(value["relation"]),
        budget,
        Unit(**value["unit"]),
        value["records"],
        value["schema"],
        value["commitment"],
    )
    nothing = design.nothing()
    return Dataset(
        registration, value["uuid"], value["family"], entry.seq, design, used or nothing, reserved or nothing
    )
