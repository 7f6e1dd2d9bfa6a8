"""The backend of a server: a thin layer on `dpserve.Client`. Each topic is loaded when a command first uses it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from serving.cli.backends.abstract import Backend, Note
from serving.cli.backends.choice import ServerAddress
from serving.cli.backends.server.connection import Connection, refuse_by
from serving.operations import A, Operation, P, to_request


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

    def load(self, topic: str) -> Any:
        """Return the part for a topic: `ServerJobs` of `jobs`, for instance."""
        return getattr(import_module(f"{__package__}.{topic}"), f"Server{topic.title()}")(self.connection)
