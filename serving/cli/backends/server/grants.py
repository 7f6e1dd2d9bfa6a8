"""Grants and tokens at a server."""

from __future__ import annotations

from collections.abc import Callable

from accountant.access.grants import Grant
from accountant.access.tokens import acting_for, own_principal
from dpserve import Client
from serving.cli.backends.abstract import Body, Grants
from serving.cli.backends.server.connection import Connection
from serving.wire.list_parts import Part


class ServerGrants(Grants):
    """As `Grants` says, over REST."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def list_part(self, part: Part, principal: str | None) -> Body:
        """Return grants, or those of one principal, who may have two names."""
        with self.connection.asking() as service:
            wanted = [None] if principal is None else dict.fromkeys((principal, _full_name(service, principal)))
            if len(wanted) == 1:
                return dict(service.part("grants", principal=next(iter(wanted)), **part.to_query()))
            found = (dict(grant.raw) for each in wanted for grant in service.grants(each))
            listed = sorted(found, key=lambda body: int(body["grant"]))
            page, following = part.cut(listed, lambda body: str(body["grant"]), lambda body: [body["principal"]])
            return {"grants": page, "next": following}

    def add(self, principal: str, make: Callable[[str], list[Grant]]) -> list[Body]:
        """Enter grants."""
        with self.connection.asking() as service:
            grants = make(_full_name(service, principal))
            return [dict(service.add_grant(g.principal, g.scope, g.on, expires=g.expires).raw) for g in grants]

    def revoke(self, number: int, reason: str) -> tuple[Body, Body]:
        """End a grant."""
        with self.connection.asking() as service:
            return dict(service.grant(number).raw), dict(service.revoke_grant(number, reason).raw)

    def list_tokens(self, part: Part) -> Body:
        """Return tokens without their secrets."""
        with self.connection.asking() as service:
            return dict(service.part("tokens", **part.to_query()))


def _full_name(service: Client, principal: str) -> str:
    good = [token for token in service.tokens() if token["revoked"] is None]
    own = {
        token["name"]: token["principal"]
        for token in good
        if token["principal"] in (own_principal(token["name"]), own_principal(token["name"], token["created"]))
    }
    return acting_for(own, {token["principal"] for token in good}, principal)
