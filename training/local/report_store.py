"""The reports of one campaign, in a file of its own: one of each owner, none after the close."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accountant.errors import IdempotencyConflict, LedgerUnavailable, WrongState

_TABLES = """
CREATE TABLE IF NOT EXISTS report (owner INTEGER PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS closed (at TEXT NOT NULL) STRICT;
"""


class ReportStore:
    """Safe to use from any number of processes of one host."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=10, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"reports: cannot be stored now ({type(error).__name__})") from None

    def create(self) -> None:
        """The empty file. Nothing where it is there."""
        with closing(sqlite3.connect(self._path)) as connection:
            connection.executescript(f"PRAGMA journal_mode=WAL; {_TABLES}")
        self._path.chmod(0o600)

    def add(self, owner: int, value: int) -> bool:
        """Whether it is new. IdempotencyConflict where this owner reported something else; WrongState once closed."""
        with self._writing() as connection:
            known = connection.execute("SELECT value FROM report WHERE owner = ?", (owner,)).fetchone()
            if known is not None and known[0] != value:
                raise IdempotencyConflict(f"owner {owner}: has reported already, and something else; one report counts")
            if known is None:
                if connection.execute("SELECT 1 FROM closed").fetchone():
                    raise WrongState("campaign: is closed; no report counts any more")
                connection.execute("INSERT INTO report VALUES (?, ?)", (owner, value))
            return known is None

    def close(self) -> None:
        """From here on nothing is added."""
        with self._writing() as connection:
            connection.execute("INSERT INTO closed SELECT datetime('now') WHERE NOT EXISTS (SELECT 1 FROM closed)")

    def count(self) -> int:
        """How many have reported."""
        with self._writing() as connection:
            return int(connection.execute("SELECT count(*) FROM report").fetchone()[0])

    def all(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Owners (n,) in order, and their reports (n,)."""
        with self._writing() as connection:
            found = connection.execute("SELECT owner, value FROM report ORDER BY owner").fetchall()
        pairs = np.array(found, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]
