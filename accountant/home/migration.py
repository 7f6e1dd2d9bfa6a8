"""The ledger's tables, brought from an earlier version's to this one's, and back. The ledger is copied first, as it
stands, into the home: entries are never touched, so as long as none was added the copy is all of it.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from accountant.errors import WrongState
from accountant.home.table_copies import copy_rows
from accountant.store import engines, migrations
from accountant.store.store import Store, Tree, require_idle
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import PRIVATE


def copy_of(home: Path, revision: str) -> Path:
    """Return the place of the ledger's copy with tables of this revision: SQLite, whatever the database."""
    return home / f"ledger-{revision}.db"


def bring_forward(home: Path, database: Store) -> None:
    """Bring the tables to this version, as `Store.create`, after copying the ledger; both in one transaction."""
    database.create(partial(_keep_copy, home))


def _keep_copy(home: Path, connection: Connection, revision: str) -> None:
    staged = home / f"ledger-{revision}.partial"
    for leftover in home.glob(f"{staged.name}*"):
        leftover.unlink()
    with closing(Store(f"sqlite:///{staged.absolute()}")) as copy:
        copy.create(to=revision)
        with copy.writing() as target:
            copy_rows(connection, target)
    staged.chmod(PRIVATE)
    staged.replace(copy_of(home, revision))


def put_back(home: Path, database: Store) -> str:
    """Put the tables back that were there before the last migration; return their revision. In one transaction.

    Raises InputError where there is no copy of before; WrongState where something was entered since: going back would
    forget it; LedgerUnavailable while a job runs.
    """
    before = [known for known in migrations.KNOWN[:-1] if copy_of(home, known).exists()]
    if not before:
        raise InputError(f"home={home}: has no copy of the ledger with the tables of an earlier version")
    revision = before[-1]
    with (
        closing(Store(f"sqlite:///{copy_of(home, revision).absolute()}")) as copy,
        copy.reading() as source,
        database.writing() as connection,
    ):
        engines.disable_timeout(connection)
        require_idle(connection, migrations.HEAD)
        then, now = Tree(source), Tree(connection)
        if (then.size, then.root()) != (now.size, now.root()):
            raise WrongState(
                f"ledger: has {now.size} entries, and the copy of before {then.size}: what was entered since would be "
                "forgotten; there is no way back"
            )
        engines.drop_tables(connection)
        migrations.upgrade(connection, revision)
        copy_rows(source, connection)
    return revision
