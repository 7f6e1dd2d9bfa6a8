"""The backend of this command: the home of this machine, or a server."""

from __future__ import annotations

from serving.cli.backends.abstract import Backend
from serving.cli.backends.choice import server_address
from serving.cli.terminal import note
from serving.process.workers.loading import loading


def backend(by: str | None = None) -> Backend:
    """Return what the environment, or `dpserve login`, names. Nothing is opened or asked yet. `by`: who decides."""
    address = server_address()
    with loading():
        if address is None:
            from serving.cli.backends.home.home import HomeBackend

            return HomeBackend(note, by)
        from serving.cli.backends.server.server import ServerBackend  # loads the client: who has a home waits for none

        return ServerBackend(address, note, by)
