"""Campaigns of a home: how far they are, and what ends their turns or them."""

from __future__ import annotations

from typing import Any

from accountant.home import Home
from local.campaign import campaigns
from serving.cli.terminal import allowed, this_user


def listed() -> list[dict[str, Any]]:
    """Every campaign, by name."""
    home = Home.open()
    return [campaigns.state(home, name) for name in campaigns.names(home)]


def shown(name: str) -> dict[str, Any]:
    """How far one is."""
    return campaigns.state(Home.open(), name)


def changed(name: str, act: str, reason: str | None) -> dict[str, Any]:
    """`next`, `close` or `give-up`; how far it is then."""
    home = Home.open()
    allowed(home, "train", dataset=campaigns.load(home, name).definition.population)
    return campaigns.change(home, name, act, this_user(), reason)
