"""What jobs are charged to a family's budget: an admission, checked and appended within the writer's transaction; and
what each was charged, read from the entries: quickly, for there may be many thousands.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, select

from accountant.errors import IdempotencyConflict
from accountant.ledger import evaluations, learner_admissions, made_from, model_names, schedules
from accountant.ledger.families import block_rows
from accountant.ledger.families.families import Family
from accountant.ledger.families.family_rows import after
from accountant.ledger.families.job_kinds import KINDS, Contribution
from accountant.ledger.families.records import Job, Request, State, charged_window, reservation_fields
from accountant.ledger.families.refusal import refusal
from accountant.ledger.job_rows import add_job, find_contribution
from accountant.log.entries import Writer
from accountant.log.newest import account_number, accounts_of
from accountant.privacy.claims import Claim, claim
from accountant.store.store import stream
from accountant.store.tables import dataset_table, entry_table, job_table
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats.canonical_bytes import Key
from dpserve_verify.log.entry import Entry, read_entry
from dpserve_verify.privacy import soundness
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.filter import Price, price_from_json, price_to_json

# Of a reservation, whose keys stand in this order, only the price and the time are read.
_PRICE, _TIME = Key("price"), Key("time")
_BEHIND = [Key(name) for name in sorted({"request", "promote", *KINDS}, reverse=True) if "price" < name <= "request"]


class Charge(NamedTuple):
    """`entry`: the reservation, or what charged a release made elsewhere; `time`: as it says."""

    entry: int
    time: str
    price: Price


def charged_jobs(family: Family) -> ColumnElement[bool]:
    """Return the condition of jobs charged to a family, by either part: all but those given back."""
    names = select(dataset_table.c.name).where(dataset_table.c.families.contains(family.identity, autoescape=True))
    return job_table.c.dataset.in_(names) & (job_table.c.state != State.RELEASED)


def charges(
    connection: Connection, family: Family, newest_first: bool = False, outside: Sequence[Entry] = ()
) -> Iterator[Charge]:
    """Yield the charges one by one: of jobs, and those of the entries `outside` that are charged to this account.
    LedgerInvalid where an entry is no reservation with its price.
    """
    elsewhere = charges_of(family, outside)
    ordered = elsewhere[::-1] if newest_first else elsewhere
    jobs = _charged_to_jobs(connection, family, newest_first)
    return heapq.merge(jobs, ordered, key=lambda charge: charge.entry, reverse=newest_first)


def charges_of(family: Family, outside: Sequence[Entry]) -> list[Charge]:
    """Return the charges of those entries for releases made elsewhere that touch this account."""
    account = account_number(family.seq, family.part)
    return [
        Charge(entry.seq, entry.value["time"], price_from_json(entry.value["price"], family.filter.orders))
        for entry in outside
        if any(account in accounts_of(line) for line in entry.value["after"])
    ]


def _charged_to_jobs(connection: Connection, family: Family, newest_first: bool) -> Iterator[Charge]:
    query = select(entry_table.c.seq, entry_table.c.body).join(job_table, job_table.c.seq == entry_table.c.seq)
    order = job_table.c.seq.desc() if newest_first else job_table.c.seq
    for seq, body in stream(connection, query.where(charged_jobs(family)).order_by(order)):
        raw = bytes(body)
        if family.holdout is not None or family.block is not None:
            value = read_entry(seq, raw).value
            first, last = charged_window(value)
            in_window = family.person or first <= (family.block or 1) <= last
            if value.get("part") != family.part or not in_window:
                continue  # of the other part, or of other blocks
        price = next(filter(None, (_PRICE.last_object(raw, key) for key in _BEHIND)), None)
        time = _TIME.last_text(raw)
        if price is None or time is None:
            raise LedgerInvalid(f"entry {seq}: must be a reservation with its price", entry=seq)
        yield Charge(seq, time, _price(price, family.filter.orders))


@lru_cache(maxsize=4096)  # jobs of one kind have one price
def _price(raw: bytes, orders: tuple[Decimal, ...]) -> Price:
    return price_from_json(json.loads(raw), orders)


@dataclass(frozen=True)
class PricedJob:
    """A job and what its plan claims, which the auditor's arithmetic bears out. `unit`: as calibrated."""

    request: Request
    unit: Decimal
    plan: Plan
    claim: Claim


def price_job(request: Request, unit: Decimal, plan: Plan) -> PricedJob:
    """Derive what the plan claims, and have it judged. InputError where it is more than what was asked for.

    A plan that this process has not met takes .03 to .7 s, and .04 to .2 s of the auditor's: nobody is to wait for that
    within the writer's transaction, and it is known there afterwards.
    """
    claimed = claim(plan, request.budget.delta)
    if claimed.epsilon > request.budget.epsilon:
        raise InputError(f"plan: costs epsilon {claimed.epsilon}, more than the {request.budget.epsilon} asked for")
    with judging():
        soundness.require(len(plan) > 0, "plan: must release something")
        soundness.require_claim(plan, request.budget, claimed.bound, claimed.exact_order, claimed.epsilon)
    soundness.least_renyi(plan, (2.0,))
    return PricedJob(request, unit, plan, claimed)


@contextmanager
def judging() -> Iterator[None]:
    """Turn the auditor's LedgerInvalid into the InputError of whoever asks for the job."""
    try:
        yield
    except LedgerInvalid as error:
        raise InputError(
            f"plan: the auditor's arithmetic does not bear out its cost ({error.message}); nothing was charged. "
            "Ask for another epsilon or for other parameters"
        ) from error


def reserve(
    writer: Writer,
    priced: PricedJob,
    by: str,
    key: str | None,
    owner: str | None,
    lease: float,
    promotes: bool,
    follows: bool = False,
    scheduled: schedules.Period | None = None,
) -> Job:
    """Admit a job and append its entry, as `Ledger.reserve` says.

    `follows`: it evaluates what the job that was reserved just before is going to make, in place of what a certificate
    stands for.
    """
    request, plan, connection = priced.request, priced.plan, writer.connection
    request.kind.check(request.model, request.target, request.promote)
    unadmitted = learner_admissions.refusal(writer.signed, request.learner, request.parameters, request.dataset)
    if unadmitted is not None:
        raise unadmitted
    of_schedule = None if scheduled is None else schedules.admit(writer, scheduled)
    dataset = block_rows.load_requested(connection, request, by, writer.signed)
    if isinstance(request.kind, Contribution) and find_contribution(connection, request.kind.contributes) is not None:
        raise IdempotencyConflict("campaign: is answered in this home already; rows stand once in its sums")
    if not follows:
        evaluations.check(writer.signed, request)
    bound = model_names.admit(writer, request, by, promotes)
    cost = dataset.price(plan)
    with judging():  # nothing mends an entry once it is written
        about = dataset.registration
        soundness.require_pairs(plan, priced.claim.bound, about.relation, about.unit.contributions, about.parts)
        soundness.require_price(plan, soundness.Figures(cost.pure, cost.unbounded, cost.rdp), dataset.orders)
    costs = dataset.costs_of(cost)
    takes_total = dataset.refusing(costs) is not None
    if takes_total and not dataset.can_close(priced.claim, costs):
        raise refusal(dataset, request, costs)
    cost_json = price_to_json(cost, dataset.orders)
    fields = reservation_fields(
        request, priced.unit, plan, priced.claim, cost_json, by, key, takes_total, bound, of_schedule
    )
    if dataset.window is not None:
        fields["window"] = [*dataset.window]
    behind = {*request.made_from, *(profile.entry for profile in dataset.registration.refined)}
    if behind:
        fields["made_from"] = made_from.close(connection, behind)
    lines = after(dataset.families, costs, whole=writer.tree.size if takes_total else None)
    seq = writer.append("reserved", **fields, after=block_rows.merge_equal_blocks(dataset.families, lines))
    block_rows.put(connection, dataset.families, lines)
    job = Job(seq, request.dataset, State.RESERVED, request.model, None, owner is None, 0, len(plan), None, by)
    add_job(connection, job, request, by, key, owner, lease)
    if scheduled is not None:
        schedules.note_job(connection, scheduled, seq)
    return job
