"""Grants and tokens of a home."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.access.tokens import acting_for
from accountant.access.tokens import tokens as tokens_of
from accountant.home import Home
from accountant.ledger.families.records import Why
from serving.cli.terminal import allowed, this_user


def listed(principal: str | None) -> list[dict[str, Any]]:
    """Every grant there ever was, or those of one principal."""
    home = Home.open()
    whom = None if principal is None else _whom(home, principal)
    return [grant.to_json() for grant in grants.grants(home.ledger) if whom in (None, grant.principal)]


def added(principal: str, wanted: Callable[[str], list[Grant]]) -> list[dict[str, Any]]:
    """What is `wanted` of a principal, entered."""
    home = Home.open()
    allowed(home, "admin")
    whom = _whom(home, principal)
    return [grant.to_json() for grant in grants.add(home.ledger, wanted(whom), this_user())]


def revoked(grant: int, reason: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A grant with what stops with it, and as it is ended."""
    home = Home.open()
    allowed(home, "admin")
    stopped = grants.stops(home.ledger, grant)
    return stopped.to_json(), grants.revoke(home.ledger, grant, Why(this_user(), reason)).to_json()


def tokens() -> list[dict[str, Any]]:
    """Every token there ever was, but for the token itself."""
    return [token.to_json() for token in tokens_of(Home.open().ledger)]


def _whom(home: Home, text: str) -> str:
    return acting_for({token.principal for token in tokens_of(home.ledger, good=True)}, text)
