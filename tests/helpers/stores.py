"""What tests of both databases share."""

from __future__ import annotations

from pathlib import Path

from ledgers import place
from sqlalchemy import inspect, text

from accountant.home import Home
from accountant.store.store import Store
from accountant.store.tables import META


def at(folder: Path, url: str) -> dict[str, str]:
    """The environment that names a home and its database."""
    return place(folder) | {"DPSERVE_LEDGER_URL": url}


def kind(database: Store) -> str:
    return database.engine.dialect.name


def rows(database: Store) -> dict[str, list[tuple]]:
    """Everything in the database, of the tables that it has."""
    with database.reading() as connection:
        there = inspect(connection).get_table_names()
        names = [table.name for table in META.sorted_tables if table.name in there]
        found = {name: connection.execute(text(f"SELECT * FROM {name}")).all() for name in names}
    return {name: sorted(map(tuple, each), key=repr) for name, each in found.items()}


def snapshot(home: Home) -> tuple:
    """All that a failed transaction must leave as it was."""
    return rows(home.ledger.log.database), (home.path / "keys" / "high-water.json").read_bytes()
