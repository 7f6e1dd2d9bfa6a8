"""Schedules of a home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accountant.home import Home
from serving.cli.terminal import allowed, this_user
from training.jobs import schedule


def added(name: str, every: str, start: str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Enter one; how long it can be kept."""
    home = Home.open()
    allowed(home, "train", dataset=asked["dataset"])
    made = schedule.described(home, name, every, dict(asked), this_user(), schedule.moment(start))
    return schedule.schedule_to_json(home, schedule.add(home, made))


def listed() -> list[dict[str, Any]]:
    """Their own, and those on datasets that they audit or are steward of."""
    home = Home.open()
    return [schedule.schedule_to_json(home, each) for each in schedule.seen(home, allowed(home))]


def removed(name: str) -> str:
    """Forget one; its name."""
    home = Home.open()
    return schedule.remove_as(home, name, allowed(home)).name
