"""Access tokens: whom each acts for, and with which scopes. The ledger knows the sha256 of a token and never the token.

A name that is used again names another token: it acts for a principal that its entry is part of, and has nothing of
what the earlier one was granted.

A token is a random 256-bit secret, so its plain hash, though public, gives nothing to guess from.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from accountant.errors import UnknownName, WrongState
from accountant.ledger.ledger import Ledger
from accountant.ledger.schedules import end_with_token
from accountant.log.entries import Signed, Writer
from accountant.log.newest import account_number
from accountant.store.queries import Queries
from accountant.store.tables import entry_table, token_table
from dpserve_verify.entries import access
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats.canonical_bytes import Key

SCOPES = access.SCOPES
OWN = "token:"  # how principals of tokens begin that act for themselves


@dataclass(frozen=True)
class Limits:
    """How many requests a token may make in a second of the clock and in a day (UTC); None: as many as it likes."""

    per_second: int | None = None
    per_day: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (type(value) is int and 1 <= value <= access.MOST_REQUESTS):
                raise InputError(f"{name}={value!r:.40}: must be a whole number from 1 to {access.MOST_REQUESTS}")

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

    @property
    def acts_for_itself(self) -> bool:
        """Return whether its principal is its own, and named after it."""
        return is_own_principal(self.principal, self.name, self.created)


def own_principal(name: str, entry: int | None = None) -> str:
    """Return whom a token acts for, where nobody else was named: the first of its name `token:NAME`; one of a name that
    was used before `token:NAME#ENTRY`, of the `entry` that made it.
    """
    return f"{OWN}{name}" if entry is None else f"{OWN}{name}#{entry}"


def is_own_principal(principal: str, name: str, entry: int) -> bool:
    """Return whether a token of this name, which the `entry` made, acts for itself under this principal."""
    return principal in (own_principal(name), own_principal(name, entry))


def create(
    ledger: Ledger,
    name: str,
    scopes: Collection[str],
    digest: str,
    limits: Limits = NO_LIMITS,
    principal: str | None = None,
) -> Token:
    """Admit a token as `enter` does, in a transaction of its own. InputError where it may do nothing."""
    if not (scopes or principal):
        raise InputError(f"scope=[]: must be one or more of {list(SCOPES)}, or none with a principal")
    with ledger.log.writing() as writer:
        return enter(writer, name, scopes, digest, limits, principal)


def enter(
    writer: Writer,
    name: str,
    scopes: Collection[str],
    digest: str,
    limits: Limits = NO_LIMITS,
    principal: str | None = None,
) -> Token:
    """Admit a token; NameTaken where a token of that name is still good. Its limits stand in its entry alone.

    Args:
        scopes: what it may do to everything; none where the grants of its principal say all.
        principal: whom it acts for, and goes on with what that one has; None: itself (`own_principal`), who has nothing
            yet, also where the name was used before.
    """
    if principal is None:
        used = writer.signed.newest.named(own_principal(name))
        acts_for = own_principal(name, writer.tree.size if used else None)
    else:
        acts_for = living_principal(writer.signed, principal, ended=True)
    ordered = sorted(set(scopes), key=(*SCOPES, *scopes).index)
    limit_fields = {"limits": limits.to_json()} if limits else {}
    seq = writer.append("token-created", name=name, scopes=ordered, hash=digest, principal=acts_for, **limit_fields)
    row = {"hash": digest, "seq": seq, "name": name, "scopes": ",".join(ordered), "principal": acts_for}
    writer.connection.execute(insert(token_table).values(**row))
    return Token(name, tuple(ordered), digest, seq, None, limits, acts_for)


def living_principal(signed: Signed, text: str, *, ended: bool = False) -> str:
    """Return the principal that `text` names now: `token:shop` is the good token of that name, whichever entry made it.
    Anything but `token:...` names itself, and so does a token that is still to come.

    WrongState where every token that it names was revoked (unless `ended`: that one is meant), UnknownName where no
    token was made by the entry that it names.
    """
    if not text.startswith(OWN):
        return text
    good, _ = sound_tokens(signed, token_table.c.principal == text)
    if good:
        return text
    name, _, entry = text.removeprefix(OWN).partition("#")
    own = [token for token in _tokens(signed.connection, token_table.c.name == name) if token.acts_for_itself]
    good, _ = sound_tokens(signed, token_table.c.name == name)
    living = next((token.principal for token in good if token.acts_for_itself), None)
    if living is not None and not entry:
        return living
    named = [token for token in own if token.principal == text]
    if entry and not named:
        raise UnknownName(f"principal={text[:80]}: no token was made by that entry; see dpserve token list")
    if not own or (ended and named):
        return text
    now = f"the good one of that name acts for {living}" if living else f"make one: dpserve token create --name {name}"
    raise WrongState(
        f"principal={text}: its token was revoked by entry {own[-1].revoked}, and nobody would have what is given to "
        f"it now; {now}, or name another (dpserve token list)"
    )


def resolve_principal(ledger: Ledger, text: str) -> str:
    """Return the principal that `text` names now, as `living_principal` does."""
    with ledger.log.signed() as signed:
        return living_principal(signed, text)


def acting_for(own: Mapping[str, str], good: Collection[str], text: str) -> str:
    """Return whom `text` names: `shop` is short for whom the token of that name acts for, where that is itself, and
    nobody's own name is `shop`. `own`: by name, the principals of good tokens that act for themselves; `good`: of all
    good tokens.
    """
    return text if text in good else own.get(text.removeprefix(OWN), text)


def revoke(ledger: Ledger, name: str) -> Token:
    """End a token as `end` does, in a transaction of its own."""
    with ledger.log.writing() as writer:
        return end(writer, name)[0]


def end(writer: Writer, name: str) -> tuple[Token, list[str]]:
    """End a token, and the schedules that it made, permanently; return it and their names. UnknownName where no good
    one has that name.
    """
    token = _good(writer.connection, name)
    if token is None:
        raise UnknownName(f"name={name!r:.80}: no token of that name is good", name=name)
    index = writer.append("token-revoked", name=name, hash=token.digest, created=token.created)
    where = token_table.c.hash == token.digest
    writer.connection.execute(update(token_table).where(where).values(revoked=index))
    ended = end_with_token(writer.connection, token.created, index)
    return replace(token, revoked=index), ended


_LIMITS = Key("limits")
_NOT_REVOKED = token_table.c.revoked.is_(None)
_TOKENS = (
    select(token_table, entry_table.c.body)
    .outerjoin(entry_table, entry_table.c.seq == token_table.c.seq)
    .order_by(token_table.c.seq)
)


QUESTIONS: Queries = ((_TOKENS.where(_NOT_REVOKED), {}),)  # of all `sound_tokens`


def tokens(ledger: Ledger, good: bool = False) -> list[Token]:
    """Return all tokens there ever were, oldest first, as the index has them; `good`: those that were not revoked. They
    are shown; what they may do is asked of `sound_tokens`.
    """
    with ledger.log.database.reading() as connection:
        return _tokens(connection, *([_NOT_REVOKED] if good else []))


def sound_tokens(signed: Signed, *where: ColumnElement[bool]) -> tuple[list[Token], list[str]]:
    """Return the good tokens, each read from the entry that was signed, whatever its row says; and what is wrong with
    rows that say something else: such a token is good for nothing.
    """
    sound_rows, wrong = [], []
    rows = signed.connection.execute(_TOKENS.where(_NOT_REVOKED, *where), {}).all()
    for row, newest in zip(rows, signed.latest([account_number(row.seq) for row in rows]), strict=True):
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
    """Read a token. Most entries state no limits, and are not parsed: a server looks at all of them twice a second."""
    entry = bytes(row.body or b"")
    limits = Limits(**json.loads(entry)["limits"]) if _LIMITS.may_stand_in(entry) else NO_LIMITS
    return Token(
        row.name,
        tuple(filter(None, row.scopes.split(","))),
        row.hash,
        row.seq,
        row.revoked,
        limits,
        row.principal or "",
    )


def _good(connection: Connection, name: str) -> Token | None:
    return next(iter(_tokens(connection, _NOT_REVOKED, token_table.c.name == name)), None)
