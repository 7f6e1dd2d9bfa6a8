"""The keys in the ledger's index: who may sign what, and which certificates were revoked.

The rows follow from the entries genesis, key-added, key-retired, key-compromised and revoked, and are written with them
in one transaction. An issuer's key speaks for the `issued` entries added <= index < until. A log's key signs
checkpoints from the size that holds the entry which added it (the first one's from 0), below the size `until`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias

from sqlalchemy import Connection, bindparam, insert, select, update

from accountant.keys.private_keys import KeyStore
from accountant.store.queries import Queries, rows_of
from accountant.store.tables import key_table, revoked_table
from dpserve_verify.errors import KeyInvalid, LedgerInvalid
from dpserve_verify.keys.trust import ROLES, IssuerKey, LogKey, PublicKeys, Role, fingerprint, load_public_pem
from dpserve_verify.keys.trust import public_pem as pem_of

End: TypeAlias = Literal["retired", "compromised"]

# Built once: building a statement costs more than running it.
_ALL = select(key_table).order_by(key_table.c.added, key_table.c.role)
_GOOD = select(key_table.c.role, key_table.c.keyid).where(key_table.c.until.is_(None))
_END = update(key_table).where(key_table.c.keyid == bindparam("known"))
_REVOKED = select(revoked_table.c.issued, revoked_table.c.seq)


@dataclass(frozen=True)
class KeyRow:
    """A key that ever signed for this ledger. `until` None: it may sign now."""

    keyid: str
    role: Role
    pem: str
    added: int
    until: int | None = None
    ended: End | None = None

    @property
    def first(self) -> int:
        """Return the first index (of an issuer) or size (of a log) that it speaks for."""
        return self.added + 1 if self.role == "log" and self.added else self.added

    def end(self, after: int) -> int:
        """Return the value of `until` for a key whose signatures after the entry at `after` do not count."""
        return max(self.first, after + (2 if self.role == "log" else 1))


class Stated(Protocol):
    """A signed entry: its index, and what it says."""

    @property
    def seq(self) -> int:
        """Return its index in the ledger."""

    @property
    def value(self) -> Mapping[str, Any]:
        """Return what it says."""


def rows(connection: Connection) -> list[KeyRow]:
    """Return every key, in the order they were added."""
    return [KeyRow(*row) for row in rows_of(connection, _ALL, {})]


QUESTIONS: Queries = ((_ALL, {}), (_REVOKED, {}))  # of `rows` and of `revocations`


def good(connection: Connection) -> dict[Role, frozenset[str]]:
    """Return the keyids that may sign now: one of a log, one or more of issuers."""
    return _by_role((row.role, row.keyid) for row in connection.execute(_GOOD))


def good_of(keys: Iterable[KeyRow]) -> dict[Role, frozenset[str]]:
    """Return, as `good` does, of rows at hand."""
    return _by_role((row.role, row.keyid) for row in keys if row.until is None)


def _by_role(found: Iterable[tuple[Role, str]]) -> dict[Role, frozenset[str]]:
    keys = list(found)
    return {role: frozenset(keyid for key_role, keyid in keys if key_role == role) for role in ROLES}


def require_issuer(connection: Connection, keyid: str) -> None:
    """Raise KeyInvalid unless a certificate by this key may be issued now."""
    issuers = good(connection)["issuer"]
    if keyid not in issuers:
        raise KeyInvalid(f"issuer: {keyid} is not the ledger's issuer key, {', '.join(sorted(issuers))}")


def begin(connection: Connection, keys: KeyStore) -> None:
    """Insert the rows of a new ledger's first keys."""
    for role in ROLES:
        add(connection, role, pem_of(keys.public_key(role)), 0)


def add(connection: Connection, role: Role, pem: str, added: int) -> KeyRow:
    """Enter a key that the entry at index `added` adds."""
    row = _row(role, pem, added)
    connection.execute(insert(key_table).values(**row.__dict__))
    return row


def finish(connection: Connection, row: KeyRow, until: int, ended: End) -> None:
    """End a key: it speaks for no number from `until` on."""
    connection.execute(_END.values(until=until, ended=ended), {"known": row.keyid})


def trust(origin: str, found: Iterable[KeyRow], ended: frozenset[int]) -> PublicKeys:
    """Return what an auditor should pin, by these rows."""
    found = list(found)
    issuers = tuple(IssuerKey(row.pem, row.first, row.until) for row in found if row.role == "issuer")
    logs = tuple(LogKey(row.pem, row.first, row.until) for row in found if row.role == "log")
    return PublicKeys.of(origin, issuers, logs, ended)


def revoke(connection: Connection, issued: int, seq: int) -> None:
    """Enter that the entry at `seq` revokes the certificate of the entry at `issued`."""
    connection.execute(insert(revoked_table).values(issued=issued, seq=seq))


def revocations(connection: Connection) -> dict[int, int]:
    """Return the indices of `issued` entries whose certificates were revoked -> of the entries that say so."""
    return {row.issued: row.seq for row in rows_of(connection, _REVOKED, {})}


def revoked_certificates(connection: Connection) -> frozenset[int]:
    """Return the indices of `issued` entries whose certificates were revoked."""
    return frozenset(revocations(connection))


def check_keys(found: list[KeyRow], said: Mapping[str, KeyRow]) -> list[KeyRow]:
    """Return `found`, where these are the keys that the entries about them give (`stated_keys`); LedgerInvalid else."""
    rows = {row.keyid: row for row in found}
    for keyid in rows.keys() | said.keys():
        if rows.get(keyid) != said.get(keyid):
            raise _mismatch("signing_key", keyid)
    return found


def check_revoked(found: Mapping[int, int], said: Mapping[int, int]) -> frozenset[int]:
    """Return the revoked certificates, where the rows `found` are what the entries give; LedgerInvalid else."""
    for issued in found.keys() ^ said.keys() | {index for index in found if found[index] != said.get(index)}:
        raise _mismatch("revoked", str(issued))
    return frozenset(found)


def stated_keys(entries: Iterable[Stated]) -> dict[str, KeyRow]:
    """Return every key by its keyid, as the entries about keys leave it."""
    keys: dict[str, KeyRow] = {}
    for seq, value in ((entry.seq, entry.value) for entry in entries):
        match value["type"]:
            case "genesis":
                first = [_row(role, value[role], 0) for role in ROLES]
                keys |= {row.keyid: row for row in first}
            case "key-added":
                keys[value["keyid"]] = _row(value["role"], value["pem"], seq)
            case "key-retired":
                row = keys[value["keyid"]]
                successor = max((key.first for key in keys.values() if key.role == "log"), default=seq)
                keys[row.keyid] = replace(row, until=successor if row.role == "log" else seq, ended="retired")
            case "key-compromised":
                row = keys[value["keyid"]]
                keys[row.keyid] = replace(row, until=row.end(value["after"]), ended="compromised")
    return keys


@lru_cache(maxsize=256)  # each entry that is written compares all of them
def _row(role: Role, pem: str, added: int) -> KeyRow:
    return KeyRow(fingerprint(load_public_pem(pem)), role, pem, added)


def _mismatch(table: str, key: str) -> LedgerInvalid:
    subject = f"{table} {key:.80}"
    return LedgerInvalid(
        f"index: {subject}: its row says something else than was signed: somebody else wrote it. Nothing is answered "
        "until it is put right (dpserve ledger audit)",
        index=subject,
    )
