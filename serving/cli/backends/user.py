"""The user of this command line, and what that user may do with a home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accountant.system.user import this_user

__all__ = ["require_access", "this_user"]

if TYPE_CHECKING:
    from accountant.access.grants import Access
    from accountant.home import Home


def require_access(home: Home, *scopes: str, **on: str | None) -> Access:
    """Return what this user may do; the holder of the keys may do all, while no grant ever named that user.

    Args:
        home: The home.
        scopes: One of them must be held.
        on: `dataset=`, `family=` or `model=` that it must be held on; on everything, where none is named.

    Raises:
        Forbidden: None of the scopes is held there.
    """
    from accountant.access.grants import access_of  # loads the ledger, and help waits for nothing

    access = access_of(home.ledger, this_user(), operator=True)
    if scopes:
        access.require(*scopes, **on)
    return access
