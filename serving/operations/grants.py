"""Grants and tokens: who may do what, for admins. No token's secret can be read from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StrictStr, WithJsonSchema
from pydantic.dataclasses import dataclass

from accountant.access import grants, tokens
from accountant.access.grants import EVERYTHING, KINDS, Grant
from accountant.access.tokens import Token, is_own_principal
from accountant.ledger.families.records import Why
from dpserve_verify.entries.access import MOST_PRINCIPAL, SCOPES, check_principal, check_scope
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import check_name
from serving.operations import Caller, operation
from serving.operations.answers import Answer, Count, Next, Sha256, Time
from serving.wire.list_parts import Part, cut_grants, cut_tokens
from training.requests import Reasoned
from training.requests.base import CLOSED, Checked
from training.requests.fields import ONE_LINE

ADMIN = "admin"
GRANT, GRANTS = "/v1/grants/{grant}", "/v1/grants"


def _check_on(on: Any) -> Any:
    """Return what a grant is on; InputError unless it is everything, or one thing by its kind and name."""
    if on == EVERYTHING:
        return on
    if not isinstance(on, dict) or len(on) != 1 or (kind := next(iter(on))) not in KINDS:
        raise InputError(
            f'on: must be "{EVERYTHING}", or one of {list(KINDS)} with its name, as in {{"dataset": "adult"}}'
        )
    if not isinstance(on[kind], str):
        raise InputError(f"on: {kind} must be a text")
    check_name(kind, on[kind])
    return on


_NAMED = {
    "type": "object", "additionalProperties": False, "minProperties": 1, "maxProperties": 1,
    "properties": {kind: {"type": "string", "minLength": 1, "maxLength": 64} for kind in KINDS},
}  # fmt: skip
_ON = WithJsonSchema({"anyOf": [{"const": EVERYTHING}, _NAMED]})
On = Annotated[Any, _ON]
Scope = Annotated[StrictStr, AfterValidator(check_scope), WithJsonSchema({"enum": list(SCOPES)})]
_PRINCIPAL = {
    "type": "string",
    "minLength": 1,
    "maxLength": MOST_PRINCIPAL,
    "pattern": rf"^(?! |\*$){ONE_LINE}*(?<! )$",
}
Principal = Annotated[StrictStr, AfterValidator(check_principal), WithJsonSchema(_PRINCIPAL)]
_END = {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$"}
End = Annotated[StrictStr, AfterValidator(grants.time_of), WithJsonSchema(_END)]
Ended = Annotated[Count | None, Field(description="the entry that ended it")]


@dataclass(frozen=True, config=CLOSED)
class GrantRequest(Checked):
    """A scope for a principal."""

    principal: Annotated[Principal, Field(description="whom tokens act for")]
    scope: Scope
    on: Annotated[Any, AfterValidator(_check_on), _ON]
    expires: Annotated[End | None, Field(description="2027-01-31, or to the second 2027-01-31T12:00:00Z, in UTC")] = (
        None
    )

    def to_grant(self) -> Grant:
        """Return the grant, which is not entered yet."""
        kind, name = (EVERYTHING, "") if self.on == EVERYTHING else next(iter(self.on.items()))
        return Grant(self.principal, self.scope, kind, name, expires=self.expires)


@dataclass(frozen=True)
class GrantAnswer(Answer):
    """A grant: `grant` is the entry that made it."""

    grant: Count
    principal: str
    scope: Scope
    on: On
    expires: Time | None
    revoked: Ended

    @classmethod
    def of_grant(cls, grant: Grant, **more: Any) -> Self:
        """Return a grant as it stands in the ledger."""
        return cls(grant.index or 0, grant.principal, grant.scope, grant.on, grant.expires, grant.revoked, **more)


@dataclass(frozen=True)
class Stops(Answer):
    """What would stop with a grant."""

    tokens: Annotated[tuple[str, ...], Field(description="may no longer do it")]
    still: Annotated[Count | None, Field(description="another grant that covers all of it")]
    jobs: Annotated[tuple[Count, ...], Field(description="asked for by it and not over: they go on")]


@dataclass(frozen=True)
class StoppingGrant(GrantAnswer):
    """A grant, and what would stop with it."""

    stops: Stops


@dataclass(frozen=True)
class TokenAnswer(Answer):
    """A token; of the secret, the sha256 alone."""

    name: str
    principal: str
    scopes: tuple[str, ...]
    hash: Sha256
    limits: dict[str, int | None]
    created: Annotated[Count, Field(description="the entry that made it")]
    revoked: Ended

    @classmethod
    def of_token(cls, token: Token) -> TokenAnswer:
        """Return a token as it stands in the ledger."""
        about = token.name, token.principal, token.scopes, token.digest
        return cls(*about, asdict(token.limits), token.created, token.revoked)


def full_name(all_tokens: Iterable[TokenAnswer], principal: str) -> str:
    """Return the principal of this name, or whom the good token of this name acts for."""
    good = [token for token in all_tokens if token.revoked is None]
    own = {each.name: each.principal for each in good if is_own_principal(each.principal, each.name, each.created)}
    return tokens.acting_for(own, {token.principal for token in good}, principal)


@dataclass(frozen=True)
class GrantList(Answer):
    """A part of the list of grants."""

    grants: tuple[GrantAnswer, ...]
    next: Next


@dataclass(frozen=True)
class TokenList(Answer):
    """A part of the list of tokens."""

    tokens: tuple[TokenAnswer, ...]
    next: Next


@operation("GET", GRANTS, ADMIN)
def list_grants(
    caller: Caller,
    part: Part,
    principal: Annotated[str | None, Field(description="only of this principal, or of the token of this name")] = None,
) -> GrantList:
    """List grants: who may do what, ended ones too, the oldest first."""
    visible = grants.grants(caller.home.ledger)
    if principal is not None:
        names = principal, full_name(map(TokenAnswer.of_token, tokens.tokens(caller.home.ledger)), principal)
        visible = [grant for grant in visible if grant.principal in names]
    wanted, following = cut_grants(part, visible)
    return GrantList(tuple(map(GrantAnswer.of_grant, wanted)), following)


@operation("POST", GRANTS, ADMIN, errors=(404,), is_repeatable=True)
def add_grant(caller: Caller, body: GrantRequest) -> GrantAnswer:
    """Grant a scope. Where the same holds already, that is the answer."""
    (added,) = grants.add(caller.home.ledger, [body.to_grant()], caller.principal)
    return GrantAnswer.of_grant(added)


@operation("GET", GRANT, ADMIN)
def show_grant(caller: Caller, grant: int) -> StoppingGrant:
    """Show a grant, and what would stop with it."""
    found = grants.stops(caller.home.ledger, grant)
    return StoppingGrant.of_grant(found.grant, stops=Stops(found.tokens, found.still, found.jobs))


@operation("POST", f"{GRANT}/revoke", ADMIN, is_repeatable=True)
def revoke_grant(caller: Caller, grant: int, body: Reasoned) -> GrantAnswer:
    """End a grant, permanently. A second time gets the same answer."""
    return GrantAnswer.of_grant(grants.revoke(caller.home.ledger, grant, Why(caller.principal, body.reason)))


@operation("GET", "/v1/tokens", ADMIN)
def list_tokens(caller: Caller, part: Part) -> TokenList:
    """List the tokens that there ever were, revoked ones too, the oldest first."""
    wanted, following = cut_tokens(part, tokens.tokens(caller.home.ledger))
    return TokenList(tuple(map(TokenAnswer.of_token, wanted)), following)


OPERATIONS = (list_grants, add_grant, show_grant, revoke_grant, list_tokens)
