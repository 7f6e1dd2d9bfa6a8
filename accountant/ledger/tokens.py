"""Access tokens by name and scope. The ledger knows the sha256 of a token and never the token.

A token is a random 256-bit secret, so its plain hash, though public, gives nothing to guess from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace

from sqlalchemy import ColumnElement, Connection, insert, select, update

from accountant.budget import check_name
from accountant.canonical_bytes import Key
from accountant.errors import InputError, NameTaken, UnknownName
from accountant.ledger.ledger import Ledger
from accountant.store.tables import entry_table, token_table

SCOPES = ("predict", "train", "audit", "admin")
MOST_REQUESTS = 10**9
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Limits:
    """How many requests a token may make in a second of the clock and in a day (UTC); None: as many as it likes."""

    per_second: int | None = None
    per_day: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (type(value) is int and 1 <= value <= MOST_REQUESTS):
                raise InputError(f"{name}={value!r:.40}: must be a whole number from 1 to {MOST_REQUESTS}")

    def __bool__(self) -> bool:
        return self != NO_LIMITS

    def to_json(self) -> dict[str, int]:
        """Those there are."""
        return {name: value for name, value in asdict(self).items() if value is not None}


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Token:
    """`digest`: sha256 of the token in hex. `created`, `revoked`: indices of the entries that say so."""

    name: str
    scopes: tuple[str, ...]
    digest: str
    created: int
    revoked: int | None = None
    limits: Limits = NO_LIMITS

    def may(self, scopes: Collection[str]) -> bool:
        """Whether one of `scopes` is enough for what is asked; `admin` is enough for everything."""
        return "admin" in self.scopes or any(scope in scopes for scope in self.scopes)

    def to_json(self) -> dict[str, object]:
        """All that is known of it: of the token itself, its digest alone."""
        fields = {"name": self.name, "scopes": list(self.scopes), "hash": self.digest}
        return {**fields, "limits": asdict(self.limits), "created": self.created, "revoked": self.revoked}


def create(ledger: Ledger, name: str, scopes: Collection[str], digest: str, limits: Limits = NO_LIMITS) -> Token:
    """Admit a token; NameTaken where a token of that name is still good. Its limits stand in its entry alone."""
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
        more = {"limits": limits.to_json()} if limits else {}
        seq = writer.append("token-created", name=name, scopes=ordered, hash=digest, **more)
        row = {"hash": digest, "seq": seq, "name": name, "scopes": ",".join(ordered), "revoked": None}
        writer.connection.execute(insert(token_table).values(**row))
    return Token(name, tuple(ordered), digest, seq, None, limits)


def revoke(ledger: Ledger, name: str) -> Token:
    """End a token, permanently. UnknownName where no good one has that name."""
    with ledger.log.writing() as writer:
        found = _good(writer.connection, name)
        if found is None:
            raise UnknownName(f"name={name!r:.80}: no token of that name is good", name=name)
        index = writer.append("token-revoked", name=name, hash=found.digest)
        where = token_table.c.hash == found.digest
        writer.connection.execute(update(token_table).where(where).values(revoked=index))
    return replace(found, revoked=index)


_LIMITS = Key("limits")
_NOT_REVOKED = token_table.c.revoked.is_(None)
_TOKENS = (
    select(token_table, entry_table.c.body)
    .join(entry_table, entry_table.c.seq == token_table.c.seq)
    .order_by(token_table.c.seq)
)


def tokens(ledger: Ledger, good: bool = False) -> list[Token]:
    """All tokens there ever were, oldest first; `good`: those that were not revoked."""
    with ledger.log.database.reading() as connection:
        return _tokens(connection, *([_NOT_REVOKED] if good else []))


def _tokens(connection: Connection, *where: ColumnElement[bool]) -> list[Token]:
    rows = connection.execute(_TOKENS.where(*where))
    return [
        Token(row.name, tuple(row.scopes.split(",")), row.hash, row.seq, row.revoked, _limits(bytes(row.body)))
        for row in rows
    ]


def _limits(entry: bytes) -> Limits:
    """What the entry says. Most say nothing, and are not parsed: a server looks at all of them twice a second."""
    return Limits(**json.loads(entry)["limits"]) if _LIMITS.may_stand_in(entry) else NO_LIMITS


def _good(connection: Connection, name: str) -> Token | None:
    return next(iter(_tokens(connection, _NOT_REVOKED, token_table.c.name == name)), None)
