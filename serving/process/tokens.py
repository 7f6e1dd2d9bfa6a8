"""Bearer tokens: made here once, shown once, and known afterwards by their hash alone."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable

from accountant.home import Home
from accountant.ledger import tokens
from accountant.ledger.tokens import Limits, Token

PREFIX = "dps_"


def digest(secret: str | bytes) -> str:
    """The sha256 of a token in hex."""
    return hashlib.sha256(secret.encode() if isinstance(secret, str) else secret).hexdigest()


def new_token(home: Home, name: str, scopes: Collection[str], limits: Limits = tokens.NO_LIMITS) -> tuple[str, Token]:
    """Make a token of 256 random bits and enter its hash in the ledger -> (the token itself, what the ledger knows)."""
    secret = PREFIX + secrets.token_urlsafe(32)
    return secret, tokens.create(home.ledger, name, scopes, digest(secret), limits)


def good_tokens(home: Home) -> dict[str, Token]:
    """Tokens that were not revoked, by their hash."""
    return {token.digest: token for token in tokens.tokens(home.ledger, good=True)}


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The token of `Authorization: Bearer dps_...`; None where it is missing, doubled or of another form."""
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) != 1:
        return None
    scheme, _, token = found[0].partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" and token.strip().startswith(PREFIX.encode()) else None
