"""Who may do what: tokens and grants."""

from __future__ import annotations

from typing import Annotated, Literal

from dpserve_verify.entries.entry import EntryForm, Hex, Index, Name, ReasonedForm, Time, Words
from dpserve_verify.formats.forms import Form, Limits, form_field

MOST_REQUESTS = 10**9
SCOPES = ["predict", "train", "evaluate", "promote", "audit", "steward", "admin"]
Requests = Annotated[int, Limits(low=1, high=MOST_REQUESTS, refusal=f"must be in 1..{MOST_REQUESTS}")]
Scope = Annotated[
    Literal["predict", "train", "evaluate", "promote", "audit", "steward", "admin"],
    Limits(refusal=f"must be one of {SCOPES}"),
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


class TokenRevoked(EntryForm):
    """A token ends, with its schedules."""

    type: Literal["token-revoked"]
    name: Name
    hash: Hex
    created: Index


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
    on: Literal["everything"] | OnForm
    expires: Time | None
    by: Words


class GrantRevoked(ReasonedForm):
    """A grant ends."""

    type: Literal["grant-revoked"]
    grant: Index
