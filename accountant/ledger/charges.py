"""What each job was charged to a family's budget, read from the entries: quickly, for there may be many thousands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, select

from accountant.canonical_bytes import Key
from accountant.errors import LedgerInvalid
from accountant.ledger.families import Family
from accountant.ledger.records import State
from accountant.log.entries import read_entry
from accountant.privacy.claims import Price
from accountant.privacy.filter import price_from_json
from accountant.store.store import stream
from accountant.store.tables import dataset_table, entry_table, job_table

# Of a reservation, whose keys stand in this order, only the price and the time are read.
_PRICE, _BEHIND, _TIME = Key("price"), (Key("request"), Key("promote"), Key("profile")), Key("time")


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
        if family.holdout is not None and read_entry(seq, raw).value.get("part") != family.part:
            continue  # of the other part
        price = next(filter(None, (_PRICE.last_object(raw, key) for key in _BEHIND)), None)
        time = _TIME.last_text(raw)
        if price is None or time is None:
            raise LedgerInvalid(f"entry {seq}: must be a reservation with its price", entry=seq)
        yield Charge(seq, time, _price(price, family.filter.orders))


@lru_cache(maxsize=4096)  # jobs of one kind have one price
def _price(raw: bytes, orders: tuple[Decimal, ...]) -> Price:
    return price_from_json(json.loads(raw), orders)
