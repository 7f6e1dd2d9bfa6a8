"""Derived models: a released model that was edited without its data. Post-processing: it costs no privacy.

A `derived` entry binds statement and model as an `issued` one does, and names its base: the `issued` or `derived` entry
that the edits began from. Its certificate repeats the base's predicate, price and all, and says in its public part what
it supersedes and what was edited. It stands as long as all it came from does: where a base is revoked, so is it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection

from accountant import canonical
from accountant.certificates.predicate import STATEMENT_LIMIT, read_statement
from accountant.certificates.statement import listed
from accountant.errors import LedgerInvalid, UnknownName, WrongState
from accountant.keys import key_rows
from accountant.ledger.records import CERTIFYING, Why
from accountant.log.entries import Entry, Writer, read_entry
from accountant.store.store import body_at, size


@dataclass(frozen=True)
class Ancestor:
    """A certified model that another came from: the index of its entry, and the digests of its statement and of its
    ensemble.json, hexadecimal."""

    entry: int
    statement: str
    ensemble: str


def lineage(connection: Connection, index: int) -> list[Entry]:
    """The entries that the model certified at `index` came from, the `issued` one first, its own last. UnknownName
    where the entry certifies nothing."""
    found = [_certified(connection, index)]
    while found[0].value["type"] == "derived":
        before = _certified(connection, found[0].value["base"])
        if before.seq >= found[0].seq:
            raise LedgerInvalid(f"entry {found[0].seq}: its base must stand before it", entry=found[0].seq)
        found.insert(0, before)
    return found


def _certified(connection: Connection, index: int) -> Entry:
    if not 0 <= index < size(connection):
        raise UnknownName(f"base={index}: no certificate was issued by that entry")
    entry = read_entry(index, body_at(connection, index))
    if entry.value["type"] not in CERTIFYING:
        raise UnknownName(f"base={index}: no certificate was issued by that entry")
    return entry


def derive(writer: Writer, base: int, statement: str, model: str, why: Why) -> int:
    """Append the `derived` entry; its index. WrongState where a certificate that the base rests on was revoked."""
    chain = lineage(writer.connection, base)
    ended = key_rows.revoked(writer.connection) & {entry.seq for entry in chain}
    if ended:
        raise WrongState(f"base={base}: the certificate of entry {min(ended)} was revoked: nothing can be derived")
    own = {"reservation": chain[0].value["reservation"], "name": chain[0].value["name"]}
    return writer.append("derived", base=base, statement=statement, model=model, reason=why.reason, by=why.by, **own)


def find(connection: Connection, statement: str, since: int) -> int | None:
    """The `derived` entry, from `since` on, that binds this statement."""
    for seq in range(since, size(connection)):
        value = read_entry(seq, body_at(connection, seq)).value
        if value["type"] == "derived" and value["statement"] == statement:
            return seq
    return None


def statement_of(
    base: bytes, chain: Sequence[Ancestor], edits: Sequence[Mapping[str, Any]], sha256: str, ensemble: str
) -> bytes:
    """Canonical bytes of the derived model's statement. `base`: those of its base's; `chain`: all it came from, the
    released model first; `edits`: every one since then; `sha256`, `ensemble`: digests of its two files."""
    body, _ = read_statement(base)
    public = {
        **body["predicate"]["public"],
        "ensemble": ensemble,
        "supersedes": [asdict(each) for each in chain],
        "edits": listed([dict(each) for each in edits]),
    }
    subject = {**body["subject"][0], "digest": {"sha256": sha256}}
    changed = {**body, "subject": [subject], "predicate": {**body["predicate"], "public": public}}
    return canonical.encode(changed, STATEMENT_LIMIT)


def same_promise(derived: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Whether two predicates differ in nothing but what an edit may change: the numbers, and what is said of it."""

    def kept(predicate: Mapping[str, Any]) -> dict[str, Any]:
        own = ("ensemble", "supersedes", "edits")
        public = {name: value for name, value in predicate["public"].items() if name not in own}
        return {**predicate, "public": public}

    return kept(derived) == kept(base)
