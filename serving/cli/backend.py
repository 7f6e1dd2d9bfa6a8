"""The backend of this command: the home of this machine, or a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.cli.backends.abstract import Backend
from serving.cli.backends.choice import server_address
from serving.cli.backends.user import require_access
from serving.cli.terminal import note
from serving.process.workers.loading import loading

if TYPE_CHECKING:
    from accountant.home import Home


def backend(by: str | None = None) -> Backend:
    """Return what the environment, or `dpserve login`, names. Nothing is opened or asked yet. `by`: who decides."""
    address = server_address()
    with loading():
        if address is None:
            from serving.cli.backends.home.home import HomeBackend

            return HomeBackend(note, by)
        from serving.cli.backends.server.server import ServerBackend  # loads the client: who has a home waits for none

        return ServerBackend(address, note, by)


def open_home(*scopes: str, **on: str | None) -> Home:
    """Open the home of this machine, for a user who holds one of `scopes`, as `require_access` says."""
    from accountant.home import Home  # loads the ledger, which a server's user has none of

    home = Home.open()
    require_access(home, *scopes, **on)
    return home
