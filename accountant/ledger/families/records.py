"""What the ledger speaks of: datasets, requests, jobs, and how each stands in an entry."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from accountant.ledger.families.job_kinds import TRAINING, JobKind, kind_of
from accountant.ledger.families.row_queries import RowQuery
from accountant.ledger.families.schema_profiles import SchemaProfile
from accountant.ledger.families.windows import Window
from accountant.privacy.claims import Claim
from dpserve_verify.errors import InputError
from dpserve_verify.formats import canonical
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.weights import Weight, parts_of, relation_fault

MAX_CONTRIBUTIONS = 10_000
LONGEST_REASON, LONGEST_NAME = 500, 200  # characters
CERTIFYING = ("issued", "derived")  # entries that bind a certificate
SHARED = (
    "sum of all owners' statistics",
    "discrete-gaussian",
)  # of the one release of shares
HOLDOUT = "holdout"  # the part of a family whose units are kept aside for evaluation; the other part has no name


UNKNOWN_ROWS = "0" * 64  # a commitment, while it is tried whether rows could be entered
IDS_SAID = ("distinct-ids", "one-person")  # what a steward may say of ids (training.rows.people.people)


def identity_statement(one_person: bool, distinct_ids: bool) -> tuple[str, ...]:
    """Return a steward's statement about ids as an entry states it, from flags."""
    return tuple(word for word, is_said in zip(IDS_SAID, (distinct_ids, one_person), strict=True) if is_said)


class NotCommitted(Exception):
    """Ends a transaction that was tried only."""


class State(StrEnum):
    """Of a job, as the ledger's index has it; `accountant.ledger.ledger` says what leads to what."""

    RESERVED = "reserved"
    STARTED = "started"
    COMMITTED = "committed"
    BURNED = "burned"
    RELEASED = "released"


ISSUED = "issued"  # what the world calls a committed job whose certificate stands in the ledger


class PublicState(NamedTuple):
    """`passed`: the states that a job in it has been through, its own the last; `open`: more will come of it by itself;
    `cancellable`: its price can still be given back.
    """

    passed: tuple[str, ...]
    open: bool = False
    cancellable: bool = False


PUBLIC_STATES = {
    "reserved": PublicState(("reserved",), open=True, cancellable=True),
    "started": PublicState(("reserved", "started"), open=True),
    "committed": PublicState(("reserved", "started", "committed"), open=True),
    "issued": PublicState(("reserved", "started", "committed", "issued")),
    "burned": PublicState(("reserved", "started", "burned")),
    "released": PublicState(("reserved", "released")),
}


# Why a queued job may still wait, in words that say nothing of the data.
WAITING = {
    "rows": "a worker cannot read the dataset's rows where it runs; the job waits for one that can",
}

# Why a worker gave a job back that was not cancelled.
GIVEN_BACK = {
    "plan": "was reserved by another version, whose plan was another; it was given back and costs nothing: ask again",
}


@dataclass(frozen=True)
class Unit:
    """The unit of privacy: one record, or all records that share a value of `column`, of which `contributions` are
    used; or, without a column, an owner who keeps all of its records.
    """

    name: str = "record"
    column: str | None = None
    contributions: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.contributions <= MAX_CONTRIBUTIONS:
            raise InputError(f"contributions={self.contributions}: must be 1 to {MAX_CONTRIBUTIONS}")
        if self.column is None and (self.name not in ("record", "owner") or self.contributions != 1):
            raise InputError(f"unit={self.name}: needs the column that names it")

    @property
    def remote(self) -> bool:
        """Return whether the rows stay with their owners, who are units: the platform sees one report of each."""
        return self == OWNER

    @property
    def has_several(self) -> bool:
        """Return whether a person whom a column names may have several rows."""
        return self.column is not None and self.contributions > 1


RECORD = Unit()
OWNER = Unit("owner")


@dataclass(frozen=True)
class NewPeople:
    """A steward's word that rows are about people who have no budget yet, though they look like registered ones."""

    reason: str
    by: str


@dataclass(frozen=True)
class Registration:
    """What a steward fixes. With a `budget` it founds a family of its own; without, it joins those of `families`.

    Attributes:
        budget: the total of the family that it founds.
        commitment: HMAC over the packed rows, its key held by the accountant.
        families: the datasets whose families it joins.
        new_people: the steward's word that these people have no budget yet.
        family_name: the name of the family that it founds; None: as the dataset.
        targets: what a job may be asked to predict, where there are several to choose from.
        holdout: the share of units kept aside for evaluation (docs/privacy/rows.md); None: of none.
        cells: whether its numbers are packed in fine cells as well, so that a job may find where to cut them.
        person: the total for one person over all blocks (docs/privacy/filter.md); None: none was declared.
        query: by which the rows were read (docs/privacy/rows.md); None: they are a file's, or a whole table's.
        refined: the profiles that its schema says it was refined from.
        ids: the steward's words about ids, of IDS_SAID.
        institutions: how many keep these rows, each its own, and bound what one unit contributes; None: they are here,
            or with owners who are units themselves.
        weight: the column that says what a row weighs, and the most (docs/privacy/rows.md); None: all weigh alike.
    """

    name: str
    relation: Relation
    budget: Budget | None
    unit: Unit
    records: int
    schema: str
    commitment: str
    families: tuple[str, ...] = ()
    new_people: NewPeople | None = None
    family_name: str | None = None
    targets: tuple[str, ...] = ()
    holdout: Decimal | None = None
    cells: bool = False
    person: Budget | None = None
    query: RowQuery | None = None
    refined: tuple[SchemaProfile, ...] = ()
    ids: tuple[str, ...] = ()
    firsts: bool = False
    institutions: int | None = None
    weight: Weight | None = None

    @property
    def remote(self) -> bool:
        """Return whether the rows are elsewhere: with owners who are units, or with institutions."""
        return self.unit.remote or self.institutions is not None

    @property
    def public_records(self) -> int | None:
        """Return how many rows there are, where that is public."""
        return self.records if self.relation is Relation.REPLACE_ONE else None

    @property
    def parts(self) -> int:
        """Return in how many parts a row is counted, by its weight."""
        return parts_of(self.weight)

    @property
    def draws(self) -> int:
        """Return how many times the noise that is priced is in every answer: of institutions two aggregators add it."""
        return 1 if self.institutions is None else 2

    @property
    def shared(self) -> bool:
        """Return whether owners send shares to two aggregators, and not one random report each."""
        return self.unit.remote and self.relation is Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        if self.weight is not None and (fault := relation_fault(self.relation)) is not None:
            raise InputError(fault)
        if self.institutions is not None:
            total = self.budget
            if self.institutions < 1 or self.unit.remote or total is None or not total.delta > 0:
                raise InputError(
                    f"institutions={self.institutions}: must be at least 1, of records or persons, with a total whose "
                    "delta is above 0"
                )
        if self.holdout is not None:
            self._check_holdout(self.holdout)
        if self.person is not None:
            self._check_person(self.person)
        if self.family_name and self.families:
            raise InputError(f"dataset={self.name}: joins families that have names; give a family or a name of one")
        if self.new_people and self.families:
            raise InputError(f"dataset={self.name}: the people of a family are not new; give a family or a reason")
        if (self.budget is None) != bool(self.families) or len(set(self.families)) != len(self.families):
            raise InputError(f"dataset={self.name}: must have a budget, or families to join, each once, and not both")

    def _check_person(self, total: Budget) -> None:
        if self.budget is None:
            raise InputError("person-epsilon: is declared where a family is founded; leave it out")
        if self.unit.column is None or self.relation is Relation.REPLACE_ONE:
            raise InputError(
                "person-epsilon: needs add-remove, and the column (unit) that names the person: the rows of each are "
                "bounded over all blocks that a job reads"
            )
        if total.epsilon < self.budget.epsilon:
            raise InputError(
                f"person-epsilon={total.epsilon}: must be at least the total of a block, epsilon {self.budget.epsilon}"
            )

    def _check_holdout(self, share: Decimal) -> None:
        if self.families:
            raise InputError(f"holdout={share}: is the family's, declared where it is founded; leave it out")
        if not share.is_finite() or not 0 < share < 1 or share.as_tuple().exponent not in range(-4, 1):
            raise InputError(f"holdout={share}: must be above 0 and below 1, with at most 4 decimals")
        if self.relation is Relation.REPLACE_ONE:
            raise InputError(
                "holdout: needs add-remove: under replace-one a replaced unit may leave one part and enter the other, "
                "and how many rows each has would be public"
            )


@dataclass(frozen=True)
class Request:
    """A job as it was asked for: what its digest and idempotency are about. `parameters` hold texts, integers,
    booleans, None. `model`: empty where the kind of job is about none. `target`: one of the dataset's, where it has
    several. `kind`: what the job is for. `part`: HOLDOUT where it reads the units that are kept aside. `promote`:
    whether its model shall be champion at once. `attack`: in how many runs its learner is attacked, 0 where it is not.
    `blocks`: of a dataset that grows, which, in words; `window`: what they meant when it was planned, and `registered`
    the entry of the dataset that it was planned on, which are no part of what was asked and compared when it is
    reserved; nor is `made_from`: entries of the releases behind what it begins from.
    """

    dataset: str
    learner: str
    budget: Budget
    parameters: Mapping[str, str | int | bool | None]
    model: str
    target: str | None = None
    kind: JobKind = TRAINING
    part: str | None = None
    promote: bool = False
    blocks: str | None = None
    attack: int = 0
    window: Window | None = field(default=None, compare=False)
    made_from: tuple[int, ...] = field(default=(), compare=False)
    registered: int | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return it as its entry states it, and as its digest is made from."""
        fields = {
            "dataset": self.dataset,
            "learner": self.learner,
            "parameters": dict(self.parameters),
            "model": self.model,
            **self.kind.to_json(),
            **{name: value for name, default in ENTERED.items() if (value := getattr(self, name)) != default},
        }
        return {**fields, **self.budget.to_json()}

    @cached_property
    def digest(self) -> str:
        """Compute the sha256 of the canonical JSON, in hex: requests with the same digest are the same request."""
        return hashlib.sha256(canonical.encode(self.to_json())).hexdigest()


ENTERED: Mapping[str, Any] = {
    each.name: each.default
    for each in fields(Request)
    if each.compare and each.default is not MISSING and each.name != "kind"
}
"""Fields that an entry has where they are not the default, and the defaults."""


@dataclass(frozen=True)
class Job:
    """A reservation and what became of it. `seq` is the index of its `reserved` entry: the job's number. `waiting`:
    why a worker left it for another, one of WAITING, or gave it back, one of GIVEN_BACK; `by`: the principal who asked.
    """

    seq: int
    dataset: str
    state: State
    model: str
    issued: int | None
    queued: bool
    done: int
    total: int
    waiting: str | None = None
    by: str = ""

    @property
    def public_state(self) -> str:
        """Return the state that users see, one of PUBLIC_STATES."""
        return ISSUED if self.issued is not None else self.state.value


@dataclass(frozen=True)
class SeenJobs:
    """The jobs that somebody may see: those asked for `by` them, on these datasets, for models of these names."""

    by: str | None
    datasets: tuple[str, ...]
    models: tuple[str, ...]


@dataclass(frozen=True)
class Holding:
    """Who runs a job, and until when without a word the job is taken to be theirs. By the database's clock: `expires`
    since 1970; `left`, seconds from now until then; `doubted`, seconds since somebody saw that it had passed.
    """

    seq: int
    state: State
    owner: str
    expires: float
    left: float
    doubted: float | None


@dataclass(frozen=True)
class Why:
    """Who does it, and why: one line each, of at most LONGEST_NAME and LONGEST_REASON characters, kept permanently in
    the ledger.
    """

    by: str
    reason: str

    def __post_init__(self) -> None:
        for name, most in (("by", LONGEST_NAME), ("reason", LONGEST_REASON)):
            text = getattr(self, name)
            if not text.strip() or not text.isprintable() or len(text) > most:
                raise InputError(f"{name}: must be one line of 1 to {most} characters")


def registration_fields(registration: Registration, identity: str) -> dict[str, Any]:
    """Return the fields of a dataset's entry; `identity` is its uuid."""
    unit = registration.unit
    return {
        "dataset": registration.name,
        "uuid": identity,
        "relation": registration.relation.value,
        "unit": {"name": unit.name, "column": unit.column, "contributions": unit.contributions},
        "records": registration.records,
        "schema": registration.schema,
        "commitment": registration.commitment,
        **({"targets": list(registration.targets)} if registration.targets else {}),
        **({} if registration.holdout is None else {"holdout": canonical.decimal_string(registration.holdout)}),
        **({"cells": True} if registration.cells else {}),
        **({"firsts": True} if registration.firsts else {}),
        **({} if registration.weight is None else {"weight": registration.weight.to_json()}),
        **({} if registration.institutions is None else {"institutions": registration.institutions}),
        **({} if registration.person is None else {"person": registration.person.to_entry()}),
        **({} if registration.query is None else {"query": registration.query.to_json()}),
        **({"refined": [profile.to_json() for profile in registration.refined]} if registration.refined else {}),
        **({"ids": sorted(registration.ids)} if registration.ids else {}),
    }


def reservation_fields(
    request: Request,
    unit: Decimal,
    plan: Plan,
    claimed: Claim,
    cost: dict[str, Any],
    by: str,
    key: str | None,
    whole: bool,
    bound: int | None,
    scheduled: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the fields of a `reserved` entry; `cost` is the plan's price as it is stored, `whole`: whether the job
    takes the whole total, which the entries of others do not speak of; `bound`: by which reservation the model's name
    is, None where no model is made; `scheduled`: the schedule and the period that it is of.
    """
    order = None if claimed.exact_order is None else canonical.decimal_string(claimed.exact_order)
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
        **({} if bound is None else {"bound": bound}),
        **({"whole": True} if whole else {}),
        **({} if scheduled is None else {"schedule": dict(scheduled)}),
    }


def request_from_entry(value: Mapping[str, Any]) -> Request:
    """Read the request of a `reserved` entry."""
    budget = Budget.of(value["epsilon"], value["delta"])
    fields = value["dataset"], value["learner"], budget, value["parameters"], value["model"]
    window = None if "window" not in value else (value["window"][0], value["window"][1])
    entered = {name: value[name] for name in ENTERED if name in value}
    return Request(*fields, kind=kind_of(value), window=window, made_from=tuple(value.get("made_from", ())), **entered)


def charged_window(value: Mapping[str, Any]) -> Window:
    """Return the blocks whose accounts a `reserved` entry is charged to: a function of the entry alone, whatever came
    since. One that names no window was written before its dataset grew, and is charged to block 1.
    """
    first, last = value.get("window", (1, 1))
    return first, last
