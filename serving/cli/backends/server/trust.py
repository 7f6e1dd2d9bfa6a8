"""The keys of a server, for whoever asks it."""

from __future__ import annotations

from accountant.errors import DpserveError, VerificationError
from accountant.keys.trust import PublicKeys
from accountant.log.seen_checkpoints import Growth, read_growth
from serving.cli.backends.server.asking import asking
from serving.cli.backends.server.pins import pinned


def keys() -> PublicKeys:
    """The keys to check by: those that were pinned for the server, on first use those that it names."""
    with asking() as service:
        return pinned(service)


def growth(origin: str, earlier: int, later: int) -> Growth | None:
    """The server's proof that its ledger of `later` entries begins with that of `earlier`; None where it has none."""
    try:
        with asking() as service:
            same = pinned(service).origin == origin
            return read_growth(service.consistency(earlier, later)) if same else None
    except VerificationError:
        raise
    except DpserveError:  # it is away, or has not so many entries: nothing is proved
        return None
