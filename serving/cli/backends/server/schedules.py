"""Schedules at a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving.cli.backends.server.asking import asking


def added(name: str, every: str, start: str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Enter one; how long it can be kept."""
    with asking() as service:
        given = {key: value for key, value in asked.items() if value is not None}
        return dict(service.add_schedule(name, every=every, start=start, **given))


def listed() -> list[dict[str, Any]]:
    """Their own, and those on datasets that they audit or are steward of."""
    with asking() as service:
        return [dict(each) for each in service.schedules()]


def removed(name: str) -> str:
    """Forget one; its name."""
    with asking() as service:
        return str(service.remove_schedule(name)["name"])
