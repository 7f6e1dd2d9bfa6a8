"""When a budget will be used up, if it goes on as it did: from the ledger's own entries, so public."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from math import inf
from typing import Any

from accountant.ledger.charges import charges
from accountant.ledger.families import Dataset, Family
from accountant.ledger.ledger import Ledger
from accountant.ledger.left import roomiest
from accountant.log.entries import read_entry
from accountant.store.store import body_at

WINDOW_DAYS = 30
MOST_JOBS = 2_000  # the rate of more is known well enough


def forecast(ledger: Ledger, dataset: Dataset, now: datetime | None = None) -> dict[str, Any]:
    """Tell the burn rate of the account that ends first, over the last WINDOW_DAYS (its whole life, where that is
    shorter; a day at least), and the day on which nothing would be left of it. Of a dataset that has grown: of the
    block that `left` speaks of, and of the total for one person. A straight line, no promise: the filter decides.
    """
    now = now or datetime.now(UTC)
    rates = [(1 - family.share, _rate(ledger, family, now)) for family in roomiest(dataset).families]
    share, rate = min(rates, key=lambda pair: (pair[0] / pair[1] if pair[1] else inf, pair[0]))
    left = share / rate if rate else None
    ends = None if left is None or left > 36_500 else (now + timedelta(days=left)).date().isoformat()
    return {"share_per_day": f"{rate:.6f}", "days_left": None if left is None else int(left), "used_up_on": ends}


def _rate(ledger: Ledger, family: Family, now: datetime) -> float:
    """The share of an account that was used in a day."""
    with ledger.log.database.reading() as connection:
        founded = _time(read_entry(family.seq, body_at(connection, family.seq)).value["time"])
    since = max(founded, now - timedelta(days=WINDOW_DAYS))
    days = max(1.0, (now - since) / timedelta(days=1))
    return max(0.0, family.share - _share_before(ledger, family, since)) / days


def _share_before(ledger: Ledger, family: Family, since: datetime) -> float:
    """The share that was used before `since`: without the jobs reserved from then on."""
    used = family.used
    with ledger.log.database.reading() as connection:
        for charge in islice(charges(connection, family, newest_first=True), MOST_JOBS):
            if _time(charge.time) < since or charge.entry < family.seq:  # of before the account was there
                break
            used -= charge.price
    return family.share_of(used)


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
