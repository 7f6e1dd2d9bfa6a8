"""The keys that a home signs with, for whoever sits at it."""

from __future__ import annotations

from pathlib import Path

from accountant.errors import InputError
from accountant.home import TRUST, settings
from accountant.keys.trust import PublicKeys


def keys() -> PublicKeys:
    """Of the home's trust file; the home itself need not be there. InputError where it cannot be read."""
    path = Path(settings()["DPSERVE_HOME"].value) / TRUST
    try:
        return PublicKeys.from_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"trust={path}: cannot be read ({error.strerror}); name the pinned keys with --trust"
        ) from None
