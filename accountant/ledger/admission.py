"""What jobs are charged to a family's budget: an admission, checked and appended within the writer's transaction; and
what each was charged, read from the entries: quickly, for there may be many thousands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, select

from accountant.errors import InputError, LedgerInvalid
from accountant.formats.canonical_bytes import Key
from accountant.ledger import evaluations, model_names
from accountant.ledger.families import block_rows
from accountant.ledger.families.families import Family
from accountant.ledger.families.family_rows import after
from accountant.ledger.families.job_kinds import KINDS
from accountant.ledger.families.records import Job, Request, State, charged_window, reservation_fields
from accountant.ledger.families.refusal import refusal
from accountant.ledger.job_rows import add_job
from accountant.log.entries import Writer, read_entry
from accountant.privacy import soundness
from accountant.privacy.claims import Price, claim
from accountant.privacy.events import Plan
from accountant.privacy.filter import price_from_json
from accountant.store.store import stream
from accountant.store.tables import dataset_table, entry_table, job_table

# Of a reservation, whose keys stand in this order, only the price and the time are read.
_PRICE, _TIME = Key("price"), Key("time")
_BEHIND = [Key(name) for name in sorted({"request", "promote", *KINDS}, reverse=True) if "price" < name <= "request"]


class Charge(NamedTuple):
    """`entry`: the reservation; `time`: as it says."""

    entry: int
    time: str
    price: Price


def charged(family: Family) -> ColumnElement[bool]:
    """The jobs whose price the family bears, by one part or the other: all but those that were given back."""
    names = select(dataset_table.c.name).where(dataset_table.c.families.contains(family.identity, autoescape=True))
    return job_table.c.dataset.in_(names) & (job_table.c.state != State.RELEASED)


def charges(connection: Connection, family: Family, newest_first: bool = False) -> Iterator[Charge]:
    """One by one. LedgerInvalid where an entry is no reservation with its price."""
    query = select(entry_table.c.seq, entry_table.c.body).join(job_table, job_table.c.seq == entry_table.c.seq)
    order = job_table.c.seq.desc() if newest_first else job_table.c.seq
    for seq, body in stream(connection, query.where(charged(family)).order_by(order)):
        raw = bytes(body)
        if family.holdout is not None or family.block is not None:
            value = read_entry(seq, raw).value
            first, last = charged_window(value)
            here = family.person or first <= (family.block or 1) <= last
            if value.get("part") != family.part or not here:
                continue  # of the other part, or of other blocks
        price = next(filter(None, (_PRICE.last_object(raw, key) for key in _BEHIND)), None)
        time = _TIME.last_text(raw)
        if price is None or time is None:
            raise LedgerInvalid(f"entry {seq}: must be a reservation with its price", entry=seq)
        yield Charge(seq, time, _price(price, family.filter.orders))


@lru_cache(maxsize=4096)  # jobs of one kind have one price
def _price(raw: bytes, orders: tuple[Decimal, ...]) -> Price:
    return price_from_json(json.loads(raw), orders)


def require_sound(fields: Mapping[str, Any], orders: tuple[Decimal, ...]) -> None:
    """InputError where the auditor would refuse the reservation that these fields are about to state: nothing mends an
    entry once it is written. A plan that this process has not met takes the auditor .04 to .2 s, beside .03 to .7 s of
    the accountant's own bound; afterwards it is known by its bytes.
    """
    try:
        soundness.judge_job(fields, orders)
    except LedgerInvalid as error:
        raise InputError(
            f"plan: the auditor's arithmetic does not bear out its cost ({error.message}); nothing was charged. "
            "Ask for another epsilon or for other parameters"
        ) from error


def judge_beforehand(request: Request, plan: Plan, evaluation: tuple[Request, Decimal, Plan] | None) -> None:
    """Work out what `require_sound` asks of these plans outside the writer's transaction, so that nobody waits."""
    for asked, planned in ((request, plan), *([(evaluation[0], evaluation[2])] if evaluation else [])):
        claimed = claim(planned, asked.budget.delta)
        order = None if claimed.order is None else Decimal(repr(claimed.order))
        soundness.holds(planned, claimed.bound, order, claimed.epsilon, claimed.delta)
        soundness.least_renyi(planned, (2.0,))


def reserve(
    writer: Writer,
    request: Request,
    unit: Decimal,
    plan: Plan,
    by: str,
    key: str | None,
    owner: str | None,
    lease: float,
    promotes: bool,
    follows: bool = False,
) -> Job:
    """As `Ledger.reserve` has it. `follows`: it evaluates what the job that was reserved just before is going to make,
    in place of what a certificate stands for.
    """
    request.kind.check(request.model, request.target, request.promote)
    claimed, connection = claim(plan, request.budget.delta), writer.connection
    if claimed.epsilon > request.budget.epsilon:
        raise InputError(f"plan: costs epsilon {claimed.epsilon}, more than the {request.budget.epsilon} asked for")
    dataset = block_rows.asked(connection, request, by, writer.signed)
    if not follows:
        evaluations.check(writer.signed, request)
    bound = model_names.admit(writer, request, by, promotes)
    cost = dataset.price_to_json(plan)
    costs = dataset.costs_from_json(cost)  # what the entry says is what is charged
    whole = dataset.refusing(costs) is not None
    if whole and not dataset.gives_whole(claimed, costs):
        raise refusal(dataset, request, costs)
    fields = reservation_fields(request, unit, plan, claimed, cost, by, key, whole, bound)
    require_sound(fields, dataset.orders)
    if dataset.window is not None:
        fields["window"] = [*dataset.window]
    lines = after(dataset.families, costs, whole=writer.tree.size if whole else None)
    seq = writer.append("reserved", **fields, after=block_rows.together(dataset.families, lines))
    block_rows.put(connection, dataset.families, lines)
    job = Job(
        seq, request.dataset, State.RESERVED, request.model, None, owner is None, 0, len(plan), None, by, request.labels
    )
    add_job(connection, job, request, by, key, owner, lease)
    return job
