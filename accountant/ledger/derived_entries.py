"""Entries of derived models: released ones that were edited without their data.

A `derived` entry binds statement and model as an `issued` one does, and names its base: the `issued` or `derived` entry
that the edits began from. Where a base is revoked, nothing more is derived from it.
"""

from __future__ import annotations

from sqlalchemy import Connection

from accountant.errors import UnknownName
from accountant.ledger.families.records import CERTIFYING, Why
from accountant.log.entries import Writer
from accountant.store.store import body_at, size
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.log.entry import Entry, read_entry


def lineage(connection: Connection, index: int) -> list[Entry]:
    """Return the entries that the model certified at `index` came from, the `issued` one first, its own last.
    UnknownName where the entry certifies nothing.
    """
    chain = [certifying_entry(connection, index)]
    while chain[0].value["type"] == "derived":
        before = certifying_entry(connection, chain[0].value["base"])
        if before.seq >= chain[0].seq:
            raise LedgerInvalid(f"entry {chain[0].seq}: its base must stand before it", entry=chain[0].seq)
        chain.insert(0, before)
    return chain


def certifying_entry(connection: Connection, index: int) -> Entry:
    """Return the entry that certified a model. UnknownName where the entry certifies nothing."""
    if not 0 <= index < size(connection):
        raise UnknownName(f"base={index}: no certificate was issued by that entry")
    entry = read_entry(index, body_at(connection, index))
    if entry.value["type"] not in CERTIFYING:
        raise UnknownName(f"base={index}: no certificate was issued by that entry")
    return entry


def derive(writer: Writer, base: int, statement: str, model: str, why: Why) -> int:
    """Append the `derived` entry; its index. WrongState where a certificate that the base rests on was revoked."""
    chain = lineage(writer.connection, base)
    fields = {"reservation": chain[0].value["reservation"], "name": chain[0].value["name"]}
    return writer.append("derived", base=base, statement=statement, model=model, reason=why.reason, by=why.by, **fields)


def find(connection: Connection, statement: str, since: int) -> int | None:
    """Return the `derived` entry, from `since` on, that binds this statement."""
    for seq in range(since, size(connection)):
        value = read_entry(seq, body_at(connection, seq)).value
        if value["type"] == "derived" and value["statement"] == statement:
            return seq
    return None
