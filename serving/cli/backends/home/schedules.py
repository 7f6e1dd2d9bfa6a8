"""Schedules of a home."""

from __future__ import annotations

from accountant.home import Home
from serving.cli.backends.abstract import Body, Request, Schedules, without_defaults
from serving.cli.backends.home.jobs import with_start
from serving.cli.backends.user import require_access, this_user
from serving.wire.list_parts import Part, cut_schedules
from training.jobs import schedule
from training.requests import JobRequest


class HomeSchedules(Schedules):
    """As `Schedules` says, with the files of the home."""

    def add(self, name: str, every: str, start: str | None, request: Request) -> Body:
        """Enter a schedule."""
        home = Home.open()
        require_access(home, "train", dataset=request["dataset"])
        since, asked = schedule.moment(start), with_start(home, JobRequest.of(without_defaults(request))).to_json()
        new = schedule.make_schedule(home, name, every, asked, this_user(), since, token=None)
        return schedule.schedule_to_json(home, schedule.add(home, new))

    def list_part(self, part: Part) -> Body:
        """Return schedules that the user may see."""
        home = Home.open()
        rows, following = cut_schedules(part, schedule.schedules_for(home, require_access(home)))
        return {"schedules": [schedule.schedule_to_json(home, row) for row in rows], "next": following}

    def remove(self, name: str) -> str:
        """Remove a schedule."""
        home = Home.open()
        return schedule.remove_as(home, name, require_access(home)).name
