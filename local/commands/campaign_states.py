"""Campaigns among owners as commands ask for them: of a home on this machine, or of the server that the environment, or
`dpserve login`, names; with the keys of the REST answers wherever they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accountant.home import Home
from dpserve_verify.privacy.budget import check_name
from local.campaign import campaigns
from serving.cli.backends.abstract import Body
from serving.cli.backends.choice import server_address
from serving.cli.backends.user import require_access, this_user
from serving.cli.terminal import note

if TYPE_CHECKING:
    from serving.cli.backends.server.connection import Connection

FOR_OWNERS = ("envelope", "proof", "ensemble", "ensemble_proof", "answer_proofs", "consistency")


def _server() -> Connection | None:
    address = server_address()
    if address is None:
        return None
    from serving.cli.backends.server.connection import Connection  # loads the client: who has a home waits for none

    return Connection(address, note)


def list_all() -> list[Body]:
    """Return the state of every campaign, by name."""
    server = _server()
    if server is None:
        home = Home.open()
        return [campaigns.state(home, name) for name in campaigns.names(home)]
    with server.asking() as service:
        return [dict(body) for body in service.campaigns()]


def get(name: str) -> Body:
    """Return the state of one campaign, without what only owners need. Raises UnknownName."""
    server = _server()
    if server is None:
        return campaigns.state(Home.open(), name)
    check_name("campaign", name)
    with server.asking() as service:
        return {key: value for key, value in service.campaign(name).items() if key not in FOR_OWNERS}


def change(name: str, act: str, reason: str | None) -> Body:
    """End a turn or a campaign, and return its state.

    Args:
        name: The campaign.
        act: `next` ends the turn, `close` learns from what came, `give-up` ends the campaign without a model.
        reason: Why; needed by `give-up` alone.
    """
    server = _server()
    if server is None:
        home = Home.open()
        require_access(home, "train", dataset=campaigns.load(home, name).definition.population)
        return campaigns.change(home, name, act, this_user(), reason)
    check_name("campaign", name)
    with server.asking() as service:
        return dict(service.change_campaign(name, act, reason))
