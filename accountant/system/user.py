"""The user of this process, as the ledger names one."""

from __future__ import annotations

import getpass
import os


def this_user() -> str:
    """Return the principal that the ledger names for this user: `cli:NAME`."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container whose user has no name
        return f"cli:uid-{os.getuid()}"
