"""Datasets at a server and their budgets."""

from __future__ import annotations

from serving.cli.backends.abstract import Body, Datasets
from serving.cli.backends.server.connection import Connection


class ServerDatasets(Datasets):
    """As `Datasets` says, over REST."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def list_all(self) -> list[Body]:
        """Return every dataset."""
        with self.connection.asking() as service:
            return [dict(dataset.raw) for dataset in service.datasets()]

    def list_families(self) -> list[Body]:
        """Return every family."""
        with self.connection.asking() as service:
            return [dict(family.raw) for family in service.families()]

    def get(self, name: str) -> Body:
        """Return one dataset."""
        with self.connection.asking() as service:
            return dict(service.dataset(name).raw)
