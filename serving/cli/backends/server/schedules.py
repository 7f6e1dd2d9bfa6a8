"""Schedules at a server."""

from __future__ import annotations

from serving.cli.backends.abstract import Body, Request, Schedules, without_defaults
from serving.cli.backends.server.connection import Connection
from serving.wire.list_parts import Part


class ServerSchedules(Schedules):
    """As `Schedules` says, over REST."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def add(self, name: str, every: str, start: str | None, request: Request) -> Body:
        """Enter a schedule."""
        with self.connection.asking() as service:
            return dict(service.add_schedule(name, every=every, start=start, **without_defaults(request)))

    def list_part(self, part: Part) -> Body:
        """Return schedules that the user may see."""
        with self.connection.asking() as service:
            return dict(service.part("schedules", **part.to_query()))

    def remove(self, name: str) -> str:
        """Remove a schedule."""
        with self.connection.asking() as service:
            return str(service.remove_schedule(name)["name"])
