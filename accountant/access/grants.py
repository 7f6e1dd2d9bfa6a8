"""Who may do what: grants of a scope, on everything or on what they name, to principals.

A principal is a name: what a token acts for, or who sits at the command line. What a token was itself given, it may do
to everything; what its principal's grants say is added. Grants are entries: added, revoked with a reason, or expired.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from shlex import quote

from sqlalchemy import ColumnElement, Connection, insert, select, update

from accountant.access.tokens import SCOPES, Token, living_principal, sound_tokens
from accountant.errors import Forbidden, UnknownName
from accountant.ledger import job_rows
from accountant.ledger.families.records import Job, SeenJobs, State, Why
from accountant.ledger.ledger import Ledger
from accountant.log.entries import Signed, Writer
from accountant.log.newest import account_number
from accountant.store import engines
from accountant.store.queries import Queries
from accountant.store.tables import grant_table, token_table
from dpserve_verify.errors import InputError, LedgerInvalid

EVERYTHING = "everything"
KINDS = ("family", "dataset", "model")
ASKING = ("train", "evaluate")  # scopes that ask for jobs
MAX_JOBS, MAX_SEQ = 200, 2**53
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


@dataclass(frozen=True)
class Grant:
    """A scope that a principal holds on one object, or on everything.

    Attributes:
        kind: everything, or the kind of object that `name` names.
        index: the entry that added it; None before it stands in the ledger.
        expires: in UTC to the second; None: never.
        revoked: the entry that ended it.
        own: whether it is a scope that a token was itself given.
    """

    principal: str
    scope: str
    kind: str = EVERYTHING
    name: str = ""
    index: int | None = None
    expires: str | None = None
    revoked: int | None = None
    own: bool = False

    @property
    def on(self) -> str | dict[str, str]:
        """Return the object of the grant as its entry spells it: "everything", or {kind: name}."""
        return EVERYTHING if self.kind == EVERYTHING else {self.kind: self.name}

    def is_good(self, now: str) -> bool:
        """Return whether it is in force at this time."""
        return self.revoked is None and (self.expires is None or now < self.expires)


Families = Callable[[str], frozenset[str]]


@dataclass(frozen=True)
class Access:
    """What a principal may do now.

    Attributes:
        families_of: returns the names of a dataset's families; none where there is no such dataset.
        operator: whether they sit at the command line with the keys, and no grant ever named them: they may do
            everything.
    """

    principal: str
    grants: tuple[Grant, ...]
    families_of: Families = field(compare=False)
    operator: bool = False

    @cached_property
    def everywhere(self) -> frozenset[str]:
        """Return the scopes that hold on everything."""
        scopes = {grant.scope for grant in self.grants if grant.kind == EVERYTHING}
        return frozenset(SCOPES) if self.operator or "admin" in scopes else frozenset(scopes)

    @cached_property
    def scopes(self) -> tuple[str, ...]:
        """Return the scopes that hold on at least one object, in the order of SCOPES."""
        granted = {grant.scope for grant in self.grants} | self.everywhere
        return tuple(scope for scope in SCOPES if scope in granted)

    def has(self, *scopes: str) -> bool:
        """Return whether one of these scopes, or `admin`, is held on anything at all."""
        return any(scope in scopes or scope == "admin" for scope in self.scopes)

    def owns(self, by: str) -> bool:
        """Return whether what `by` asked for is theirs."""
        return by == self.principal

    def may(
        self, *scopes: str, family: str | None = None, dataset: str | None = None, model: str | None = None
    ) -> bool:
        """Return whether one of `scopes` is held on one of the things that are named, of names without a version; where
        none is, on everything.
        """
        if any(scope in self.everywhere for scope in scopes):
            return True
        return self.by_which(*scopes, family=family, dataset=dataset, model=model) is not None

    def by_which(
        self, *scopes: str, family: str | None = None, dataset: str | None = None, model: str | None = None
    ) -> Grant | None:
        """Return the grant by which they `may`; None where there is none, as for an operator."""
        grants = [grant for grant in self.grants if grant.scope in scopes or grant.scope == "admin"]
        return self._cover(grants, family, dataset, model)

    def names(self, scope: str, *, dataset: str | None = None, model: str | None = None) -> bool:
        """Decide as `may` does, by grants alone: the scopes that a token was itself given name nothing, but for
        admin.
        """
        grants = [g for g in self.grants if g.scope == "admin" or (g.scope == scope and not g.own)]
        return self.operator or self._cover(grants, None, dataset, model) is not None

    def may_see(self, job: Job) -> bool:
        """Return whether a job may be seen and watched: their own, what a grant to train names, what audit or steward
        is held on.
        """
        return self.may_cancel(job) or self.may("audit", "steward", dataset=job.dataset)

    def may_cancel(self, job: Job) -> bool:
        """Return whether a job may be cancelled: their own, and what a grant to train names."""
        is_asker = self.has(*ASKING) and self.owns(job.by)
        return is_asker or self.names("train", dataset=job.dataset, model=job.model)

    def seen_jobs(self, datasets: Iterable[str]) -> SeenJobs | None:
        """Return, as a condition for a query, the jobs on these datasets that `may_see` lets through; None: all."""
        if self.names("train") or self.may("audit", "steward"):
            return None
        asker = self.principal if self.has(*ASKING) else None
        visible = (
            name for name in datasets if self.names("train", dataset=name) or self.may("audit", "steward", dataset=name)
        )
        scopes = ("train", "admin")
        models = (grant.name for grant in self.grants if grant.kind == "model" and grant.scope in scopes)
        return SeenJobs(asker, tuple(visible), tuple(models))

    def _cover(self, held: Iterable[Grant], family: str | None, dataset: str | None, model: str | None) -> Grant | None:
        by_object = {(grant.kind, grant.name): grant for grant in held}
        for key in ((EVERYTHING, ""), ("family", family), ("dataset", dataset), ("model", model)):
            if key in by_object:
                return by_object[key]
        granted = {name: grant for (kind, name), grant in by_object.items() if kind == "family"}
        if dataset is None or not granted:
            return None
        members = self.families_of(dataset)  # rows of several families are charged to each
        return granted[min(members)] if members and members <= granted.keys() else None

    def require(
        self, *scopes: str, family: str | None = None, dataset: str | None = None, model: str | None = None
    ) -> None:
        """Raise Forbidden unless `may`: the error names scope, object, and how that is granted."""
        if self.may(*scopes, family=family, dataset=dataset, model=model):
            return
        objects = [(kind, name) for kind, name in zip(KINDS, (family, dataset, model), strict=True) if name is not None]
        raise self.refusal(scopes, *objects)

    def refusal(self, scopes: Iterable[str], *named: tuple[str, str]) -> Forbidden:
        """Return the error of a refusal: one of `scopes` is needed on one of `named`."""
        needs = list(scopes)
        on = " or ".join(f"{kind} {name[:80]}" for kind, name in named) or EVERYTHING
        option = f" --{named[0][0]} {named[0][1][:80]}" if named else ""
        takes = " or ".join(dict.fromkeys([*needs, "admin"]))
        return Forbidden(
            f"scope: {self.principal} has {list(self.scopes)}; this takes {takes} on {on}. Whoever has admin can grant "
            f"it: dpserve grant add --principal {quote(self.principal)} --scope {needs[0]}{option}",
            needs=needs,
            on=dict(named) or EVERYTHING,
        )


def now() -> str:
    """Return this second by this machine's clock, in UTC, as entries spell it: what is shown and asked for. What holds
    is judged by `ledger_time`.
    """
    return spell(datetime.now(UTC).timestamp())


def spell(seconds: float) -> str:
    """Return a second, of those since 1970, as entries spell it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ledger_time(signed: Signed) -> str:
    """Return this second by the clock of the ledger's database, one for all hosts that share it. SQLite has that of
    this machine: there, never one before the newest entry, so that a clock that is set back renews no grant.
    """
    time = spell(engines.clock(signed.connection))
    if not engines.has_own_clock(signed.connection) and signed.size:
        time = max(time, str(signed.entry(signed.size - 1).value["time"]))
    return time


def time_of(text: str) -> str:
    """Read `2027-01-31` or `2027-01-31T12:00:00Z` as entries spell it; InputError where it is neither, or is over."""
    time = f"{text}T00:00:00Z" if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else text
    try:
        if not _TIME.fullmatch(time):
            raise ValueError
        datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        raise InputError(f"expires={text[:40]!r}: must be like 2027-01-31 or 2027-01-31T12:00:00Z, in UTC") from None
    if time <= now():
        raise InputError(f"expires={text}: is over")
    return time


def add(ledger: Ledger, wanted: Iterable[Grant], by: str) -> list[Grant]:
    """Enter grants, all or none; as they stand then, with their indices. One that holds already is not entered again.

    InputError for a scope, time or principal that is none; UnknownName for a family or dataset that is not registered;
    for principals of tokens as `living_principal`. A model may be named before there is one.
    """
    with ledger.log.writing() as writer:
        named = (replace(each, principal=living_principal(writer.signed, each.principal)) for each in wanted)
        return enter(writer, named, by)


def enter(writer: Writer, wanted: Iterable[Grant], by: str) -> list[Grant]:
    """Enter grants within a transaction as `add` does, to principals as they are spelled."""
    added = []
    for grant in dict.fromkeys(wanted):
        holding, _ = sound_grants(writer.signed, grant_table.c.principal == grant.principal)
        if same := [grant_held for grant_held in holding if replace(grant_held, index=None) == grant]:
            added.append(same[0])
            continue
        fields = {"principal": grant.principal, "scope": grant.scope, "on": grant.on, "expires": grant.expires}
        index = writer.append("grant-added", **fields, by=by)
        row = {"seq": index, "principal": grant.principal, "scope": grant.scope, "kind": grant.kind}
        row |= {"name": grant.name, "expires": grant.expires}
        writer.connection.execute(insert(grant_table).values(**row))
        added.append(replace(grant, index=index))
    return added


def revoke(ledger: Ledger, index: int, why: Why) -> Grant:
    """End the grant of the entry at `index`, permanently; as it stands then, also where it was ended before.
    UnknownName where it is no grant.
    """
    with ledger.log.writing() as writer:
        grant, connection = _read_one(writer.connection, index), writer.connection
        ended = writer.signed.after(account_number(index))  # whatever the row says
        if not ended:
            ended = writer.append("grant-revoked", grant=index, reason=why.reason, by=why.by)
            connection.execute(update(grant_table).where(grant_table.c.seq == index).values(revoked=ended))
    return replace(grant, revoked=ended)


@dataclass(frozen=True)
class Stops:
    """What ends with a grant: `tokens`, by their names, may no longer do it. `still`: another grant by which its
    principal may do all of it, with which nothing ends. `jobs` were asked for by it and are not over: they go on.
    """

    grant: Grant
    tokens: tuple[str, ...]
    still: int | None
    jobs: tuple[int, ...]


def stops(ledger: Ledger, index: int) -> Stops:
    """Return what revoking the grant of the entry at `index` would stop now. UnknownName where it is no grant."""
    with ledger.log.signed() as signed:
        grant = _read_one(signed.connection, index)
        holding, _ = sound_grants(signed, grant_table.c.principal == grant.principal)
        good, _ = sound_tokens(signed)
        seen_jobs = SeenJobs(grant.principal, (), ())
        running = [
            job
            for state in (State.RESERVED, State.STARTED)
            for job in job_rows.page(signed.connection, None, state, None, MAX_SEQ, MAX_JOBS, seen_jobs)
        ]
    families = families_of(ledger)
    on = {} if grant.kind == EVERYTHING else {grant.kind: grant.name}
    remaining = tuple(each for each in holding if each.index != index)
    still = Access(grant.principal, remaining, families).by_which(grant.scope, **on)
    acting = (token for token in good if token.principal == grant.principal and remaining != tuple(holding))
    tokens = (
        each.name for each in acting if not Access("", (*of_token(each), *remaining), families).may(grant.scope, **on)
    )
    access = Access(grant.principal, (grant,), families)
    jobs = (job.seq for job in running if access.by_which("train", "evaluate", dataset=job.dataset, model=job.model))
    return Stops(grant, tuple(tokens), None if still is None else still.index, tuple(jobs))


def _read_one(connection: Connection, index: int) -> Grant:
    rows = _read(connection, grant_table.c.seq == index)
    if not rows:
        raise UnknownName(f"grant={index}: no such grant", grant=index)
    return rows[0]


def grants(ledger: Ledger) -> list[Grant]:
    """Return all grants ever made, the oldest first."""
    with ledger.log.database.reading() as connection:
        return _read(connection)


def _read(connection: Connection, *where: ColumnElement[bool]) -> list[Grant]:
    rows = connection.execute(select(grant_table).where(*where).order_by(grant_table.c.seq), {})
    return [Grant(row.principal, row.scope, row.kind, row.name, row.seq, row.expires, row.revoked) for row in rows]


def sound_grants(signed: Signed, *where: ColumnElement[bool]) -> tuple[list[Grant], list[str]]:
    """Return the grants that hold now, each read from the entry that was signed, whatever its row says; and what is
    wrong with rows that say something else: such a grant gives nothing.
    """
    sound_rows, wrong, time = [], [], ledger_time(signed)
    in_force = [grant for grant in _read(signed.connection, *where) if grant.is_good(time)]
    indices = [grant.index or 0 for grant in in_force]
    for grant, index, newest in zip(
        in_force, indices, signed.latest([account_number(index) for index in indices]), strict=True
    ):
        try:
            value = signed.entry(index).value
            fields = {"principal": grant.principal, "scope": grant.scope, "on": grant.on, "expires": grant.expires}
            entry_fields = {name: value.get(name) for name in fields}
            sound = newest == 0 and value["type"] == "grant-added" and entry_fields == fields
        except LedgerInvalid:
            sound = False
        if sound:
            sound_rows.append(grant)
        else:
            why = f"entry {newest} ended it" if newest else "the entry does not say so"
            wrong.append(f"grant {index}: its row says that it holds, and {why}")
    return sound_rows, wrong


QUESTIONS: Queries = ((select(grant_table).order_by(grant_table.c.seq), {}), engines.CLOCK)  # of all `sound_grants`


def of_token(token: Token) -> list[Grant]:
    """List what the token was itself given, on everything."""
    return [Grant(token.principal, scope, index=token.created, own=True) for scope in token.scopes]


def access_of(ledger: Ledger, principal: str, *, operator: bool = False) -> Access:
    """Return what a principal may do now, by their grants and by what tokens were given that act for them.

    `operator`: they sit at the command line, and hold the keys: they may do everything while no grant ever named them.
    """
    with ledger.log.signed() as signed:
        rows = _read(signed.connection, grant_table.c.principal == principal)
        granted, _ = sound_grants(signed, grant_table.c.principal == principal)
        acting, _ = sound_tokens(signed, token_table.c.principal == principal)
    token_grants = (grant for token in acting for grant in of_token(token))
    return Access(principal, (*token_grants, *granted), families_of(ledger), operator and not rows)


@dataclass(frozen=True)
class RightsNow:
    """What everybody may do at one moment, by all tokens and grants that hold then, read at once.

    Attributes:
        tokens: the good ones, by the entries that made them.
        granted: the grants that hold, by principal.
        named: whom a grant ever named.
    """

    tokens: Mapping[int, Token]
    granted: Mapping[str, tuple[Grant, ...]]
    named: frozenset[str]
    families_of: Families = field(compare=False)

    @classmethod
    def of(cls, ledger: Ledger, principal: str | None = None) -> RightsNow:
        """Read them from what was signed; those of one principal alone, where it is given."""
        with ledger.log.signed() as signed:
            return cls.read(signed, families_of(ledger), principal)

    @classmethod
    def read(cls, signed: Signed, families: Families, principal: str | None = None) -> RightsNow:
        """Read them as `of` does, by what was signed before a transaction."""
        granted_to = [] if principal is None else [grant_table.c.principal == principal]
        acting_for = [] if principal is None else [token_table.c.principal == principal]
        rows = _read(signed.connection, *granted_to)
        holding, _ = sound_grants(signed, *granted_to)
        good, _ = sound_tokens(signed, *acting_for)
        principals = {grant.principal for grant in holding}
        granted = {name: tuple(grant for grant in holding if grant.principal == name) for name in principals}
        named = frozenset(row.principal for row in rows)
        return cls({token.created: token for token in good}, granted, named, families)

    def access(self, principal: str, token: int | None) -> Access:
        """Return what may be done by the token that the entry `token` made, for the principal; None: at the command
        line, by who holds the keys. Forbidden where that token was revoked.
        """
        granted = self.granted.get(principal, ())
        if token is None:
            acting = (each for each in self.tokens.values() if each.principal == principal)
            own = (grant for each in acting for grant in of_token(each))
            return Access(principal, (*own, *granted), self.families_of, principal not in self.named)
        good = self.tokens.get(token)
        if good is None or good.principal != principal:
            raise Forbidden(f"token: that of entry {token} was revoked, and what it made ended with it")
        return Access(principal, (*of_token(good), *granted), self.families_of)


def families_of(ledger: Ledger) -> Families:
    """Return how `Access` finds the families of a dataset."""

    def names(dataset: str) -> frozenset[str]:
        try:
            return frozenset(family.name for family in ledger.dataset(dataset).families)
        except UnknownName:
            return frozenset()

    return names
