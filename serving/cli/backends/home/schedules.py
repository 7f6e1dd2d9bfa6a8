"""Schedules of a home."""

from __future__ import annotations

from accountant.home import Home
from serving.cli.backends.abstract import Body, Request, Schedules, without_defaults
from serving.cli.backends.user import require_access, this_user
from training.jobs import schedule


class HomeSchedules(Schedules):
    """As `Schedules` says, with the files of the home."""

    def add(self, name: str, every: str, start: str | None, request: Request) -> Body:
        """Enter a schedule."""
        home = Home.open()
        require_access(home, "train", dataset=request["dataset"])
        new = schedule.make_schedule(home, name, every, without_defaults(request), this_user(), schedule.moment(start))
        return schedule.schedule_to_json(home, schedule.add(home, new))

    def list_all(self) -> list[Body]:
        """Return the schedules that the user may see."""
        home = Home.open()
        return [schedule.schedule_to_json(home, row) for row in schedule.schedules_for(home, require_access(home))]

    def remove(self, name: str) -> str:
        """Remove a schedule."""
        home = Home.open()
        return schedule.remove_as(home, name, require_access(home)).name
