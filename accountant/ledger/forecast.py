"""When a budget will be used up, if it goes on as it did: from the ledger's own entries, so public."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Select, func, select

from accountant.ledger.admission import charged_jobs, charges
from accountant.ledger.families.families import Dataset, Family
from accountant.ledger.families.family_rows import question_of_quotas
from accountant.ledger.families.left import roomiest
from accountant.ledger.ledger import Ledger
from accountant.ledger.outside import charged_entries
from accountant.store.queries import Queries
from accountant.store.store import body_at, question_of_body
from accountant.store.tables import job_table
from dpserve_verify.log.entry import read_entry

WINDOW_DAYS = 30
MIN_DAYS = 7  # of history: less says nothing of a month
MAX_JOBS = 2_000  # the rate of more is known well enough
KNOWN: WeakKeyDictionary[Ledger, dict[str, tuple[Any, float]]] = WeakKeyDictionary()  # last answer of each account


def forecast(ledger: Ledger, dataset: Dataset, now: datetime | None = None) -> dict[str, Any]:
    """Return the burn rate of the account that ends first, over the last WINDOW_DAYS (its whole life, where that is
    shorter), and the day on which nothing would be left of it. Of a dataset that has grown: of the
    block that `left` speaks of, and of the total for one person. A straight line, no promise: the filter decides.
    Nothing is told before MIN_DAYS of history.
    """
    now = now or datetime.now(UTC)
    rates = [_rate(ledger, family, now) for family in roomiest(dataset).families]
    share, rate, days = min(rates, key=lambda each: (each[0] / each[1] if each[1] else inf, each[0]))
    if days < MIN_DAYS:
        return {"share_per_day": None, "days_left": None, "used_up_on": None}
    days_left = share / rate if rate else None
    ends = None if days_left is None or days_left > 36_500 else (now + timedelta(days=days_left)).date().isoformat()
    return {
        "share_per_day": f"{rate:.6f}",
        "days_left": None if days_left is None else int(days_left),
        "used_up_on": ends,
    }


def about_dataset(dataset: Dataset) -> Queries:
    """List what is asked to show a dataset that was loaded, beside its jobs: its quotas, and what `forecast` asks."""
    families = roomiest(dataset).families
    founded = (question_of_body(family.seq) for family in families)
    return [*question_of_quotas(dataset), *founded, *((_newest_job(each), {}) for each in families)]


def _newest_job(family: Family) -> Select[Any]:
    return select(func.max(job_table.c.seq)).where(charged_jobs(family))


def _rate(ledger: Ledger, family: Family, now: datetime) -> tuple[float, float, float]:
    """Return the share that is left of an account, the share that was used in a day, and of how many days that is the
    mean.
    """
    with ledger.log.database.reading() as connection:
        founded = _time(read_entry(family.seq, body_at(connection, family.seq)).value["time"])
    since = max(founded, (now - timedelta(days=WINDOW_DAYS)).replace(minute=0, second=0, microsecond=0))
    days = (now - since) / timedelta(days=1)
    return 1 - family.share, max(0.0, family.share - _share_before(ledger, family, since)) / max(1.0, days), days


def _share_before(ledger: Ledger, family: Family, since: datetime) -> float:
    """Return the share that was used before `since`: without what was charged from then on. Entries of up to MAX_JOBS
    are read for it (32 of 36 ms of a dataset's page): the last answer stands while nothing was charged or given back.
    """
    outside = charged_entries(ledger)
    with ledger.log.database.reading() as connection:
        newest = connection.scalar(_newest_job(family))
        key, known = (family.seq, family.used, newest, since), KNOWN.setdefault(ledger, {})
        if family.account not in known or known[family.account][0] != key:
            used = family.used
            for charge in islice(charges(connection, family, True, outside), MAX_JOBS):
                if _time(charge.time) < since or charge.entry < family.seq:  # of before the account was there
                    break
                used -= charge.price
            known[family.account] = key, family.share_of(used)
    return known[family.account][1]


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
