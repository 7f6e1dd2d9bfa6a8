"""The ledger's tables, from one version to the next (Alembic). Nothing else makes or changes a table.

Alembic itself is imported only where there is something to do: its import costs more than opening a ledger.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from dpserve_verify.errors import InputError

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0001"
KNOWN: tuple[str, ...] = (HEAD,)  # from the baseline on, in order
FOLDER = Path(__file__).parent


def revision(connection: Connection) -> str | None:
    """Return the revision that the database says it has; None where it says nothing."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    stored = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if stored is None else str(stored)


def upgrade(connection: Connection, to: str = HEAD) -> None:
    """Bring the database to a revision. Only inside `Store.writing`: another process may have done it meanwhile, and
    all of it is one transaction. InputError, before anything is changed, for a database that is not ours or is newer.
    """
    before = require_known(connection)
    if before == to:
        return
    from alembic import command  # loads slowly, and tables that are up to date need none of it

    if before is None and set(inspect(connection).get_table_names()) - {"alembic_version"}:
        raise InputError(
            "ledger: the database holds tables that are not a ledger's; give dpserve a database of its own"
        )
    command.upgrade(configuration(connection), to)


def require_current(connection: Connection) -> str | None:
    """Return the revision, None of no tables. InputError where the tables are of another one; for readers, who change
    nothing.
    """
    before = require_known(connection)
    if before not in (None, HEAD):
        raise InputError(
            f"ledger: its tables are of revision {before}, and this version reads {HEAD}; stop the workers and run "
            "`dpserve migrate`, which keeps a copy"
        )
    return before


def require_known(connection: Connection) -> str | None:
    """Return the revision, None of no tables. InputError where a newer version made the tables."""
    found = revision(connection)
    if found is not None and found not in KNOWN:
        raise InputError(
            f"ledger: its tables are of revision {found}, this version knows {', '.join(KNOWN)}; use a newer dpserve"
        )
    return found


def configuration(connection: Connection) -> Config:
    """Configure Alembic over this connection and its transaction."""
    from alembic.config import Config  # as above

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
