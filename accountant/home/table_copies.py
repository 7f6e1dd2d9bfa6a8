"""Every row of every table of a ledger, from one database into another, whatever the revision of both."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, MetaData, insert, select

from accountant.store.store import stream

BATCH = 1000  # rows
REVISION = "alembic_version"  # made with the tables


def copy_rows(source: Connection, target: Connection) -> None:
    """Copy all rows into tables of the same revision, which are empty."""
    tables, theirs = MetaData(), MetaData()
    tables.reflect(source)
    theirs.reflect(target)
    for table in tables.sorted_tables:
        batch: list[dict[str, Any]] = []
        for row in stream(source, select(table)) if table.name != REVISION else ():
            batch.append(dict(row._mapping))
            if len(batch) == BATCH:
                target.execute(insert(theirs.tables[table.name]), batch)
                batch = []
        if batch:
            target.execute(insert(theirs.tables[table.name]), batch)
