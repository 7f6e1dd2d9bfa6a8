"""Keep a process from writing into a ledger that a newer version has written to.

Two numbers say how new the ledger is: the revision of its tables, and, beside each signed checkpoint, the newest
generation of kinds of the entries up to it (`EntryForm.generation`). Both come with the right edge of the tree, which
each transaction of the log reads first, under the writers' lock: what a newer version commits is seen by everybody who
writes after it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, bindparam, cast, column, exists, func, literal, null, select, table

from accountant.errors import VersionBehind
from accountant.store import migrations
from accountant.store.tables import checkpoint_table, node_table
from dpserve_verify.entries.kinds import NEWEST

LEVEL = -1  # of the row that says it, among those of subtrees
_REVISION = table("alembic_version", column("version_num"))


def row() -> Select[Any]:
    """Build the query of one row like those of `node`: at level LEVEL, the newest generation of kinds; no row
    where the tables are of another revision than the parameter `head`.
    """
    level, idx, digest = node_table.c
    newest = select(checkpoint_table.c.kinds).order_by(checkpoint_table.c.size.desc()).limit(1).scalar_subquery()
    same = exists(select(1).select_from(_REVISION).where(_REVISION.c.version_num == bindparam("head")))
    return select(
        cast(literal(LEVEL), level.type), cast(func.coalesce(newest, 0), idx.type), cast(null(), digest.type)
    ).where(same)


def problem(connection: Connection, kinds: int | None) -> str:
    """Return why this version may not write; "" where it may. `kinds`: as `row` gave it, None where it gave no row."""
    if kinds is None:
        found = migrations.revision(connection)
        return f"its tables are of revision {found}, and this version knows {migrations.HEAD}"
    if kinds > NEWEST:
        return f"a newer dpserve wrote kinds of entries of generation {kinds}, and this version knows {NEWEST}"
    return ""


def require(connection: Connection, kinds: int | None, finishes: bool = False) -> None:
    """Raise VersionBehind where this version may not write. `finishes`: it ends a job that it runs, by an entry that
    moves no sum: that it may beside kinds of entries that it does not know.
    """
    reason = "" if finishes and kinds is not None else problem(connection, kinds)
    if reason:
        raise VersionBehind(f"ledger: {reason}: nothing was written")
