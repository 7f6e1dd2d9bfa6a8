"""The beginning of a ledger, and its keys."""

from __future__ import annotations

from typing import Annotated, Literal

from dpserve_verify.entries.entry import EntryForm, Index, ReasonedForm, Text
from dpserve_verify.formats.forms import Limits, form_field

FORMAT = "dpserve-ledger/v1"
Role = Annotated[Literal["issuer", "log"], Limits(refusal="must be one of ('issuer', 'log')")]


class Genesis(EntryForm):
    """The ledger begins, with its first keys."""

    type: Literal["genesis"]
    format: Annotated[Literal["dpserve-ledger/v1"], Limits(refusal=f"must be {FORMAT}")]
    origin: Text
    issuer: Text = form_field(about="PEM of the public key that signs certificates")
    log: Text = form_field(about="PEM of the public key that signs checkpoints")


class KeyAdded(ReasonedForm):
    """A key may sign from here on."""

    type: Literal["key-added"]
    role: Role
    keyid: Text
    pem: Text


class KeyRetired(ReasonedForm):
    """A key signs no more; what it signed stands."""

    type: Literal["key-retired"]
    role: Role
    keyid: Text


class KeyCompromised(ReasonedForm):
    """A key speaks for nothing after an entry."""

    type: Literal["key-compromised"]
    role: Role
    keyid: Text
    after: Index


class Revoked(ReasonedForm):
    """A certificate is good no more."""

    type: Literal["revoked"]
    issued: Index = form_field(about="index of the entry that bound the certificate")
