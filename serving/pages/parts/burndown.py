"""How a budget was used up over time, from the ledger's own entries: public, as every price in them is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, select

from accountant.ledger.admission import charged_jobs, charges
from accountant.ledger.families.block_rows import load
from accountant.ledger.families.families import Family
from accountant.ledger.ledger import Ledger
from accountant.ledger.outside import charged_entries
from accountant.store.store import body_at
from accountant.store.tables import job_table
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.log.entry import Entry, read_entry

if TYPE_CHECKING:
    from dpserve_verify.privacy.filter import Price

MAX_POINTS = 200
NEWEST = 2_000  # jobs that are told apart by model


@dataclass(frozen=True)
class Point:
    """Where the budget stood when entry `entry` had been written. `share`: used up of the total that is in force
    today, 0..1; `epsilon`: the same as an epsilon at the budget's delta; `jobs`: how many had been
    charged, with releases made elsewhere.
    """

    entry: int
    time: str
    share: float
    epsilon: str
    jobs: int


def burndown(ledger: Ledger, dataset: str, most: int = MAX_POINTS) -> list[Point]:
    """Return the dataset's most used family, or block, from its founding to its newest job, oldest first, in at most
    `most` + 1 points; the last one is where the budget stands. Jobs that were given back before they started are left
    out.

    UnknownName where there is no such dataset.
    """
    outside = charged_entries(ledger)
    with ledger.log.database.reading() as connection:
        family = load(connection, dataset).most_used
        founded = read_entry(family.seq, body_at(connection, family.seq)).value["time"]
        return [Point(family.seq, founded, 0.0, "0", 0), *_points(connection, family, most, outside)]


def by_model(ledger: Ledger, dataset: str) -> list[dict[str, Any]]:
    """Return each model's `share` (0..1) of the most used family, or block, by its newest NEWEST jobs, the most first.
    What makes no model, evaluations, profiles and releases made elsewhere, is one line without a name.
    """
    outside = charged_entries(ledger)
    with ledger.log.database.reading() as connection:
        family = load(connection, dataset).most_used
        newest = list(islice(charges(connection, family, True, outside), NEWEST))
        query = select(job_table.c.seq, job_table.c.model).where(charged_jobs(family))
        newest_named = connection.execute(query.order_by(job_table.c.seq.desc()).limit(NEWEST))
        models = {row.seq: row.model for row in newest_named}
    used: dict[str, list[Price]] = {}
    for charge in newest:
        used.setdefault(models.get(charge.entry) or "", []).append(charge.price)
    lines = [
        {"model": name, "jobs": len(prices), "share": family.share_of(sum(prices, family.filter.nothing()))}
        for name, prices in used.items()
    ]
    return sorted(lines, key=lambda each: -each["share"])


def _points(connection: Connection, family: Family, most: int, outside: Sequence[Entry]) -> Iterator[Point]:
    count = connection.execute(select(func.count()).select_from(job_table).where(charged_jobs(family))).scalar_one()
    if outside or family.holdout is not None or family.block is not None:  # of which the index says nothing
        count = sum(1 for _ in charges(connection, family, outside=outside))
    used, step = family.filter.nothing(), max(1, -(-count // most))
    for jobs, charge in enumerate(charges(connection, family, outside=outside), 1):
        used += charge.price
        if jobs % step == 0 or jobs == count:
            epsilon = decimal_string(family.epsilon_of(used))
            yield Point(charge.entry, charge.time, family.share_of(used), epsilon, jobs)
