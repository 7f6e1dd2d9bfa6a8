"""Grants and tokens at a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accountant.access.grants import Grant
from accountant.access.tokens import acting_for
from dpserve import Client
from serving.cli.backends.server.asking import asking


def listed(principal: str | None) -> list[dict[str, Any]]:
    """Every grant there ever was, or those of one principal."""
    with asking() as service:
        whom = None if principal is None else _whom(service, principal)
        return [dict(grant.raw) for grant in service.grants(whom)]


def added(principal: str, wanted: Callable[[str], list[Grant]]) -> list[dict[str, Any]]:
    """What is `wanted` of a principal, entered."""
    with asking() as service:
        found = wanted(_whom(service, principal))
        return [dict(service.add_grant(g.principal, g.scope, g.on, expires=g.expires).raw) for g in found]


def revoked(grant: int, reason: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A grant with what stops with it, and as it is ended."""
    with asking() as service:
        return dict(service.grant(grant).raw), dict(service.revoke_grant(grant, reason).raw)


def tokens() -> list[dict[str, Any]]:
    """Every token there ever was, but for the token itself."""
    with asking() as service:
        return [dict(token) for token in service.tokens()]


def _whom(service: Client, text: str) -> str:
    return acting_for({token["principal"] for token in service.tokens() if token["revoked"] is None}, text)
