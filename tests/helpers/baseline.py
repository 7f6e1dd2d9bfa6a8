"""A home that version 0.3.0 made: `tests/data/make_home.py` says how, and what is in it."""

from __future__ import annotations

import os
import sqlite3
import tarfile
from pathlib import Path

from sqlalchemy import insert

from accountant.store.store import Store
from accountant.store.tables import META

PACKED = Path(__file__).resolve().parents[1] / "data" / "home-0.3.0.tar.xz"
MODELS = ("bdpe", "cost", "ebm", "fixed", "forest", "lazybb", "lazybb-tree", "survey", "tuned")
QUEUED = 94  # the job that waits to be run


def unpack(folder: Path) -> Path:
    """Unpack the home into a new `folder`, its keys for nobody else; return the home's path."""
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
    for path in (folder / "home").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    os.chmod(folder / "home", 0o700)
    return folder / "home"


def copy_into(url: str, home: Path) -> None:
    """Fill an empty PostgreSQL database with the rows of the home's ledger."""
    database = Store(url)
    database.create()
    with database.writing() as connection, sqlite3.connect(home / "ledger.db") as ledger:
        ledger.row_factory = sqlite3.Row
        for table in META.sorted_tables:
            rows = [dict(row) for row in ledger.execute(f"SELECT * FROM {table.name}")]
            if rows:
                connection.execute(insert(table), rows)
    database.close()
    (home / "ledger.db").unlink()
