"""Campaigns among owners as commands ask for them: of a home on this machine, or of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

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


class Campaigns(Protocol):
    """Campaigns among owners who keep their rows, with the keys of the REST answers wherever they are."""

    def list_all(self) -> list[Body]:
        """Return the state of every campaign, by name."""

    def get(self, name: str) -> Body:
        """Return the state of one campaign. Raises UnknownName."""

    def change(self, name: str, act: str, reason: str | None) -> Body:
        """End a turn or a campaign, and return its state.

        Args:
            name: The campaign.
            act: `next` ends the turn, `close` learns from what came, `give-up` ends the campaign without a model.
            reason: Why; needed by `give-up` alone.
        """


class HomeCampaigns:
    """As `Campaigns` says, with the files of the home."""

    def list_all(self) -> list[Body]:
        """Return the state of each."""
        home = Home.open()
        return [campaigns.state(home, name) for name in campaigns.names(home)]

    def get(self, name: str) -> Body:
        """Return the state of one."""
        return campaigns.state(Home.open(), name)

    def change(self, name: str, act: str, reason: str | None) -> Body:
        """End a turn or a campaign."""
        home = Home.open()
        require_access(home, "train", dataset=campaigns.load(home, name).definition.population)
        return campaigns.change(home, name, act, this_user(), reason)


class ServerCampaigns:
    """As `Campaigns` says, over REST."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def list_all(self) -> list[Body]:
        """Return the state of each."""
        with self.connection.asking() as service:
            return [dict(body) for body in service.campaigns()]

    def get(self, name: str) -> Body:
        """Return the state of one, without what only owners need."""
        check_name("campaign", name)
        with self.connection.asking() as service:
            return {key: value for key, value in service.campaign(name).items() if key not in FOR_OWNERS}

    def change(self, name: str, act: str, reason: str | None) -> Body:
        """End a turn or a campaign."""
        check_name("campaign", name)
        with self.connection.asking() as service:
            return dict(service.change_campaign(name, act, reason))


def named_campaigns() -> Campaigns:
    """Return those of the server or home that the environment, or `dpserve login`, names."""
    address = server_address()
    if address is None:
        return HomeCampaigns()
    from serving.cli.backends.server.connection import Connection  # loads the client: who has a home waits for none

    return ServerCampaigns(Connection(address, note))
