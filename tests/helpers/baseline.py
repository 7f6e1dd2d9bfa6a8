"""A home that the code of the baseline, commit 44b969b, made: `tests/data/make_home.py` says how, and what is in it."""

from __future__ import annotations

import os
import sqlite3
import tarfile
from pathlib import Path

from sqlalchemy import create_engine, insert, text

from accountant.store.tables import META

PACKED = Path(__file__).resolve().parents[1] / "data" / "home.tar.xz"
MODELS = ("bdpe", "cost", "ebm", "fixed", "forest", "lazybb", "lazybb-tree", "survey", "tuned")
QUEUED = 93  # the job that waits to be run


def unpack(folder: Path) -> Path:
    """Unpack the home into a new `folder`, its keys for nobody else; return the home's path."""
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
    for path in (folder / "home").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    os.chmod(folder / "home", 0o700)
    return folder / "home"


def copy_into(url: str, home: Path) -> None:
    """Fill an empty PostgreSQL database: the tables as the baseline made them there (pg_dump), the rows of the home."""
    engine = create_engine(url)
    with engine.begin() as connection, sqlite3.connect(home / "ledger.db") as ledger:
        connection.connection.driver_connection.execute((home.parent / "ledger.postgres.sql").read_text())
        connection.execute(text("INSERT INTO alembic_version VALUES ('0007')"))
        there = {name for (name,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        ledger.row_factory = sqlite3.Row
        for table in (table for table in META.sorted_tables if table.name in there):
            rows = [dict(row) for row in ledger.execute(f"SELECT * FROM {table.name}")]
            connection.execute(insert(table), rows)
    engine.dispose()
    (home / "ledger.db").unlink()
