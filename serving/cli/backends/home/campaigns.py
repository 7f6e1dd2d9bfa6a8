"""Campaigns of a home."""

from __future__ import annotations

from accountant.home import Home
from local.campaign import campaigns
from serving.cli.backends.abstract import Body, Campaigns
from serving.cli.backends.user import require_access, this_user


class HomeCampaigns(Campaigns):
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
