"""The reports of one campaign, in a file of its own: one of each owner, none after the close. And, where shares are
what owners send, what the two aggregators say of them, once each.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accountant.errors import IdempotencyConflict, WrongState
from local.reports.sqlite_file import SqliteFile

_TABLES = """
CREATE TABLE IF NOT EXISTS report (owner INTEGER PRIMARY KEY, value ANY NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS closed (at TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS ended (turn INTEGER PRIMARY KEY, reports INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS said (
    aggregator INTEGER NOT NULL, what TEXT NOT NULL, envelope BLOB NOT NULL, PRIMARY KEY (aggregator, what)
) STRICT;
"""


class ReportStore(SqliteFile):
    """Safe to use from any number of processes of one host. A report is an index, or the bytes of two sealed shares."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _TABLES, "reports")

    def add(self, owner: int, value: int | bytes, turn: int = 1) -> bool:
        """Add a report; return whether it is new. IdempotencyConflict where this owner reported something else;
        WrongState once closed, and where `turn`, the owner's, is over or has not come.
        """
        with self._writing() as connection:
            stored = connection.execute("SELECT value FROM report WHERE owner = ?", (owner,)).fetchone()
            if stored is not None and stored[0] != value:
                raise IdempotencyConflict(f"owner {owner}: has reported already, and something else; one report counts")
            if stored is None:
                if connection.execute("SELECT 1 FROM closed").fetchone():
                    raise WrongState("campaign: is closed; no report counts any more")
                due = _last_ended_turn(connection) + 1
                if turn != due:
                    raise WrongState(f"campaign: is at turn {due}; a report of turn {turn} does not count now")
                connection.execute("INSERT INTO report VALUES (?, ?)", (owner, value))
            return stored is None

    def close(self) -> None:
        """Close the store: from here on nothing is added."""
        with self._writing() as connection:
            connection.execute("INSERT INTO closed SELECT datetime('now') WHERE NOT EXISTS (SELECT 1 FROM closed)")

    def end(self, turn: int) -> None:
        """End a turn: from here on no report of it is added. Do nothing where it has ended before."""
        with self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO ended SELECT ?, count(*) FROM report", (turn,))

    def due(self) -> int:
        """Return the turn whose reports are taken, from 1."""
        with self._writing() as connection:
            return _last_ended_turn(connection) + 1

    def since_turn(self) -> int:
        """Return how many have reported since the last turn ended."""
        with self._writing() as connection:
            before = "SELECT coalesce(max(reports), 0) FROM ended"
            return int(connection.execute(f"SELECT count(*) - ({before}) FROM report").fetchone()[0])

    def count(self) -> int:
        """Return how many have reported."""
        with self._writing() as connection:
            return int(connection.execute("SELECT count(*) FROM report").fetchone()[0])

    def all(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return owners (n,) in order, and their reports (n,)."""
        with self._writing() as connection:
            rows = connection.execute("SELECT owner, value FROM report ORDER BY owner").fetchall()
        pairs = np.array(rows, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def after(self, owner: int, most: int) -> list[tuple[int, bytes]]:
        """Return the next reports of owners beyond this number, in order: as many as have `most` bytes, at least
        one.
        """
        reports: list[tuple[int, bytes]] = []
        with self._writing() as connection:
            for number, value in connection.execute("SELECT * FROM report WHERE owner > ? ORDER BY owner", (owner,)):
                if reports and (len(reports) + 1) * len(value) > most:
                    break
                reports.append((number, value))
        return reports

    def say(self, aggregator: int, what: str, envelope: bytes) -> None:
        """Keep what an aggregator says; IdempotencyConflict where it said something else before. WrongState before the
        close.
        """
        with self._writing() as connection:
            if not connection.execute("SELECT 1 FROM closed").fetchone():
                raise WrongState("campaign: is open; aggregators speak once it is closed")
            key = (aggregator, what)
            stored = connection.execute("SELECT envelope FROM said WHERE aggregator = ? AND what = ?", key).fetchone()
            if stored is not None and stored[0] != envelope:
                raise IdempotencyConflict(f"aggregator {aggregator + 1}: has said something else before")
            if stored is None:
                connection.execute("INSERT INTO said VALUES (?, ?, ?)", (*key, envelope))

    def said(self, what: str) -> dict[int, bytes]:
        """Return what aggregators sent of this kind, by the aggregator's number."""
        with self._writing() as connection:
            return dict(connection.execute("SELECT aggregator, envelope FROM said WHERE what = ?", (what,)).fetchall())

    def is_closed(self) -> bool:
        """Return whether nothing is added any more."""
        with self._writing() as connection:
            return connection.execute("SELECT 1 FROM closed").fetchone() is not None


def _last_ended_turn(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(turn), 0) FROM ended").fetchone()[0])
