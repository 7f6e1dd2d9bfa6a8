"""Notes and tags of a home's datasets and models."""

from __future__ import annotations

from collections.abc import Sequence

from accountant.home import Home
from models.store.noted import change_note, read_note
from serving.cli.backends.abstract import Body, Notes
from serving.cli.backends.user import require_access

WRITES = {"dataset": "steward", "model": "promote"}


class HomeNotes(Notes):
    """As `Notes` says, in the home's file."""

    def show(self, kind: str, name: str) -> Body:
        """Return the note."""
        return read_note(Home.open(), kind, name.partition("@")[0])

    def change(self, kind: str, name: str, text: str | None, tags: Sequence[str] | None) -> Body:
        """Put another text or other tags in the place of those that are there."""
        home, name = Home.open(), name.partition("@")[0]
        require_access(home, WRITES[kind], **{kind: name})
        return change_note(home, kind, name, text, tags)
