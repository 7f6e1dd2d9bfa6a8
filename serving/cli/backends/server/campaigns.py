"""Campaigns at a server."""

from __future__ import annotations

from dpserve_verify.privacy.budget import check_name
from serving.cli.backends.abstract import Body, Campaigns
from serving.cli.backends.server.connection import Connection

FOR_OWNERS = ("envelope", "proof", "ensemble", "ensemble_proof", "answer_proofs", "consistency")


class ServerCampaigns(Campaigns):
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
