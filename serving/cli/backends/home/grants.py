"""Grants and tokens of a home."""

from __future__ import annotations

from collections.abc import Callable

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.access.tokens import acting_for, tokens
from accountant.home import Home
from accountant.ledger.families.records import Why
from serving.cli.backends.abstract import Body, Grants
from serving.cli.backends.user import require_access, this_user
from serving.wire.list_parts import Part, cut_grants, cut_tokens


class HomeGrants(Grants):
    """As `Grants` says, with the ledger of the home."""

    def list_part(self, part: Part, principal: str | None) -> Body:
        """Return grants, or those of one principal."""
        home = Home.open()
        wanted = None if principal is None else {principal, _full_name(home, principal)}
        visible = [grant for grant in grants.grants(home.ledger) if wanted is None or grant.principal in wanted]
        listed, following = cut_grants(part, visible)
        return {"grants": [grant.to_json() for grant in listed], "next": following}

    def add(self, principal: str, make: Callable[[str], list[Grant]]) -> list[Body]:
        """Enter grants."""
        home = Home.open()
        require_access(home, "admin")
        return [grant.to_json() for grant in grants.add(home.ledger, make(_full_name(home, principal)), this_user())]

    def revoke(self, number: int, reason: str) -> tuple[Body, Body]:
        """End a grant."""
        home = Home.open()
        require_access(home, "admin")
        stops = grants.stops(home.ledger, number)
        return stops.to_json(), grants.revoke(home.ledger, number, Why(this_user(), reason)).to_json()

    def list_tokens(self, part: Part) -> Body:
        """Return tokens without their secrets."""
        listed, following = cut_tokens(part, tokens(Home.open().ledger))
        return {"tokens": [token.to_json() for token in listed], "next": following}


def _full_name(home: Home, principal: str) -> str:
    good = tokens(home.ledger, good=True)
    own = {token.name: token.principal for token in good if token.acts_for_itself}
    return acting_for(own, {token.principal for token in good}, principal)
