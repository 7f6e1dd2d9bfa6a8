"""Whose a model's name is, and which version answers to it.

A name is bound by the first job that asks for it: to its dataset, its target and its principal, until nothing comes of
that job, and then by the next one that stands. All of it is read from signed entries: every `reserved` entry says in
`bound` by which reservation the name was bound then, and the auditor follows. A job for a name of others, or one whose
model shall be champion at once, needs `promote` on that name.

Moving the champion, retiring and restoring are decisions about what was released, that cost nothing and that the ledger
remembers, with who took them and why. The first version needs none: it answers from the start, as its owner's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Executable, bindparam, func, select

from accountant.errors import Forbidden
from accountant.ledger.families.records import Job, Request, State, request_from_entry
from accountant.log.entries import Signed, Writer
from accountant.store import engines
from accountant.store.queries import Queries
from accountant.store.store import body_at, size
from accountant.store.tables import grant_table, job_table, token_table
from dpserve_verify.entries.access import PROVIDED, is_for
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.log.entry import read_entry
from dpserve_verify.privacy.budget import check_name

if TYPE_CHECKING:
    from accountant.access.grants import Access
    from accountant.ledger.ledger import Ledger

# Built once: building a statement costs more than running it. One look into the index for each state.
_NAMED = select(func.min(job_table.c.seq)).where(job_table.c.model == bindparam("name"))
_STANDS = (State.RESERVED, State.STARTED, State.COMMITTED)
_OWNER = select(*(_NAMED.where(job_table.c.state == state.value).scalar_subquery() for state in _STANDS))
_ACTING = select(token_table).where(token_table.c.principal == bindparam("who"))
_GRANTED = select(grant_table).where(grant_table.c.principal == bindparam("who"))
_PROMOTING = select(grant_table).where(grant_table.c.scope.in_(("promote", "admin")))
_FIRST_ISSUED = select(func.min(job_table.c.issued)).where(job_table.c.model == bindparam("name"))
MAX_NAMES_TRIED = 99
PROMOTED, RETIRED, RESTORED = "model-promoted", "model-retired", "model-restored"


def questions(name: str) -> Queries:
    """List what `allow` and `check` will ask about a name."""
    return [(_OWNER, {"name": name}), (_FIRST_ISSUED, {"name": name})]


def questions_of_promoting(principal: str) -> Queries:
    """List what `may_promote` will ask."""
    return [(_ACTING, {"who": principal}), _held(principal), engines.CLOCK]


def _held(principal: str) -> tuple[Executable, dict[str, str]]:
    """Return what asks for the grants of a principal; of whom a provider vouches for, for those of groups as well."""
    return (_PROMOTING, {}) if principal.startswith(PROVIDED) else (_GRANTED, {"who": principal})


def owner(connection: Connection, name: str) -> int | None:
    """Return the reservation that binds this name: the first that something came of or may come of. None: the name is
    free.
    """
    rows = connection.execute(_OWNER, {"name": name}).one()
    return min((seq for seq in rows if seq is not None), default=None)


def owner_of(ledger: Ledger, name: str) -> str | None:
    """Return the principal who owns a name; None where it is free."""
    with ledger.log.signed() as signed:
        seq = owner(signed.connection, name)
        return None if seq is None else str(signed.entry(seq).value["by"])


def require_edit(ledger: Ledger, access: Access, name: str, dataset: str, promote: bool) -> None:
    """Raise Forbidden as for a job of that name: its owner may make a candidate with `train`; a model of another
    owner's name, or a champion, needs `promote` on it. `dataset`: what the model was learnt from."""
    if promote or owner_of(ledger, name) != access.principal:
        return access.require("promote", model=name)
    access.require("train", "promote", model=name, dataset=dataset)


def admit(writer: Writer, request: Request, by: str, promotes: bool) -> int | None:
    """Allow as `allow` does; where the name is free, the request's own reservation, which is about to be appended,
    binds it. None: no model is made.
    """
    if not request.kind.makes_model:
        return None
    bound = allow(writer.connection, request, by, promotes, writer.signed)
    return writer.tree.size if bound is None else bound


def allow(
    connection: Connection, request: Request, by: str, promotes: bool, signed: Signed | None = None
) -> int | None:
    """Return the reservation that binds the request's name; None where it is free. `signed`: it is read as that was
    signed.

    `promotes`: whether who asks holds `promote` on the name, as far as the caller knows. Forbidden, with another name
    that fits, where the request needs that and they do not.
    """
    seq = owner(connection, request.model)
    if seq is None:
        return None
    differs = _differs(connection, seq, request, by, signed)
    if not (differs or request.promote) or (promotes and may_promote(connection, by, request.model)):
        return seq
    if not differs:
        raise Forbidden(
            f"promote: to make a version of {request.model} its champion takes promote on that model; without it the "
            "new version is a candidate",
            needs=["promote"],
            on={"model": request.model},
            would_fit={"model": request.model, "promote": False},
        )
    fits = next(_others(connection, request, by), None)
    raise Forbidden(
        f"model={request.model}: belongs to another {' and '.join(differs)}; a job for it takes promote on that model. "
        f"Another name would fit: {fits}",
        needs=["promote"],
        on={"model": request.model},
        differs=differs,
        would_fit=None if fits is None else {"model": fits},
    )


def _differs(connection: Connection, seq: int, request: Request, by: str, signed: Signed | None = None) -> list[str]:
    """List the fields in which a request differs from the reservation that binds its name."""
    bound = (signed.entry(seq) if signed else read_entry(seq, body_at(connection, seq))).value
    if bound["type"] != "reserved" or bound["model"] != request.model:
        raise LedgerInvalid(f"index: job {seq} is not about the model {request.model}", entry=seq)
    wanted: dict[str, Any] = {"dataset": request.dataset, "target": request.target, "principal": by}
    bound_to = {"dataset": bound["dataset"], "target": bound.get("target"), "principal": bound["by"]}
    return [name for name, value in wanted.items() if value != bound_to[name]]


def _others(connection: Connection, request: Request, by: str) -> Iterator[str]:
    """Yield names that this request could have: free, or its own."""
    words = (request.target, request.dataset, *map(str, range(2, MAX_NAMES_TRIED)))
    for name in (f"{request.model[:48]}-{word}" for word in words if word not in (None, request.model)):
        try:
            check_name("model", name)
        except InputError:
            continue
        seq = owner(connection, name)
        if seq is None or not _differs(connection, seq, replace(request, model=name), by):
            yield name


def may_promote(connection: Connection, principal: str, name: str) -> bool:
    """Return whether a principal holds `promote` on this model by what the ledger says now. One that no token acts for,
    no grant names and no provider vouches for sits at the home and holds its keys.
    """
    acting = connection.execute(_ACTING, {"who": principal}).all()
    statement, values = _held(principal)
    grants = [row for row in connection.execute(statement, values) if is_for(row.principal, principal)]
    clocks = datetime.now(UTC), datetime.fromtimestamp(engines.clock(connection), UTC)
    until = (max(clocks) + timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")  # its entry's time comes after
    return (
        not (acting or grants or principal.startswith(PROVIDED))
        or any(row.revoked is None and not {"promote", "admin"}.isdisjoint(row.scopes.split(",")) for row in acting)
        or any(
            row.revoked is None
            and row.scope in ("promote", "admin")
            and (row.kind, row.name) in (("everything", ""), ("model", name))
            and (row.expires is None or until < row.expires)
            for row in grants
        )
    )


def is_first(ledger: Ledger, job: Job, issued: int) -> bool:
    """Return whether the certificate of entry `issued` is the first of its name, and of a job as the name is bound
    to.
    """
    with ledger.log.database.reading() as connection:
        if connection.execute(_FIRST_ISSUED, {"name": job.model}).scalar() != issued:
            return False
        reserved, seq = read_entry(job.seq, body_at(connection, job.seq)).value, owner(connection, job.model)
        return seq is not None and not _differs(connection, seq, request_from_entry(reserved), reserved["by"])


def check(ledger: Ledger, request: Request, by: str, promotes: bool) -> bool:
    """Check as `allow` does, before anything is reserved; whether the model will be champion of its name."""
    with ledger.log.database.reading() as connection:
        allow(connection, request, by, promotes)
        return request.promote or connection.execute(_FIRST_ISSUED, {"name": request.model}).scalar() is None


def record(
    ledger: Ledger,
    kind: str,
    name: str,
    version: int,
    issued: int,
    reason: str,
    by: str,
    replaces: int | None = None,
    worth: int | None = None,
) -> int:
    """Append an entry of this kind about the model certified by entry `issued`; returns its index. `replaces`: the
    version that a promoted one takes the place of; `worth`: the `evaluated` entry that speaks for it. InputError where
    that entry certifies another model, WrongState where a promoted one was revoked."""
    with ledger.log.writing() as writer:
        optional = {key: number for key, number in (("replaces", replaces), ("worth", worth)) if number is not None}
        return writer.append(kind, name=name, version=version, issued=issued, reason=reason, by=by, **optional)


def newest_promotion(ledger: Ledger, name: str, since: int) -> dict[str, Any] | None:
    """Return what the newest promotion of a version of this name says, of those after entry `since`."""
    with ledger.log.database.reading() as connection:
        for seq in range(size(connection) - 1, since, -1):
            value = read_entry(seq, body_at(connection, seq)).value
            if value["type"] == PROMOTED and value["name"] == name:
                return dict(value)
    return None
