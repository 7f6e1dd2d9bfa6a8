"""Datasets at a server and their budgets."""

from __future__ import annotations

from serving.cli.backends.abstract import Body, Datasets
from serving.cli.backends.server.connection import Connection
from serving.wire.list_parts import Part


class ServerDatasets(Datasets):
    """As `Datasets` says, over REST."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def list_part(self, part: Part) -> Body:
        """Return datasets."""
        with self.connection.asking() as service:
            return dict(service.part("datasets", **part.to_query()))

    def list_families(self, part: Part) -> Body:
        """Return families."""
        with self.connection.asking() as service:
            return dict(service.part("families", **part.to_query()))

    def get(self, name: str) -> Body:
        """Return one dataset."""
        with self.connection.asking() as service:
            return dict(service.dataset(name).raw)
