"""Bearer tokens: made here once, shown once, and known afterwards by their hash alone."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from accountant.access import grants, tokens
from accountant.access.grants import Access, Families, Grant
from accountant.access.tokens import Limits, Token
from accountant.home import Home
from dpserve_verify.keys.trust import PublicKeys

PREFIX = "dps_"
FORMS = PREFIX.encode(), b"eyJ"  # how tokens begin: ours, and those of a provider (serving.process.sso)


def digest(secret: str | bytes) -> str:
    """Return the sha256 of a token in hex."""
    return hashlib.sha256(secret.encode() if isinstance(secret, str) else secret).hexdigest()


def new_code() -> str:
    """Return 256 random bits as a text that may stand in an address."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Bearer:
    """A good token, and what whoever bears it may do now."""

    token: Token
    access: Access


def new_token(
    home: Home,
    name: str,
    scopes: Collection[str],
    limits: Limits = tokens.NO_LIMITS,
    principal: str | None = None,
) -> tuple[str, Token]:
    """Make a token of 256 random bits and enter its hash in the ledger -> (the token itself, what the ledger knows)."""
    secret = PREFIX + new_code()
    return secret, tokens.create(home.ledger, name, scopes, digest(secret), limits, principal)


def new_narrow_token(
    home: Home, name: str, wanted: Sequence[Grant], limits: Limits, principal: str | None, by: str
) -> tuple[str, Token, list[Grant]]:
    """Make a token as `new_token` does, which may do nothing but what its principal is granted, and grant what is
    `wanted` to that principal, in one transaction.
    """
    secret = PREFIX + new_code()
    with home.ledger.log.writing() as writer:
        token = tokens.enter(writer, name, [], digest(secret), limits, principal)
        granted = grants.enter(writer, [replace(grant, principal=token.principal) for grant in wanted], by)
    return secret, token, granted


@dataclass(frozen=True)
class Rights:
    """Who may do what, as it was signed up to one tree.

    Attributes:
        bearers: the good tokens by their hash, each with its own scopes and the grants of its principal.
        wrong: what is wrong with rows of the database that say something else.
        trust: what an auditor pins.
        head: size and root of the tree.
        until: when the next grant expires, as entries spell it; None: none will.
        families: finds the families of a dataset; those that were asked for are remembered.
        granted: the grants that hold, by principal; none where another process looked.
    """

    bearers: dict[str, Bearer]
    wrong: list[str]
    trust: PublicKeys
    head: tuple[int, bytes]
    until: str | None
    families: Families
    granted: Mapping[str, Sequence[Grant]] = field(default_factory=dict)

    @property
    def lasts(self) -> bool:
        """Return whether no grant has expired, by this machine's clock."""
        return self.until is None or grants.spell(time.time()) < self.until

    def hold_in(self, home: Home) -> bool:
        """Return whether all of it is so now: nothing was written since, and no grant expired."""
        now = home.ledger.log.stands_at(*self.head)
        return now is not None and (self.until is None or grants.spell(now) < self.until)


def rights(home: Home, before: Rights | None = None) -> Rights:
    """Look at the ledger: who may do what now. LedgerInvalid, LedgerUnavailable as `TransparencyLog.signed`. `before`:
    what was seen before, whose families are those of now where nothing was written since.
    """
    with home.ledger.log.signed([*grants.QUESTIONS, *tokens.QUESTIONS]) as signed:
        sound_grants, wrong = grants.sound_grants(signed)
        good, wrong_tokens = tokens.sound_tokens(signed)
        trust, head = signed.trust(home.ledger.log.origin), (signed.size, signed.root)
    by_principal = defaultdict(list)
    families = cache(grants.families_of(home.ledger)) if before is None or before.head != head else before.families
    for grant in sound_grants:
        by_principal[grant.principal].append(grant)
    bearers = {}
    for token in good:
        access = Access(token.principal, (*grants.of_token(token), *by_principal[token.principal]), families)
        bearers[token.digest] = Bearer(token, access)
    until = min((grant.expires for grant in sound_grants if grant.expires is not None), default=None)
    return Rights(bearers, wrong + wrong_tokens, trust, head, until, families, by_principal)


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the token of `Authorization: Bearer ...`; None where it is missing, doubled or of another form."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" and token.strip().startswith(FORMS) else None
