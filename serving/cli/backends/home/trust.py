"""The keys that a home signs with, for whoever sits at it."""

from __future__ import annotations

from pathlib import Path

from accountant.errors import DpserveError, InputError
from accountant.home import TRUST, Home, settings
from accountant.keys.trust import PublicKeys
from accountant.log.seen_checkpoints import Growth, read_growth
from accountant.log.stored_proofs import consistency


def keys() -> PublicKeys:
    """Of the home's trust file; the home itself need not be there. InputError where it cannot be read."""
    path = Path(settings()["DPSERVE_HOME"].value) / TRUST
    try:
        return PublicKeys.from_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"trust={path}: cannot be read ({error.strerror}); name the pinned keys with --trust"
        ) from None


def growth(origin: str, earlier: int, later: int) -> Growth | None:
    """The home's own proof that its ledger of `later` entries begins with that of `earlier`; None where it has none."""
    try:
        log = Home.open().ledger.log
        return read_growth(consistency(log.database, earlier, later).to_json()) if log.origin == origin else None
    except DpserveError:
        return None
