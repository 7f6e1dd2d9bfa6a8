"""Who may knock: tokens by name and scope. The ledger knows the sha256 of a token and never the token.

A token is a random 256-bit secret, so its plain hash, though public, gives nothing to guess from.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from accountant.errors import InputError, NameTaken, UnknownName
from accountant.ledger import Ledger
from accountant.names import check_name
from accountant.tables import token_table

SCOPES = ("predict", "train", "audit", "admin")
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Token:
    """`digest`: sha256 of the token in hex. `created`, `revoked`: indices of the entries that say so."""

    name: str
    scopes: tuple[str, ...]
    digest: str
    created: int
    revoked: int | None = None

    def may(self, scopes: Collection[str]) -> bool:
        """Whether one of `scopes` is enough for what is asked; `admin` is enough for everything."""
        return "admin" in self.scopes or any(scope in scopes for scope in self.scopes)

    def to_json(self) -> dict[str, object]:
        fields = {"name": self.name, "scopes": list(self.scopes), "hash": self.digest}
        return {**fields, "created": self.created, "revoked": self.revoked}


def create(ledger: Ledger, name: str, scopes: Collection[str], digest: str) -> Token:
    """Admit a token; NameTaken where a token of that name is still good."""
    check_name("name", name)
    unknown = set(scopes) - set(SCOPES)
    if unknown or not scopes:
        raise InputError(f"scope={sorted(unknown)}: must be one or more of {list(SCOPES)}")
    if not _DIGEST.fullmatch(digest):
        raise InputError("hash: must be 64 hexadecimal digits")
    ordered = [scope for scope in SCOPES if scope in scopes]
    with ledger.log.writing() as writer:
        if _good(writer.connection, name):
            raise NameTaken(f"name={name}: there is a token of that name; revoke it first", name=name)
        seq = writer.append("token-created", name=name, scopes=ordered, hash=digest)
        row = {"hash": digest, "seq": seq, "name": name, "scopes": ",".join(ordered), "revoked": None}
        writer.connection.execute(insert(token_table).values(**row))
    return Token(name, tuple(ordered), digest, seq)


def revoke(ledger: Ledger, name: str) -> Token:
    """End a token, for ever. UnknownName where no good one has that name."""
    with ledger.log.writing() as writer:
        found = _good(writer.connection, name)
        if found is None:
            raise UnknownName(f"name={name!r:.80}: no token of that name is good", name=name)
        index = writer.append("token-revoked", name=name, hash=found.digest)
        where = token_table.c.hash == found.digest
        writer.connection.execute(update(token_table).where(where).values(revoked=index))
    return Token(found.name, found.scopes, found.digest, found.created, index)


def tokens(ledger: Ledger) -> list[Token]:
    """All tokens there ever were, oldest first."""
    with ledger.log.database.reading() as connection:
        return _tokens(connection)


def _tokens(connection: Connection) -> list[Token]:
    rows = connection.execute(select(token_table).order_by(token_table.c.seq))
    return [Token(row.name, tuple(row.scopes.split(",")), row.hash, row.seq, row.revoked) for row in rows]


def _good(connection: Connection, name: str) -> Token | None:
    return next((each for each in _tokens(connection) if each.name == name and each.revoked is None), None)
