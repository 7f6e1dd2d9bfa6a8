"""Who may do what: tokens and grants."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.privacy.soundness import require

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay
    from dpserve_verify.audit.replay_budget import Books
from typing import Annotated, Literal

from dpserve_verify.entries.entry import EntryForm, Hex, Index, Name, ReasonedForm, Time, Words
from dpserve_verify.formats.forms import Form, Limits, form_field

MOST_REQUESTS = 10**9
MOST_PRINCIPAL = 200  # characters
PROVIDED = "sso:"  # how principals begin whom a provider vouches for
SCOPES = ("predict", "train", "evaluate", "promote", "audit", "steward", "admin")
Requests = Annotated[int, Limits(low=1, high=MOST_REQUESTS, refusal=f"must be in 1..{MOST_REQUESTS}")]
Scope = Annotated[
    Literal["predict", "train", "evaluate", "promote", "audit", "steward", "admin"],
    Limits(refusal=f"must be one of {[*SCOPES]}"),
]


class LimitsForm(Form):
    """How many requests a token may make."""

    per_second: Requests | None = form_field(absent=True)
    per_day: Requests | None = form_field(absent=True)


class TokenCreated(EntryForm):
    """A secret that acts for a principal, and what it may do to everything."""

    type: Literal["token-created"]
    name: Name
    scopes: list[Scope]
    hash: Hex
    principal: Words
    limits: LimitsForm | None = form_field(absent=True)

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.access.judge_token_created(seq, self)


class TokenRevoked(EntryForm):
    """A token ends, with its schedules."""

    type: Literal["token-revoked"]
    name: Name
    hash: Hex
    created: Index

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.access.judge_token_revoked(seq, self)
        replay.schedules.end_with_token(self.created, seq)


class OnForm(Form):
    """One family, dataset or model."""

    family: Name | None = form_field(absent=True)
    dataset: Name | None = form_field(absent=True)
    model: Name | None = form_field(absent=True)


class GrantAdded(EntryForm):
    """A principal may do something to everything, or to one thing."""

    type: Literal["grant-added"]
    principal: Words
    scope: Scope
    on: Annotated[
        Literal["everything"] | OnForm,
        Limits(refusal="must be everything, or one family, dataset or model by its name"),
    ]
    expires: Time | None
    by: Words

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.access.judge_grant_added(seq, self, replay.books)


class GrantRevoked(ReasonedForm):
    """A grant ends."""

    type: Literal["grant-revoked"]
    grant: Index

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.access.judge_grant_revoked(seq, self)


@dataclass(slots=True)
class TokenState:
    """A token as its entries leave it. `principal`: whom it acts for."""

    seq: int
    name: str
    scopes: str
    principal: str
    revoked: int | None = None


@dataclass(slots=True)
class GrantState:
    """A grant as its entries leave it. `kind`: everything, family, dataset or model; `name`: of it."""

    principal: str
    scope: str
    kind: str
    name: str
    expires: str | None
    revoked: int | None = None


@dataclass
class Rights:
    """`tokens` by their hash, `grants` by the index of their entry. `notes`: what is no problem, and a reader should
    know.
    """

    tokens: dict[str, TokenState] = field(default_factory=dict)
    grants: dict[int, GrantState] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _named: dict[str, int] = field(default_factory=dict)
    _principals: dict[str, int] = field(default_factory=dict)

    def holds(
        self,
        index: Any,
        principal: str,
        scope: str,
        time: str,
        *,
        model: str | None = None,
        dataset: str | None = None,
        families: Collection[str] = (),
    ) -> bool:
        """Return whether the entry at `index` gives a principal this scope, or admin, at `time` on the model or dataset
        named, or on everything; `families`: the names of the dataset's, of which a grant on one covers it alone.
        """
        token = next((candidate for candidate in self.tokens.values() if candidate.seq == index), None)
        if token is not None:
            scopes = set(token.scopes.split(",")) & {scope, "admin"}
            return token.principal == principal and bool(scopes) and token.revoked is None
        grant = self.grants.get(index) if type(index) is int else None
        if grant is None or not is_for(grant.principal, principal) or grant.scope not in (scope, "admin"):
            return False
        on = (grant.kind, grant.name)
        covers = on in (("everything", ""), ("model", model), ("dataset", dataset))
        covers = covers or (grant.kind == "family" and set(families) == {grant.name})
        return covers and grant.revoked is None and (grant.expires is None or time < grant.expires)

    def may_promote(self, principal: str, model: str, time: str) -> bool:
        """Return whether a token or grant lets a principal promote versions of a model at `time`. A principal that no
        token acts for, no grant names and no provider vouches for sits at the home, and holds its keys.
        """
        tokens = (source.seq for source in self.tokens.values() if source.principal == principal)
        sources = [*tokens, *(index for index, source in self.grants.items() if is_for(source.principal, principal))]
        at_home = not sources and not principal.startswith(PROVIDED)
        return at_home or any(self.holds(index, principal, "promote", time, model=model) for index in sources)

    def judge_token_created(self, seq: int, form: TokenCreated) -> None:
        """Judge `token-created`: a secret that acts for a principal, and what it may do to everything."""
        name = form.name
        require(form.hash not in self.tokens, f"token={form.hash}: came before")
        scopes = [scope for scope in SCOPES if scope in form.scopes]
        require(form.scopes == scopes, f"scopes: must be some of {[*SCOPES]}, in this order")
        principal = check_principal(form.principal)
        require(form.limits is None or bool(form.limits.to_json()), "limits: must be per_second, per_day or both")
        free = name not in self._named
        require(free, f"name={name}: there is a token of that name; revoke it first", "name_taken", name=name)
        self._named[name] = seq
        self._judge_principal(seq, name, principal)
        self.tokens[form.hash] = TokenState(seq, name, ",".join(scopes), principal)

    def _judge_principal(self, seq: int, name: str, principal: str) -> None:
        """Judge whom a token acts for: `token:NAME#ENTRY` is the token of that name and entry, or one that goes on with
        what that one had. That a later token has what an earlier one was granted is noted.
        """
        of, _, entry = principal.removeprefix("token:").partition("#")
        before = self._principals.setdefault(principal, seq)
        if principal.startswith("token:") and entry:
            own = (of, entry) == (name, str(seq))
            require(own or before < seq, f"principal={principal!r:.80}: must be of this entry, or of a token before")
        if before < seq and of == name:
            self.notes.append(
                f"entry {seq}: the token {name} acts for {principal}, as that of entry {before} did, and has what that "
                "one was granted"
            )

    def judge_token_revoked(self, seq: int, form: TokenRevoked) -> None:
        """Judge `token-revoked`: a good token is revoked."""
        token = self.tokens.get(form.hash)
        good = token is not None and token.name == form.name and token.revoked is None
        require(good, f"name={form.name!r:.80}: no such token is good")
        same = form.created == self.tokens[form.hash].seq
        require(same, f"created: must be {self.tokens[form.hash].seq}")
        self.tokens[form.hash].revoked = seq
        del self._named[form.name]

    def standing(self, on: Collection[tuple[str, str]], time: str) -> list[int]:
        """Return the grants on one of these (kind, name) that hold at `time`."""
        return [
            seq
            for seq, grant in self.grants.items()
            if (grant.kind, grant.name) in on
            and grant.revoked is None
            and (grant.expires is None or time < grant.expires)
        ]

    def judge_grant_added(self, seq: int, form: GrantAdded, books: Books) -> None:
        """Judge `grant-added`: a principal may do something to everything, or to what stands before; a model may
        come.
        """
        on = {"everything": ""} if isinstance(form.on, str) else form.on.to_json()
        require(len(on) == 1, "on: must be everything, or one family, dataset or model")
        ((kind, name),) = on.items()
        if kind == "dataset":
            books.dataset(name)
        elif kind == "family":
            require(books.has_family(name), f"family={name}: no such family", "unknown_name", family=name)
        self.grants[seq] = GrantState(check_principal(form.principal), form.scope, kind, name, form.expires)

    def judge_grant_revoked(self, seq: int, form: GrantRevoked) -> None:
        """Judge `grant-revoked`: a grant that held ends, with a reason."""
        number = form.grant
        grant = self.grants.get(number)
        if grant is None or grant.revoked is not None:
            raise LedgerInvalid(f"grant={number!r:.40}: no such grant stands before, or it was revoked")
        grant.revoked = seq


def is_for(granted_to: str, principal: str) -> bool:
    """Return whether a grant to one principal may be another's: it is the same, or a group of the provider who vouches
    for that person. Who was in a group when, the provider knows, and no entry says.
    """
    provider, person, _ = principal.partition(" person ")
    is_group = bool(person) and provider.startswith(PROVIDED) and granted_to.startswith(f"{provider} group ")
    return granted_to == principal or is_group


def check_principal(principal: str) -> str:
    """Return `principal` where it is one line of 1 to MOST_PRINCIPAL characters, with no blank at its ends, and does
    not stand for everybody; else InputError.
    """
    line = 1 <= len(principal) <= MOST_PRINCIPAL and principal.isprintable() and principal == principal.strip()
    require(line, f"principal={principal[:80]!r}: must be one line of 1 to {MOST_PRINCIPAL} characters", "bad_input")
    require(principal != "*", "principal='*': stands for everybody in quotas, and is nobody's name", "bad_input")
    return principal


def check_scope(scope: str) -> str:
    """Return a scope; InputError for what is none."""
    require(scope in SCOPES, f"scope={scope[:40]!r}: must be one of {[*SCOPES]}", "bad_input")
    return scope
