"""The backend of a server: a thin layer on `dpserve.Client`. Each topic is loaded when a command first uses it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from serving.cli.backends.abstract import Backend, Note
from serving.cli.backends.choice import ServerAddress
from serving.cli.backends.server.connection import Connection, refuse_by
from serving.operations import A, Operation, P, to_request

if TYPE_CHECKING:
    from serving.cli.backends import abstract


class ServerBackend(Backend):
    """The server that DPSERVE_URL or `dpserve login` names. What it signs is verified on this machine.

    Args:
        address: The server.
        note: Prints a line for the user.
        by: InputError where it is said: a server takes it from the token.
    """

    def __init__(self, address: ServerAddress, note: Note, by: str | None = None) -> None:
        super().__init__(note, by)
        refuse_by(by)
        self.connection = Connection(address, note)

    def ask(self, asked: Operation[P, A], *arguments: P.args, **values: P.kwargs) -> A:
        """Ask the server, by the method and the path of the operation."""
        with self.connection.asking() as service:
            return asked.read(service.ask(*to_request(asked, values), again=asked.is_repeatable))

    @cached_property
    def bundles(self) -> abstract.Bundles:
        """Return the backend's part for the files of one model."""
        from serving.cli.backends.server.bundles import ServerBundles

        return ServerBundles(self.connection)

    @cached_property
    def jobs(self) -> abstract.Jobs:
        """Return the backend's part for training jobs."""
        from serving.cli.backends.server.jobs import ServerJobs

        return ServerJobs(self.connection)

    @cached_property
    def ledger(self) -> abstract.Ledger:
        """Return the backend's part for the ledger and its keys."""
        from serving.cli.backends.server.ledger import ServerLedger

        return ServerLedger(self.connection)

    @cached_property
    def measurements(self) -> abstract.Measurements:
        """Return the backend's part for evaluations and profiles."""
        from serving.cli.backends.server.measurements import ServerMeasurements

        return ServerMeasurements(self.connection)

    @cached_property
    def models(self) -> abstract.Models:
        """Return the backend's part for released models."""
        from serving.cli.backends.server.models import ServerModels

        return ServerModels(self.connection)
