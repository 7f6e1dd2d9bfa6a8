"""Notes and tags of a server's datasets and models."""

from __future__ import annotations

from collections.abc import Sequence

from serving.cli.backends.abstract import Body, Notes
from serving.cli.backends.server.connection import Connection


class ServerNotes(Notes):
    """As `Notes` says, over REST."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def show(self, kind: str, name: str) -> Body:
        """Return the note."""
        with self.connection.asking() as service:
            return dict(service.note(kind, name.partition("@")[0]))

    def change(self, kind: str, name: str, text: str | None, tags: Sequence[str] | None) -> Body:
        """Put another text or other tags in the place of those that are there."""
        with self.connection.asking() as service:
            return dict(service.write_note(kind, name.partition("@")[0], text, tags))
