"""Access tokens: whom each acts for, and with which scopes. The ledger knows the sha256 of a token and never the token.

A token is a random 256-bit secret, so its plain hash, though public, gives nothing to guess from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from accountant.errors import NameTaken, UnknownName
from accountant.ledger.ledger import Ledger
from accountant.log.entries import Signed
from accountant.log.newest import account_number
from accountant.store.tables import entry_table, token_table
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats.canonical_bytes import Key
from dpserve_verify.privacy.budget import check_name

SCOPES = ("predict", "train", "evaluate", "promote", "audit", "steward", "admin")
MAX_REQUESTS = 10**9
MAX_PRINCIPAL = 200  # characters
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Limits:
    """How many requests a token may make in a second of the clock and in a day (UTC); None: as many as it likes."""

    per_second: int | None = None
    per_day: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (type(value) is int and 1 <= value <= MAX_REQUESTS):
                raise InputError(f"{name}={value!r:.40}: must be a whole number from 1 to {MAX_REQUESTS}")

    def __bool__(self) -> bool:
        return self != NO_LIMITS

    def to_json(self) -> dict[str, int]:
        """Return the limits that are set, as JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Token:
    """`digest`: sha256 of the token in hex. `created`, `revoked`: indices of the entries that say so. `principal`: whom
    it acts for.
    """

    name: str
    scopes: tuple[str, ...]
    digest: str
    created: int
    revoked: int | None = None
    limits: Limits = NO_LIMITS
    principal: str = ""

    def to_json(self) -> dict[str, object]:
        """Return it as JSON; of the secret, the digest alone."""
        fields = {"name": self.name, "principal": self.principal, "scopes": list(self.scopes), "hash": self.digest}
        return {**fields, "limits": asdict(self.limits), "created": self.created, "revoked": self.revoked}


def check_principal(principal: str) -> str:
    """Return `principal` where it is one line of 1 to MOST_PRINCIPAL characters, with no blank at its ends, and does
    not stand for everybody; else InputError.
    """
    if not 1 <= len(principal) <= MAX_PRINCIPAL or not principal.isprintable() or principal != principal.strip():
        raise InputError(f"principal={principal[:80]!r}: must be one line of 1 to {MAX_PRINCIPAL} characters")
    if principal == "*":
        raise InputError("principal='*': stands for everybody in quotas, and is nobody's name")
    return principal


def own_principal(name: str) -> str:
    """Whom a token of this name acts for, where nobody else was named."""
    return f"token:{name}"


def create(
    ledger: Ledger,
    name: str,
    scopes: Collection[str],
    digest: str,
    limits: Limits = NO_LIMITS,
    principal: str | None = None,
) -> Token:
    """Admit a token; NameTaken where a token of that name is still good. Its limits stand in its entry alone.

    Args:
        scopes: what it may do to everything; none where a `principal` is named, whose grants then say all.
        principal: whom it acts for; None: itself (`own_principal`).
    """
    check_name("name", name)
    unknown = set(scopes) - set(SCOPES)
    if unknown or not (scopes or principal):
        raise InputError(f"scope={sorted(unknown)}: must be one or more of {list(SCOPES)}, or none with a principal")
    acts_for = check_principal(principal or own_principal(name))
    if not _DIGEST.fullmatch(digest):
        raise InputError("hash: must be 64 hexadecimal digits")
    ordered = [scope for scope in SCOPES if scope in scopes]
    with ledger.log.writing() as writer:
        if _good(writer.connection, name):
            raise NameTaken(f"name={name}: there is a token of that name; revoke it first", name=name)
        limit_fields = {"limits": limits.to_json()} if limits else {}
        seq = writer.append("token-created", name=name, scopes=ordered, hash=digest, principal=acts_for, **limit_fields)
        row = {"hash": digest, "seq": seq, "name": name, "scopes": ",".join(ordered), "principal": acts_for}
        writer.connection.execute(insert(token_table).values(**row))
    return Token(name, tuple(ordered), digest, seq, None, limits, acts_for)


def acting_for(good: Collection[str], text: str) -> str:
    """Whom `text` names: `shop` is short for `token:shop`, where a token of that name acts for itself, and for nobody's
    own name. `good`: the principals of the tokens that are good.
    """
    principal = own_principal(text)
    return principal if principal in good and text not in good else text


def revoke(ledger: Ledger, name: str) -> Token:
    """End a token, permanently. UnknownName where no good one has that name."""
    with ledger.log.writing() as writer:
        token = _good(writer.connection, name)
        if token is None:
            raise UnknownName(f"name={name!r:.80}: no token of that name is good", name=name)
        index = writer.append("token-revoked", name=name, hash=token.digest, created=token.created)
        where = token_table.c.hash == token.digest
        writer.connection.execute(update(token_table).where(where).values(revoked=index))
    return replace(token, revoked=index)


_LIMITS = Key("limits")
_NOT_REVOKED = token_table.c.revoked.is_(None)
_TOKENS = (
    select(token_table, entry_table.c.body)
    .outerjoin(entry_table, entry_table.c.seq == token_table.c.seq)
    .order_by(token_table.c.seq)
)


def tokens(ledger: Ledger, good: bool = False) -> list[Token]:
    """Return all tokens there ever were, oldest first, as the index has them; `good`: those that were not revoked. They
    are shown; what they may do is asked of `sound_tokens`.
    """
    with ledger.log.database.reading() as connection:
        return _tokens(connection, *([_NOT_REVOKED] if good else []))


def sound_tokens(signed: Signed, *where: ColumnElement[bool]) -> tuple[list[Token], list[str]]:
    """Good tokens, each read from the entry that was signed, whatever its row says; and what is wrong with rows that
    say something else: such a token is good for nothing.
    """
    sound_rows, wrong = [], []
    rows = signed.connection.execute(_TOKENS.where(_NOT_REVOKED, *where)).all()
    for row, newest in zip(rows, signed.newest.of([account_number(row.seq) for row in rows]), strict=True):
        try:
            body = signed.body(row.seq) if row.body is None else bytes(row.body)
            signed.check(row.seq, body)
            sound = newest == 0 and says_token(row.hash, row.name, row.scopes, row.principal, body)
        except LedgerInvalid:
            sound = False
        if sound:
            sound_rows.append(_token_of_row(row))
        else:
            why = f"entry {newest} ended it" if newest else f"entry {row.seq} does not say so"
            wrong.append(f"token {row.name:.80}: its row says that it is good, and {why}")
    return sound_rows, wrong


@lru_cache(maxsize=4096)  # a server looks at all of them twice a second
def says_token(digest: str, name: str, scopes: str, principal: str | None, body: bytes) -> bool:
    """Return whether an entry makes the token that these columns of its row speak of."""
    value = json.loads(body)
    fields = (value.get("type"), value.get("hash"), value.get("name"), ",".join(value.get("scopes", ())))
    return fields == ("token-created", digest, name, scopes) and value.get("principal") == principal


def _tokens(connection: Connection, *where: ColumnElement[bool]) -> list[Token]:
    return [_token_of_row(row) for row in connection.execute(_TOKENS.where(*where))]


def _token_of_row(row: Row[Any]) -> Token:
    return Token(
        row.name,
        tuple(filter(None, row.scopes.split(","))),
        row.hash,
        row.seq,
        row.revoked,
        _limits(bytes(row.body or b"")),
        row.principal or "",
    )


def _limits(entry: bytes) -> Limits:
    """Read the limits that an entry states. Most state none, and are not parsed: a server looks at all of them twice a
    second.
    """
    return Limits(**json.loads(entry)["limits"]) if _LIMITS.may_stand_in(entry) else NO_LIMITS


def _good(connection: Connection, name: str) -> Token | None:
    return next(iter(_tokens(connection, _NOT_REVOKED, token_table.c.name == name)), None)
